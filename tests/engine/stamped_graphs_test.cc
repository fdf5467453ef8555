// SPDX-License-Identifier: Apache-2.0
// Twins: a stamp behind every kernel, the same results as the plain graph, and what is refused.
#include "graphs/stamped_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/decode_engine.h"
#include "kernels/fill/fill.h"
#include "runtime/status_macros.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::EngineTest;
using ::reprise::testing::KernelTest;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;

constexpr absl::StatusCode kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

TEST(OpOfKernel, IsTheNameWithoutProjectDtypeAndTile) {
  EXPECT_EQ(graphs::OpOfKernel("reprise_fetch"), "fetch");
  EXPECT_EQ(graphs::OpOfKernel("reprise_rms_norm_f32"), "rms_norm");
  EXPECT_EQ(graphs::OpOfKernel("reprise_linear_matrix_bf16_128"), "linear_matrix");
  EXPECT_EQ(graphs::OpOfKernel("reprise_linear_matrix_f16_whole"), "linear_matrix");
  EXPECT_EQ(graphs::OpOfKernel("someone_elses_f16b"), "someone_elses_f16b");
}

using StampedGraphsTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE(StampedGraphsTest);

TEST_P(StampedGraphsTest, CapturesAnyonesWorkWithAStampBehindEachKernel) {
  testing::GuardedMemory memory(device(), stream());
  auto* out = memory.Poisoned<float>(64);
  const auto enqueue = [&](runtime::Stream& s, const graphs::Bucket& bucket) {
    for (int64_t i = 0; i < bucket.capacity; ++i)
      REPRISE_RETURN_IF_ERROR(
          kernels::RandomFill(s, kernels(), {.out = out + i, .count = 1, .seed = 1}));
    return absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(const auto twins, graphs::StampedGraphs::Create(
                                             device(), stream(), kernels(),
                                             {.buckets = {3, 7}, .name_prefix = "t"}, enqueue));
  EXPECT_EQ(twins->graphs().captured()[0].num_kernel_nodes, 6);
  EXPECT_EQ(twins->graphs().captured()[1].num_kernel_nodes, 14);
  EXPECT_EQ(twins->graphs().captured()[1].num_other_nodes, 0);
  ASSERT_OK(twins->graphs().Replay(2).status());
  std::vector<uint64_t> done;
  ASSERT_OK(twins->Read(2, &done));
  ASSERT_EQ(done.size(), 3u);
  EXPECT_GT(done[0], 0u);
  EXPECT_LE(done[0], done[1]);
  EXPECT_LE(done[1], done[2]);
  ASSERT_OK_AND_ASSIGN(const auto launches, twins->LaunchesOf(7));
  EXPECT_EQ(launches.size(), 7u);
  EXPECT_EQ(launches[0].op, "random_fill");
  memory.Check();
  EXPECT_FALSE(std::isnan(memory.Read(out)[2]));
  EXPECT_THAT(twins->Read(8, &done), StatusIs(absl::StatusCode::kOutOfRange, "size is 8"));
}

TEST_P(StampedGraphsTest, RefusesWorkThatChangesItsLaunches) {
  testing::GuardedMemory memory(device(), stream());
  auto* out = memory.Poisoned<float>(1);
  int calls = 0;
  const auto enqueue = [&](runtime::Stream& s, const graphs::Bucket&) {
    for (int i = 0; i <= calls; ++i)
      REPRISE_RETURN_IF_ERROR(kernels::NanFill(s, kernels(), {.out = out, .count = 1}));
    ++calls;
    return absl::OkStatus();
  };
  EXPECT_THAT(
      graphs::StampedGraphs::Create(device(), stream(), kernels(), {.buckets = {1}}, enqueue),
      StatusIs(absl::StatusCode::kInternal, "counted before: 1 launches"));
  EXPECT_THAT(
      graphs::StampedGraphs::Create(device(), stream(), kernels(), {.buckets = {1}}, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument, "is empty"));
}

using StampedStepTest = EngineTest;
REPRISE_ENGINE_ON_EVERY_DEVICE(StampedStepTest);

// Three rows with prompts, then `steps` decode steps of all of them.
std::vector<std::vector<Token>> Generate(DecodeEngine& engine, ExecutionMode mode, int steps) {
  EngineDriver driver(engine);
  for (uint32_t row = 0; row < 3; ++row)
    driver.Start({.row = row,
                  .prompt = RandomPrompt(row, 5 + row),
                  .sampling = {.temperature = 0.5f * static_cast<float>(row), .seed = row}},
                 static_cast<uint32_t>(steps) + 1);
  for (int i = 0; i < steps; ++i) {
    StepDraft draft;
    draft.continue_all = true;
    draft.mode = mode;
    const StepResult& result = driver.Step(draft);
    EXPECT_EQ(result.report.graph, mode == ExecutionMode::kStamped ? "twin/4" : "decode/4");
    EXPECT_TRUE(result.report.replayed);
    EXPECT_EQ(result.report.padding_rows, 1u);
  }
  std::vector<std::vector<Token>> tokens;
  for (uint32_t row = 0; row < 3; ++row) tokens.push_back(driver.tokens(row));
  return tokens;
}

TEST_P(StampedStepTest, GivesTheSameTokensAsThePlainGraph) {
  const TestEngine tiny = MakeEngine();
  ASSERT_OK(tiny.engine->CaptureTwins(std::vector<uint32_t>{3}));
  const auto plain = Generate(*tiny.engine, ExecutionMode::kReplay, 12);
  EXPECT_EQ(Generate(*tiny.engine, ExecutionMode::kStamped, 12), plain);
  EXPECT_EQ(Generate(*tiny.engine, ExecutionMode::kReplay, 12), plain);
}

TEST_P(StampedStepTest, HasTwiceTheKernelsAndAscendingStamps) {
  const TestEngine tiny = MakeEngine();
  ASSERT_OK(tiny.engine->CaptureTwins(std::vector<uint32_t>{1, 3}));
  Generate(*tiny.engine, ExecutionMode::kStamped, 2);
  StepStamps stamps;
  ASSERT_OK(tiny.engine->ReadStamps(3, &stamps));
  const graphs::CapturedBucket& plain = tiny.engine->info().decode_buckets[2];
  ASSERT_EQ(plain.bucket.capacity, 4);
  EXPECT_EQ(stamps.num_kernel_nodes, 2 * plain.num_kernel_nodes);
  ASSERT_EQ(stamps.launches.size(), static_cast<size_t>(plain.num_kernel_nodes));
  ASSERT_EQ(stamps.done_ns.size(), stamps.launches.size());
  EXPECT_EQ(stamps.launches.front().op, "fetch");
  EXPECT_EQ(stamps.launches[1].op, "plan");
  EXPECT_EQ(stamps.launches.back().op, "publish");
  EXPECT_EQ(stamps.launches.back().shape, "");
  uint64_t before = stamps.begin_ns;
  EXPECT_GT(before, 0u);
  for (const uint64_t done : stamps.done_ns) {
    EXPECT_LE(before, done);
    before = done;
  }
  // Tiny model: hidden 32, 4 heads of 8 over 2, intermediate 48, vocabulary 97; two layers.
  std::vector<std::string> shapes;
  for (const graphs::LaunchLabel& label : stamps.launches)
    if (!label.shape.empty()) shapes.push_back(label.shape);
  EXPECT_THAT(shapes, ElementsAre("64x32", "32x32", "96x32", "32x48",  //
                                  "64x32", "32x32", "96x32", "32x48", "97x32"));
}

TEST_P(StampedStepTest, RefusalsNameTheGraphAndChangeNothing) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 8);
  StepDraft stamped;
  stamped.continue_all = true;
  stamped.mode = ExecutionMode::kStamped;
  EXPECT_THAT(driver.TryStep(stamped), StatusIs(kFailedPrecondition, "'decode/1' has no twin"));
  StepStamps stamps;
  EXPECT_THAT(tiny.engine->ReadStamps(1, &stamps), StatusIs(kFailedPrecondition, "no twin"));
  ASSERT_OK(tiny.engine->CaptureTwins(std::vector<uint32_t>{5}));
  EXPECT_THAT(driver.TryStep(stamped), StatusIs(kFailedPrecondition, "'decode/1' has no twin"));
  EXPECT_THAT(tiny.engine->CaptureTwins({}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no buckets"));
  ASSERT_OK(tiny.engine->CaptureTwins(std::vector<uint32_t>{1}));
  StepDraft mixed = stamped;
  mixed.continue_all = false;
  mixed.chunks.push_back({.row = 1, .tokens = {1, 2}});
  EXPECT_THAT(driver.TryStep(mixed), StatusIs(kFailedPrecondition, "several query tokens"));
  EXPECT_OK(driver.TryStep(stamped));  // the refused ones changed nothing
}

TEST_P(StampedStepTest, CaptureAndReadingWaitForNoStepInFlight) {
  const TestEngine tiny = MakeEngine();
  ASSERT_OK(tiny.engine->CaptureTwins(std::vector<uint32_t>{1}));
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 8);
  StepDraft draft;
  draft.continue_all = true;
  const StepTicket ticket = driver.Submit(draft);
  StepStamps stamps;
  EXPECT_THAT(tiny.engine->CaptureTwins(std::vector<uint32_t>{1}),
              StatusIs(kFailedPrecondition, "1 steps are in flight"));
  EXPECT_THAT(tiny.engine->ReadStamps(1, &stamps),
              StatusIs(kFailedPrecondition, "1 steps are in flight"));
  driver.Wait(ticket);
  EXPECT_OK(tiny.engine->ReadStamps(1, &stamps));
  EXPECT_THAT(tiny.engine->CaptureTwins(std::vector<uint32_t>{9}),
              StatusIs(absl::StatusCode::kOutOfRange, "size is 9"));
  EXPECT_THAT(tiny.engine->CaptureTwins(std::vector<uint32_t>{0}),
              StatusIs(absl::StatusCode::kInvalidArgument, "size is 0"));
}

// A row may claim a context that nobody has written: what lies there is finite.
TEST_P(StampedStepTest, RandomCacheGivesFiniteLogProbabilities) {
  auto options = Options();
  options.engine.random_kv_cache = true;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  StepDraft draft;
  draft.add.push_back({.row = 1, .blocks = driver.AllocateFor(100), .context_length = 99});
  draft.chunks.push_back({.row = 1, .tokens = {5}});
  const StepResult& result = driver.Step(draft);
  EXPECT_EQ(result.rows[0].context_length, 100u);
  EXPECT_TRUE(std::isfinite(result.rows[0].logprob));
  options.engine.poison = true;
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel({}, directory.path()));
  EXPECT_THAT(DecodeEngine::Create(*tiny.device, {.directory = directory.path()}, options.engine),
              StatusIs(absl::StatusCode::kInvalidArgument, "poison and random_kv_cache"));
}

}  // namespace
}  // namespace reprise::engine
