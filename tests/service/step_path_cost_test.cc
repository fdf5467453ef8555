// SPDX-License-Identifier: Apache-2.0
// What a step of a stream may not do on its way through the server, once a few have gone before it:
// allocate. All of the way but gRPC's own part of it, from a message's bytes to an answer's. The
// memory in which gRPC takes an answer's bytes is its own, and it allocates that.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "reprise/v1/step_service.pb.h"
#include "service/clock.h"
#include "service/step_pipeline.h"
#include "service/wire/message.h"
#include "service/wire/result_to_wire.h"
#include "service/wire/scan.h"
#include "service/wire/step_from_wire.h"
#include "tests/service/served_model.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using testing::NumAllocationsOfThisThread;

grpc::ByteBuffer BytesOf(const v1::StepStreamRequest& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// As a stream's exchange: it and its messages are used again and again.
class Exchange final : public StepJob {
 public:
  Exchange() { answer_.reserve(4096); }
  void Finished(const absl::Status& status, const engine::StepResult* result) override {
    EXPECT_TRUE(status.ok()) << status;
    if (status.ok()) {
      ResultToWire(*result, times, /*omit_rows=*/false, response_.mutable_step());
      SetReplyTimes(times, NowNs(), response_.mutable_step()->mutable_ledger());
      answer_.resize(response_.ByteSizeLong());
      response_.SerializeWithCachedSizesToArray(answer_.data());
    }
    allocations_of_pipeline_ = NumAllocationsOfThisThread();
    finished_ = true;
  }

  void Run(const grpc::ByteBuffer& bytes, const engine::SessionInfo& session,
           StepPipeline& pipeline, StepQueue& queue) {
    finished_ = false;
    times = {.received_ns = NowNs()};
    WireHead head;
    ASSERT_TRUE(ScanWire(bytes, *v1::StepStreamRequest::descriptor(), 100, &head).ok());
    ASSERT_TRUE(ParseWireAgain(bytes, &message_).ok());
    ASSERT_TRUE(StepFromWire(message_.step(), &scratch_, &request).ok());
    request.session = session.id;
    request.epoch = session.epoch;
    times.converted_ns = NowNs();
    pipeline.Enqueue(this, queue);
  }
  void Await() const {
    ASSERT_TRUE(Eventually([this] { return finished_.load(); }));
  }

  const v1::StepStreamResponse& response() const { return response_; }
  uint64_t allocations_of_pipeline() const { return allocations_of_pipeline_; }

 private:
  v1::StepStreamRequest message_;
  StepScratch scratch_;
  v1::StepStreamResponse response_;
  std::vector<uint8_t> answer_;
  std::atomic<bool> finished_ = false;
  std::atomic<uint64_t> allocations_of_pipeline_ = 0;
};

v1::StepStreamRequest FirstStep(engine::DecodeEngine& engine, const engine::SessionInfo& session) {
  v1::StepStreamRequest message;
  message.mutable_step()->set_sequence(1);
  for (uint32_t row = 0; row < kMaxRows; ++row) {
    const auto blocks = engine.AllocateBlocks(session.id, 7);
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    v1::AddRow* add = message.mutable_step()->add_add();
    add->set_row(row);
    add->mutable_blocks()->Assign(blocks->begin(), blocks->end());
    v1::Chunk* chunk = message.mutable_step()->add_chunks();
    chunk->set_row(row);
    chunk->add_tokens(row + 1);
    chunk->set_sample(true);
  }
  return message;
}

// `names_rows`: every row by its id, in place of continue_all.
void ExpectNoAllocations(bool names_rows) {
  testing::TemporaryDirectory directory;
  ASSERT_TRUE(testing::WriteTinyModel({}, directory.path()).ok());
  const TinyEngine tiny(directory.path());
  const engine::SessionInfo session = tiny.engine->OpenSession();
  StepShare share;
  StepQueue queue(share);
  StepPipeline pipeline(*tiny.engine, {}, [] {});
  Exchange exchange;
  exchange.Run(BytesOf(FirstStep(*tiny.engine, session)), session, pipeline, queue);
  exchange.Await();
  uint64_t own = 0, of_pipeline = 0;
  constexpr uint64_t kWarmUp = 5, kSteps = 25;
  for (uint64_t sequence = 2; sequence < kSteps; ++sequence) {
    v1::StepStreamRequest message;
    message.mutable_step()->set_sequence(sequence);
    message.mutable_step()->set_continue_all(!names_rows);
    if (names_rows)
      for (uint32_t row = 0; row < kMaxRows; ++row) message.mutable_step()->add_continue_rows(row);
    const grpc::ByteBuffer bytes = BytesOf(message);
    const uint64_t before = NumAllocationsOfThisThread();
    exchange.Run(bytes, session, pipeline, queue);
    const uint64_t allocations = NumAllocationsOfThisThread() - before;
    exchange.Await();
    ASSERT_EQ(exchange.response().step().rows().token_size(), static_cast<int>(kMaxRows));
    if (sequence == kWarmUp) of_pipeline = exchange.allocations_of_pipeline();
    if (sequence > kWarmUp) own += allocations;
  }
  EXPECT_EQ(own, 0u);
  EXPECT_EQ(exchange.allocations_of_pipeline(), of_pipeline);
}

TEST(StepPath, AllocatesNothingOnceItIsWarm) { ExpectNoAllocations(/*names_rows=*/false); }

TEST(StepPath, AllocatesNothingForRowsThatAreNamed) { ExpectNoAllocations(/*names_rows=*/true); }

}  // namespace
}  // namespace reprise::service
