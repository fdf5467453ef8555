// SPDX-License-Identifier: Apache-2.0
// A prefill worker and a decode worker, two processes of one machine: blocks go from the one to the
// other over memory of the device, and tokens are those of one process. On every device that is
// here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "runtime/device.h"
#include "tests/end_to_end/program.h"
#include "tests/service/kv_client.h"
#include "tests/service/served_model.h"

namespace reprise::testing {
namespace {

using service::StreamClient;
using ::testing::HasSubstr;

constexpr uint32_t kRow = 1;
constexpr uint32_t kContext = 64;
constexpr uint32_t kBlocks = kContext / 4;
const std::vector<uint32_t> kPrompt = {5, 80, 33, 12, 96, 7, 41, 2, 9, 61, 17, 3, 3, 8, 44};

// One of the two workers.
class Worker {
 public:
  Worker(const std::string& model, const std::string& device, const std::string& directory,
         const std::string& export_space)
      : served_(model, {"--device", device, "--block-size", "4", "--kv-cache", "1MiB",
                        "--kv-exchange", directory, "--export-space", export_space}) {}
  bool ready() const { return served_.ready(); }
  Program& program() { return served_.program(); }
  std::shared_ptr<grpc::Channel> NewChannel() const {
    return grpc::CreateChannel(served_.address(), grpc::InsecureChannelCredentials());
  }

 private:
  ServedProgram served_;
};

class KvExchangeOf : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == "cuda" && runtime::CountCudaDevices(&why) == 0) GTEST_SKIP() << why;
    if (GetParam() == "hip" && runtime::CountHipDevices(&why) == 0) GTEST_SKIP() << why;
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    std::filesystem::create_directory(exchange());
    ASSERT_EQ(chmod(exchange().c_str(), 0700), 0);
  }
  std::string exchange() const { return directory_.path() + "/exchange"; }

  // Of a row over `blocks`, the first `count` tokens from its prompt on.
  static std::vector<uint32_t> Tokens(StreamClient& client, const std::vector<uint32_t>& blocks,
                                      size_t count) {
    std::vector<uint32_t> tokens = {Prefill(client, blocks)};
    for (const uint32_t token : service::Continue(client, kRow, count - 1)) tokens.push_back(token);
    return tokens;
  }
  static uint32_t Prefill(StreamClient& client, const std::vector<uint32_t>& blocks) {
    v1::StepRequest step = client.NewStep();
    v1::AddRow* add = step.add_add();
    add->set_row(kRow);
    add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    v1::Chunk* chunk = step.add_chunks();
    chunk->set_row(kRow);
    chunk->mutable_tokens()->Assign(kPrompt.begin(), kPrompt.end());
    chunk->set_sample(true);
    return client.Step(step).rows().token(0);
  }

  TemporaryDirectory directory_;
  std::string model_;
};

TEST_P(KvExchangeOf, TwoProcessesSayWhatOneSays) {
  Worker prefill(model_, GetParam(), exchange(), "1MiB");
  Worker decode(model_, GetParam(), exchange(), "0");
  ASSERT_TRUE(prefill.ready() && decode.ready());
  std::vector<uint32_t> expected;
  {
    StreamClient alone(prefill.NewChannel());
    expected = Tokens(alone, alone.Allocate(kBlocks), 30);
  }
  StreamClient there(prefill.NewChannel()), here(decode.NewChannel());
  // Other ids than there.
  here.Allocate(3);
  for (int round = 0; round < 3; ++round) {
    std::vector<uint32_t> blocks = there.Allocate(kBlocks);
    std::vector<uint32_t> tokens = {Prefill(there, blocks)};
    blocks.resize((kPrompt.size() + 3) / 4);
    std::vector<std::string> tickets;
    const grpc::Status exported = service::Export(there, blocks, &tickets);
    ASSERT_TRUE(exported.ok()) << exported.error_message();
    const std::vector<uint32_t> own = here.Allocate(kBlocks);
    std::vector<uint32_t> num_tokens;
    const grpc::Status imported =
        service::Import(here, {own.begin(), own.begin() + static_cast<ptrdiff_t>(tickets.size())},
                        tickets, &num_tokens);
    ASSERT_TRUE(imported.ok()) << imported.error_message();
    EXPECT_EQ(num_tokens, (std::vector<uint32_t>{4, 4, 4, 3}));
    EXPECT_TRUE(service::FreeExported(there, tickets).ok());
    tokens.push_back(
        service::GoOn(here, kRow, own, static_cast<uint32_t>(kPrompt.size()), tokens.back()));
    for (const uint32_t token : service::Continue(here, kRow, 28)) tokens.push_back(token);
    EXPECT_EQ(tokens, expected) << "round " << round;
    for (StreamClient* client : {&there, &here}) {
      v1::StepRequest drop = client->NewStep();
      drop.add_drop(kRow);
      client->Step(drop);
    }
  }
}

TEST_P(KvExchangeOf, AWorkerThatIsKilledLeavesNothingInTheWay) {
  std::vector<std::string> tickets;
  Worker decode(model_, GetParam(), exchange(), "0");
  ASSERT_TRUE(decode.ready());
  StreamClient here(decode.NewChannel());
  const std::vector<uint32_t> own = here.Allocate(kBlocks);
  std::vector<uint32_t> num_tokens;
  {
    Worker prefill(model_, GetParam(), exchange(), "1MiB");
    ASSERT_TRUE(prefill.ready());
    StreamClient there(prefill.NewChannel());
    const std::vector<uint32_t> blocks = there.Allocate(kBlocks);
    Prefill(there, blocks);
    ASSERT_TRUE(service::Export(there, {blocks[0]}, &tickets).ok());
    ASSERT_TRUE(service::Import(here, {own[0]}, tickets, &num_tokens).ok());
    prefill.program().Signal(SIGKILL);
    prefill.program().Wait();
  }
  const grpc::Status gone = service::Import(here, {own[0]}, tickets, &num_tokens);
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::NOT_FOUND) << gone.error_message();
  EXPECT_THAT(gone.error_message(), HasSubstr("a server that is not there"));
  // What it left is removed by the next one.
  Worker again(model_, GetParam(), exchange(), "1MiB");
  ASSERT_TRUE(again.ready());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(exchange()))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 1u);
}

INSTANTIATE_TEST_SUITE_P(Devices, KvExchangeOf, ::testing::Values("host", "cuda", "hip"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace reprise::testing
