// SPDX-License-Identifier: Apache-2.0
// Messages beyond gRPC's default of 4 MiB, both ways, between `reprise serve` and a client that
// keeps to what Describe says.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGrpcDefault = 4u << 20;

// One session. `max_receive_bytes`: 0 leaves gRPC's default.
class Client {
 public:
  explicit Client(const std::string& address, uint64_t max_receive_bytes = 0) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (max_receive_bytes != 0)
      arguments.SetMaxReceiveMessageSize(static_cast<int>(max_receive_bytes));
    stub_ = v1::StepService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = stub_->StepStream(&context_);
    v1::StepStreamRequest open;
    open.mutable_open();
    v1::StepStreamResponse opened;
    EXPECT_TRUE(stream_->Write(open) && stream_->Read(&opened));
    opened_ = opened.opened();
  }
  ~Client() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  v1::Limits Limits() {
    grpc::ClientContext context;
    v1::DescribeResponse response;
    const grpc::Status status = stub_->Describe(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.limits();
  }
  std::vector<uint32_t> Allocate(uint32_t count) {
    grpc::ClientContext context;
    v1::AllocateRequest request;
    request.set_session(opened_.session());
    request.set_count(count);
    v1::AllocateResponse response;
    const grpc::Status status = stub_->Allocate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.blocks().begin(), response.blocks().end()};
  }
  // The session's first step, filled in by the caller. False when the stream ended instead.
  bool Step(v1::StepStreamRequest* request, v1::StepStreamResponse* response) {
    request->mutable_step()->set_sequence(1);
    return stream_->Write(*request) && stream_->Read(response);
  }
  // How the stream ended that a failed Step found ended.
  grpc::Status Finish() {
    finished_ = true;
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::StepService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  v1::Opened opened_;
  bool finished_ = false;
};

// Four rows of one token, each with all its logits.
v1::StepStreamRequest FourRowsOfLogits(const std::vector<uint32_t>& blocks) {
  v1::StepStreamRequest request;
  for (uint32_t row = 0; row < 4; ++row) {
    v1::AddRow* add = request.mutable_step()->add_add();
    add->set_row(row);
    add->add_blocks(blocks[row]);
    add->mutable_sampling()->set_return_logits(true);
    v1::Chunk* chunk = request.mutable_step()->add_chunks();
    chunk->set_row(row);
    chunk->add_tokens(row);
    chunk->set_sample(true);
  }
  return request;
}

TEST(MessageSize, LogitsOfAFullStepFitWhatDescribeSays) {
  constexpr int kVocab = 262144;
  TemporaryDirectory directory;
  const auto model = WriteTinyModel({.vocab_size = kVocab,
                                     .num_layers = 1,
                                     .tie_word_embeddings = true,
                                     .dtype = runtime::DType::kBf16},
                                    directory.path() + "/wide");
  ASSERT_TRUE(model.ok()) << model.status();
  ServedProgram served(*model, {"--max-rows", "8", "--mixed-buckets", "8", "--kv-cache", "1MiB",
                                "--max-prompt-logprobs", "0"});
  ASSERT_TRUE(served.ready());
  const v1::Limits limits = Client(served.address()).Limits();
  ASSERT_EQ(limits.max_logit_rows(), 4u);
  EXPECT_GT(limits.max_result_bytes(), kGrpcDefault);
  EXPECT_LT(limits.max_result_bytes(), kGrpcDefault + (64u << 10));

  Client told(served.address(), limits.max_result_bytes());
  v1::StepStreamRequest request = FourRowsOfLogits(told.Allocate(4));
  v1::StepStreamResponse response;
  ASSERT_TRUE(told.Step(&request, &response)) << told.Finish().error_message();
  EXPECT_EQ(response.step().rows().logits_size(), 4 * kVocab) << response.error().message();
  EXPECT_GT(response.ByteSizeLong(), kGrpcDefault);

  // What docs/wire.md warns of.
  Client untold(served.address());
  request = FourRowsOfLogits(untold.Allocate(4));
  EXPECT_FALSE(untold.Step(&request, &response));
  EXPECT_EQ(untold.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// Rows that share a long prefix: tables alone exceed 4 MiB.
class LongTables : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({.num_layers = 1, .max_position_embeddings = kBlocks + 1},
                                      directory_.path() + "/long");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  // Blocks of one token: 2 (K, V) * 2 heads * 8 * 4 bytes.
  std::vector<std::string> Flags() const {
    return {"--block-size", "1",
            "--max-rows",   "8",
            "--kv-cache",   std::to_string((kBlocks + 2) * 128) + "B"};
  }
  static v1::StepStreamRequest EightRows(const std::vector<uint32_t>& blocks) {
    v1::StepStreamRequest request;
    for (uint32_t row = 0; row < 8; ++row) {
      v1::AddRow* add = request.mutable_step()->add_add();
      add->set_row(row);
      add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    }
    return request;
  }
  static constexpr uint32_t kBlocks = 200'000;
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(LongTables, EveryStepWithinTheLimitsIsAccepted) {
  ServedProgram served(model_, Flags());
  ASSERT_TRUE(served.ready());
  Client client(served.address());
  const v1::Limits limits = client.Limits();
  EXPECT_GE(limits.max_message_bytes(), limits.max_step_bytes());
  v1::StepStreamRequest request = EightRows(client.Allocate(kBlocks));
  EXPECT_GT(request.ByteSizeLong(), kGrpcDefault);
  EXPECT_LE(request.ByteSizeLong(), limits.max_step_bytes());
  v1::StepStreamResponse response;
  ASSERT_TRUE(client.Step(&request, &response)) << client.Finish().error_message();
  EXPECT_TRUE(response.has_step()) << response.error().message();
}

TEST_F(LongTables, AServerWithALowerLimitSaysSo) {
  std::vector<std::string> flags = Flags();
  flags.insert(flags.end(), {"--max-message", "4MiB"});
  ServedProgram served(model_, flags);
  ASSERT_TRUE(served.ready());
  EXPECT_THAT(served.program().stderr_text(), HasSubstr("messages of up to 4.00 MiB"));
  Client client(served.address());
  const v1::Limits limits = client.Limits();
  EXPECT_EQ(limits.max_message_bytes(), kGrpcDefault);
  EXPECT_GT(limits.max_step_bytes(), limits.max_message_bytes());
  v1::StepStreamRequest request = EightRows(client.Allocate(kBlocks));
  v1::StepStreamResponse response;
  EXPECT_FALSE(client.Step(&request, &response));
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace reprise::testing
