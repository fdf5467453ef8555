// SPDX-License-Identifier: Apache-2.0
// Profiled steps: a stamp behind every launch, the same results as the plain graph, labels of what
// was launched, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/diagnostics.h"
#include "engine/engine_profiler.h"
#include "graphs/captured_nodes.h"
#include "graphs/profiled_graphs.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::EngineTest;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr absl::StatusCode kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

using ProfiledStepTest = EngineTest;
REPRISE_ENGINE_ON_EVERY_DEVICE(ProfiledStepTest);

// Three rows with prompts, then `steps` decode steps of all of them: plain ones, or the profiler's.
std::vector<std::vector<Token>> Generate(DecodeEngine& engine, int steps,
                                         EngineProfiler* profiler = nullptr) {
  EngineDriver driver(engine);
  for (uint32_t row = 0; row < 3; ++row)
    driver.Start({.row = row,
                  .prompt = RandomPrompt(row, 5 + row),
                  .sampling = {.temperature = 0.5f * static_cast<float>(row), .seed = row}},
                 static_cast<uint32_t>(steps) + 1);
  for (int i = 0; i < steps; ++i) {
    const StepResult& result = driver.Step({.continue_all = true}, profiler);
    EXPECT_EQ(result.report.graph, profiler != nullptr ? "profiled/4" : "decode/4");
    EXPECT_TRUE(result.report.replayed);
    EXPECT_EQ(result.report.padding_rows, 1u);
  }
  std::vector<std::vector<Token>> tokens;
  for (uint32_t row = 0; row < 3; ++row) tokens.push_back(driver.tokens(row));
  return tokens;
}

TEST_P(ProfiledStepTest, TellsTheNodesOfTheEnginesOwnGraphs) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  const EngineInfo& info = tiny.engine->info();
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets}) {
    for (const graphs::CapturedBucket& captured : *buckets) {
      ASSERT_OK_AND_ASSIGN(const std::vector<graphs::GraphNode> nodes,
                           profiler.ListNodes(captured.bucket.name));
      EXPECT_EQ(static_cast<int>(nodes.size()), captured.num_kernel_nodes);
      EXPECT_EQ(nodes.front().op, "fetch");
      EXPECT_EQ(nodes.back().op, "publish");
    }
  }
  EXPECT_THAT(profiler.ListNodes("decode/3"),
              StatusIs(absl::StatusCode::kNotFound, "graph: got \"decode/3\", allowed: decode/1"));
}

TEST_P(ProfiledStepTest, CapturedGraphsHoldTheNodesThatWereEnqueued) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  EXPECT_THAT(profiler.ListCapturedNodes("decode/3"),
              StatusIs(absl::StatusCode::kNotFound, "graph: got \"decode/3\", allowed: decode/1"));
  const auto tokens = Generate(*tiny.engine, 4);
  const EngineInfo& info = tiny.engine->info();
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets}) {
    for (const graphs::CapturedBucket& bucket : *buckets) {
      const std::string& name = bucket.bucket.name;
      const auto captured = profiler.ListCapturedNodes(name);
      if (GetParam().device == runtime::DeviceKind::kHip) {
        EXPECT_THAT(captured, StatusIs(absl::StatusCode::kUnimplemented, "does not tell"));
        continue;
      }
      ASSERT_OK(captured);
      EXPECT_EQ(static_cast<int>(captured->nodes.size()),
                bucket.num_kernel_nodes + bucket.num_other_nodes)
          << name;
      ASSERT_OK_AND_ASSIGN(const std::vector<graphs::GraphNode> nodes, profiler.ListNodes(name));
      ASSERT_OK_AND_ASSIGN(const std::vector<graphs::GraphNode> told,
                           graphs::AsCaptured(nodes, *captured));
      // Kernels of GPUs begin while the one ahead of them ends, where the GPU can do that.
      const bool can = tiny.device->properties().kind == runtime::DeviceKind::kCuda &&
                       tiny.device->properties().compute_capability >= 90;
      EXPECT_EQ(std::any_of(told.begin(), told.end(), [](const auto& node) { return node.early; }),
                can)
          << name;
    }
  }
  EXPECT_EQ(Generate(*tiny.engine, 4), tokens);  // the engine's own graphs are as they were
}

TEST_P(ProfiledStepTest, GivesTheSameTokensAsThePlainGraph) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  ASSERT_OK(profiler.Capture(std::vector<uint32_t>{3}));
  const auto plain = Generate(*tiny.engine, 12);
  EXPECT_EQ(Generate(*tiny.engine, 12, &profiler), plain);
  EXPECT_EQ(Generate(*tiny.engine, 12), plain);
}

