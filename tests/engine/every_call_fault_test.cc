// SPDX-License-Identifier: Apache-2.0
// A device that fails one call of a whole life of an engine, from loading to its end: for every
// call in turn. Whatever fails, the error says so, tokens before it are right, no step runs after
// it that should not, and nothing of the device's memory is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "engine/step_draft.h"
#include "runtime/status_macros.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::InstrumentedDevice;
using ::reprise::testing::TemporaryDirectory;
using ::testing::HasSubstr;

constexpr char kCause[] = "the cable came out";

DecodeEngineOptions TinyOptions() {
  DecodeEngineOptions options = testing::SmallEngineOptions();
  options.decode_buckets = {1, 2};
  options.mixed_buckets = {16};
  options.max_rows = 2;
  options.max_steps_per_request = 2;
  options.swap_bytes = 64 << 10;
  return options;
}

// What a client does with an engine: a row that is forked, swapped out, read and written; two
// sessions, so that blocks are cleared; several steps in one request.
class Life {
 public:
  explicit Life(DecodeEngine& engine) : engine_(engine), session_(engine.OpenSession()) {}

  absl::Status Run() {
    REPRISE_ASSIGN_OR_RETURN(const auto first, engine_.AllocateBlocks(session_.id, 3));
    REPRISE_RETURN_IF_ERROR(Step({.add = {{.row = 1, .blocks = first}},
                                  .chunks = {{.row = 1, .tokens = {5, 80, 33, 12, 96, 7}}}}));
    REPRISE_RETURN_IF_ERROR(Step({.continue_all = true, .num_steps = 2}));
    REPRISE_RETURN_IF_ERROR(Step({.drop = {1}}));
    REPRISE_ASSIGN_OR_RETURN(const auto swapped, engine_.SwapOut(session_.id, first));
    REPRISE_ASSIGN_OR_RETURN(const auto back, engine_.SwapIn(session_.id, swapped));
    std::vector<std::byte> contents;
    std::vector<KvPart> parts = {{.block = back[0], .num_layers = engine_.info().kv.num_layers}};
    REPRISE_RETURN_IF_ERROR(engine_.ReadBlocks(session_.id, parts, &contents));
    REPRISE_RETURN_IF_ERROR(engine_.WriteBlocks(session_.id, parts, contents));
    REPRISE_RETURN_IF_ERROR(Step({.add = {{.row = 2, .blocks = back, .context_length = 8}},
                                  .chunks = {{.row = 2, .tokens = {4}}}}));
    const SessionInfo other = engine_.OpenSession();
    REPRISE_RETURN_IF_ERROR(engine_.CloseSession(session_.id));
    REPRISE_RETURN_IF_ERROR(engine_.AllocateBlocks(other.id, 3).status());
    return engine_.CloseSession(other.id);
  }
  const std::vector<uint32_t>& tokens() const { return tokens_; }

  absl::Status Step(const StepDraft& draft) {
    const DraftView view(draft, session_, sequence_);
    StepResult result;
    REPRISE_RETURN_IF_ERROR(engine_.Step(view.request(), &result));
    ++sequence_;
    for (const RowOutcome& row : result.rows)
      if (row.sampled) tokens_.push_back(row.token);
    return absl::OkStatus();
  }

 private:
  DecodeEngine& engine_;
  const SessionInfo session_;
  uint64_t sequence_ = 1;
  std::vector<uint32_t> tokens_;
};

class EveryCall : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = testing::WriteTinyModel({.num_layers = 1}, directory_.path());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  static std::unique_ptr<InstrumentedDevice> NewDevice() {
    auto device = testing::MakeDevice(
        runtime::DeviceOptions{.kind = runtime::DeviceKind::kHost, .host_threads = 1});
    EXPECT_TRUE(device.ok()) << device.status();
    return std::make_unique<InstrumentedDevice>(*std::move(device));
  }
  // The tokens of a life in which nothing fails.
  std::vector<uint32_t> Reference() {
    const auto device = NewDevice();
    const auto engine = DecodeEngine::Create(*device, {.directory = model_}, TinyOptions());
    EXPECT_TRUE(engine.ok()) << engine.status();
    Life life(**engine);
    EXPECT_OK(life.Run());
    return life.tokens();
  }
  // An engine whose device failed while it was used.
  static void ExpectStopped(DecodeEngine& engine, const absl::Status& status) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(kCause));
    EXPECT_THAT(std::string(engine.health().message()), HasSubstr(kCause));
    Life next(engine);
    EXPECT_EQ(next.Step({}).code(), absl::StatusCode::kUnavailable);
  }
  // False when the life has fewer calls.
  bool FailCall(int call, const std::vector<uint32_t>& reference) {
    SCOPED_TRACE(absl::StrCat("call ", call));
    const auto device = NewDevice();
    device->FailCall(call, absl::InternalError(kCause));
    {
      const auto engine = DecodeEngine::Create(*device, {.directory = model_}, TinyOptions());
      if (!engine.ok()) {
        EXPECT_THAT(std::string(engine.status().message()), HasSubstr(kCause));
      } else {
        Life life(**engine);
        const absl::Status status = life.Run();
        EXPECT_EQ(status.ok(), !device->call_failed()) << status;
        if (!status.ok()) ExpectStopped(**engine, status);
        const std::vector<uint32_t>& tokens = life.tokens();
        EXPECT_LE(tokens.size(), reference.size());
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), reference.begin()));
      }
    }
    EXPECT_EQ(device->device_bytes(), 0u);
    EXPECT_EQ(device->mapped_bytes(), 0u);
    return device->call_failed();
  }

  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(EveryCall, ThatFailsIsReportedAndLeavesNothing) {
  const std::vector<uint32_t> reference = Reference();
  ASSERT_EQ(reference.size(), 4u);
  int calls = 0;
  while (FailCall(calls + 1, reference) && !HasFailure()) ++calls;
  EXPECT_GT(calls, 50);
  RecordProperty("calls", calls);
}

}  // namespace
}  // namespace reprise::engine