TEST_P(ProfiledStepTest, HasTwiceTheKernelsAndAscendingStamps) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  ASSERT_OK(profiler.Capture(std::vector<uint32_t>{1, 3}));
  Generate(*tiny.engine, 2, &profiler);
  StepStamps stamps;
  ASSERT_OK(profiler.ReadStamps(3, &stamps));
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
  for (const graphs::ProfiledLaunch& launch : stamps.launches) {
    if (!launch.shape.empty()) shapes.push_back(launch.shape);
    // Kernels are named "reprise_<op>", then a dtype and a tile where they have one.
    EXPECT_THAT(launch.kernel + "_", StartsWith("reprise_" + launch.op + "_"));
    EXPECT_EQ(launch.shape.empty(), !launch.op.starts_with("linear_")) << launch.op;
  }
  EXPECT_THAT(shapes, ElementsAre("64x32", "32x32", "96x32", "32x48",  //
                                  "64x32", "32x32", "96x32", "32x48", "97x32"));
}

// Row 1 continues beside a prompt of four tokens, in a plain step or a profiled one.
std::vector<Token> RunMixed(DecodeEngine& engine, EngineProfiler* profiler) {
  EngineDriver driver(engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 4);
  const StepResult& result = driver.Step({.add = {{.row = 2, .blocks = driver.AllocateFor(8)}},
                                          .chunks = {{.row = 2, .tokens = {9, 8, 7, 6}}},
                                          .continue_rows = {1}},
                                         profiler);
  EXPECT_EQ(result.report.tokens, 5u);
  std::vector<Token> tokens;
  for (const RowOutcome& row : result.rows) tokens.push_back(testing::TokenOf(row));
  return tokens;
}

TEST_P(ProfiledStepTest, OfPromptsGivesTheSameTokensAndAllStamps) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  ASSERT_OK(profiler.Capture({}, std::vector<uint32_t>{5}));
  const std::vector<Token> plain = RunMixed(*tiny.engine, nullptr);
  EXPECT_EQ(RunMixed(*tiny.engine, &profiler), plain);
  StepStamps stamps;
  ASSERT_OK(profiler.ReadMixedStamps(5, &stamps));
  const graphs::CapturedBucket& mixed = tiny.engine->info().mixed_buckets[0];
  EXPECT_EQ(stamps.num_kernel_nodes, 2 * mixed.num_kernel_nodes);
  ASSERT_EQ(stamps.done_ns.size(), static_cast<size_t>(mixed.num_kernel_nodes));
  EXPECT_TRUE(std::is_sorted(stamps.done_ns.begin(), stamps.done_ns.end()));
  EXPECT_EQ(stamps.launches.back().op, "publish");
  EXPECT_THAT(profiler.ReadStamps(1, &stamps), StatusIs(kFailedPrecondition, "no profiled graph"));
  EXPECT_THAT(profiler.Capture({}, std::vector<uint32_t>{1u << 20}),
              StatusIs(absl::StatusCode::kOutOfRange, "size is 1048576"));
}

TEST_P(ProfiledStepTest, RefusalsNameTheGraphAndChangeNothing) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 8);
  const StepDraft draft{.continue_all = true};
  EXPECT_THAT(driver.TryStep(draft, &profiler),
              StatusIs(kFailedPrecondition, "'decode/1' has no profiled graph"));
  StepStamps stamps;
  EXPECT_THAT(profiler.ReadStamps(1, &stamps), StatusIs(kFailedPrecondition, "no profiled graph"));
  ASSERT_OK(profiler.Capture(std::vector<uint32_t>{5}));
  EXPECT_THAT(driver.TryStep(draft, &profiler),
              StatusIs(kFailedPrecondition, "'decode/1' has no profiled graph"));
  EXPECT_THAT(profiler.Capture({}), StatusIs(absl::StatusCode::kInvalidArgument, "no buckets"));
  ASSERT_OK(profiler.Capture(std::vector<uint32_t>{1}));
  const StepDraft mixed{.chunks = {{.row = 1, .tokens = {1, 2}}}};
  EXPECT_THAT(driver.TryStep(mixed, &profiler),
              StatusIs(kFailedPrecondition, "'mixed/16' has no profiled graph"));
  const StepDraft eager{.continue_all = true, .mode = ExecutionMode::kEager};
  EXPECT_THAT(driver.TryStep(eager, &profiler),
              StatusIs(absl::StatusCode::kInvalidArgument, "eagerly"));
  EXPECT_OK(driver.TryStep(draft, &profiler));  // the refused ones changed nothing
}

TEST_P(ProfiledStepTest, WaitsForNoStepInFlight) {
  const TestEngine tiny = MakeEngine();
  EngineProfiler profiler(*tiny.engine);
  ASSERT_OK(profiler.Capture(std::vector<uint32_t>{1}));
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 8);
  const StepDraft draft{.continue_all = true};
  const StepTicket ticket = driver.Submit(draft);
  StepStamps stamps;
  EXPECT_THAT(profiler.Capture(std::vector<uint32_t>{1}),
              StatusIs(kFailedPrecondition, "1 requests in flight"));
  EXPECT_THAT(driver.TryStep(draft, &profiler),
              StatusIs(kFailedPrecondition, "1 requests in flight"));
  EXPECT_THAT(profiler.ReadStamps(1, &stamps),
              StatusIs(kFailedPrecondition, "1 requests in flight"));
  EXPECT_THAT(profiler.ListCapturedNodes("decode/1"),
              StatusIs(kFailedPrecondition, "1 requests in flight"));
  driver.Wait(ticket);
  EXPECT_OK(profiler.ReadStamps(1, &stamps));
  EXPECT_THAT(profiler.Capture(std::vector<uint32_t>{9}),
              StatusIs(absl::StatusCode::kOutOfRange, "size is 9"));
  EXPECT_THAT(profiler.Capture(std::vector<uint32_t>{0}),
              StatusIs(absl::StatusCode::kInvalidArgument, "size is 0"));
}

// As a server has it: submits and waits apart, and asks for the stamps of whatever step that was.
TEST_P(ProfiledStepTest, SubmittedStepsTellTheirStampsAndGraphsCanBeDroppedAtAnyTime) {
  const TestEngine tiny = MakeEngine();
  const std::vector<std::vector<Token>> plain = Generate(*tiny.engine, 4);
  EngineProfiler profiler(*tiny.engine);
  EXPECT_TRUE(profiler.captured().empty());
  EXPECT_OK(profiler.Drop());
  StepStamps stamps;
  EXPECT_THAT(profiler.ReadLastStamps(&stamps),
              StatusIs(kFailedPrecondition, "got no profiled step"));
  EngineDriver driver(*tiny.engine);
  for (uint32_t row = 0; row < 3; ++row)
    driver.Start({.row = row,
                  .prompt = RandomPrompt(row, 5 + row),
                  .sampling = {.temperature = 0.5f * static_cast<float>(row), .seed = row}},
                 5);
  const StepDraft draft{.continue_all = true};
  const auto submit = [&]() -> absl::StatusOr<StepTicket> {
    const DraftView view(draft, driver.session(), driver.sequence());
    auto ticket = profiler.Submit(view.request());
    if (ticket.ok()) driver.CountStep();
    return ticket;
  };
  EXPECT_THAT(submit(), StatusIs(kFailedPrecondition, "'decode/4' has no profiled graph"));
  ASSERT_OK(profiler.Capture(std::vector<uint32_t>{3}, std::vector<uint32_t>{5}));
  const std::vector<ProfiledGraphInfo> graphs = profiler.captured();
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[0].captured.bucket.name, "profiled/4");
  EXPECT_TRUE(graphs[0].decode);
  EXPECT_EQ(graphs[0].captured.num_kernel_nodes, 2 * static_cast<int>(graphs[0].launches.size()));
  EXPECT_EQ(graphs[1].captured.bucket.name, "profiled_mixed/16");
  EXPECT_FALSE(graphs[1].decode);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const StepTicket ticket, submit());
    EXPECT_THAT(submit(), StatusIs(kFailedPrecondition, "1 requests in flight"));
    EXPECT_THAT(profiler.ReadLastStamps(&stamps),
                StatusIs(kFailedPrecondition, "1 requests in flight"));
    EXPECT_EQ(driver.Wait(ticket).report.graph, "profiled/4");
    ASSERT_OK(profiler.ReadLastStamps(&stamps));
    EXPECT_EQ(stamps.done_ns.size(), graphs[0].launches.size());
    EXPECT_TRUE(std::is_sorted(stamps.done_ns.begin(), stamps.done_ns.end()));
  }
  // While one is in flight: it ends as it would.
  ASSERT_OK_AND_ASSIGN(const StepTicket ticket, submit());
  EXPECT_OK(profiler.Drop());
  EXPECT_TRUE(profiler.captured().empty());
  EXPECT_EQ(driver.Wait(ticket).report.graph, "profiled/4");
  EXPECT_THAT(profiler.ReadLastStamps(&stamps), StatusIs(kFailedPrecondition, "no profiled graph"));
  EXPECT_EQ(driver.Step(draft).report.graph, "decode/4");
  for (uint32_t row = 0; row < 3; ++row) EXPECT_EQ(driver.tokens(row), plain[row]);
}

// A step without padding is the same step: rows, tokens, and the bits that a plain one gives.
TEST_P(ProfiledStepTest, UnpaddedGraphsAreOfExactlyTheStepsSize) {
  const TestEngine tiny = MakeEngine();
  const std::vector<std::vector<Token>> plain = Generate(*tiny.engine, 4);
  EngineProfiler profiler(*tiny.engine);
  EngineDriver driver(*tiny.engine);
  for (uint32_t row = 0; row < 3; ++row)
    driver.Start({.row = row,
                  .prompt = RandomPrompt(row, 5 + row),
                  .sampling = {.temperature = 0.5f * static_cast<float>(row), .seed = row}},
                 8);
  const StepDraft draft{.continue_all = true};
  StepResult result;
  const auto step = [&](const StepDraft& of) {
    const DraftView view(of, driver.session(), driver.sequence());
    return profiler.StepUnpadded(view.request(), &result);
  };
  EXPECT_THAT(step(draft), StatusIs(kFailedPrecondition, "3 rows has no graph of that size"));
  ASSERT_OK(profiler.CaptureUnpadded(std::vector<uint32_t>{2, 4}));
  EXPECT_THAT(step(draft), StatusIs(kFailedPrecondition, "3 rows has no graph of that size"));
  ASSERT_OK(profiler.CaptureUnpadded(std::vector<uint32_t>{3}, std::vector<uint32_t>{2}));
  for (size_t i = 1; i < 5; ++i) {
    ASSERT_OK(step(draft));
    driver.CountStep();
    EXPECT_EQ(result.report.graph, "unpadded/3");
    EXPECT_EQ(result.report.padding_rows, 0u);
    ASSERT_EQ(result.rows.size(), 3u);
    for (size_t row = 0; row < 3; ++row) {
      EXPECT_EQ(result.rows[row].token, plain[row][i].id);
      EXPECT_EQ(result.rows[row].logprob, plain[row][i].logprob());
    }
  }
  ASSERT_OK(step({.chunks = {{.row = 1, .tokens = {1, 2}}}}));
  driver.CountStep();
  EXPECT_EQ(result.report.graph, "unpadded_mixed/2");
  EXPECT_EQ(result.report.padding_tokens, 0u);
  const auto captured = profiler.captured_unpadded();
  ASSERT_EQ(captured.size(), 2u);
  EXPECT_TRUE(captured[0].decode);
  EXPECT_EQ(captured[0].captured.bucket.capacity, 3);
  EXPECT_FALSE(captured[1].decode);
  // The two halves of a step apart, and the graphs go with the profiled ones while it is in flight.
  StepTicket ticket = 0;
  {
    const DraftView view(draft, driver.session(), driver.sequence());
    ASSERT_OK_AND_ASSIGN(ticket, profiler.Submit(view.request(), StepForm::kUnpadded));
    driver.CountStep();
  }
  ASSERT_OK(profiler.Drop());
  EXPECT_TRUE(profiler.captured_unpadded().empty());
  EXPECT_EQ(driver.Wait(ticket).report.graph, "unpadded/3");
  EXPECT_THAT(step(draft), StatusIs(kFailedPrecondition, "3 rows has no graph of that size"));
  EXPECT_THAT(profiler.CaptureUnpadded({}),
              StatusIs(absl::StatusCode::kInvalidArgument, "neither"));
  EXPECT_THAT(profiler.CaptureUnpadded(std::vector<uint32_t>{9}),
              StatusIs(absl::StatusCode::kOutOfRange, "size is 9"));
}

// A row may claim a context that nobody has written: what lies there is finite.
TEST_P(ProfiledStepTest, RandomCacheGivesFiniteLogProbabilities) {
  auto options = Options();
  options.diagnostics.random_kv_cache = true;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  StepDraft draft;
  draft.add.push_back({.row = 1, .blocks = driver.AllocateFor(100), .context_length = 99});
  draft.chunks.push_back({.row = 1, .tokens = {5}});
  const StepResult& result = driver.Step(draft);
  EXPECT_EQ(result.rows[0].context_length, 100u);
  EXPECT_TRUE(std::isfinite(result.rows[0].logprob));
  options.diagnostics.poison = true;
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel({}, directory.path()));
  EXPECT_THAT(CreateEngineWithDiagnostics(*tiny.device, {.directory = directory.path()},
                                          options.engine, options.diagnostics),
              StatusIs(absl::StatusCode::kInvalidArgument, "poison and random_kv_cache"));
}

}  // namespace
}  // namespace reprise::engine
