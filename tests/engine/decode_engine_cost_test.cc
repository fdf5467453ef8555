// SPDX-License-Identifier: Apache-2.0
// What a step costs: one replay and nothing else on the device's side, no allocation on the host's.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/row_script.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::DeviceCalls;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::InstrumentedDevice;
using ::reprise::testing::InstrumentedEngine;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::NumAllocationsOfThisThread;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;

class StepCostTest : public testing::EngineTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(StepCostTest);

TEST_P(StepCostTest, StepIsOneGraphLaunchAndNothingElse) {
  const InstrumentedEngine tiny = MakeInstrumentedEngine(Options());
  InstrumentedDevice& device = *tiny.instruments;
  const RowScript script = MakeRowScript({.num_steps = 50, .seed = 5});
  DeviceCalls expected = device.calls();
  {
    RowScriptPlayer player(*tiny.engine, script);
    player.Play(2);
    expected.replays += 50;
    EXPECT_EQ(device.calls(), expected);
  }
  EXPECT_EQ(device.calls(), expected);  // nor does the end of a session touch the device

  // The next session to get a block of it has it cleared, by one launch.
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(4);
  ++expected.launches;
  EXPECT_EQ(device.calls(), expected);
  StepDraft step{.add = {{.row = 1, .blocks = blocks}}, .chunks = {{.row = 1, .tokens = {1, 2}}}};
  step.mode = ExecutionMode::kEager;
  driver.Step(step);
  expected.launches += tiny.engine->info().mixed_buckets[0].num_kernel_nodes;
  EXPECT_EQ(device.calls(), expected);
}

// Allocations of one Submit and its Wait, by the thread that calls.
uint64_t AllocationsOf(DecodeEngine& engine, const StepRequest& request, StepResult* result) {
  const uint64_t before = NumAllocationsOfThisThread();
  const auto ticket = engine.Submit(request);
  const absl::Status waited = ticket.ok() ? engine.Wait(*ticket, result) : ticket.status();
  const uint64_t allocations = NumAllocationsOfThisThread() - before;
  EXPECT_OK(waited);
  return allocations;
}

TEST(AllocationCounter, CountsThisThreadsAllocations) {
  const uint64_t before = NumAllocationsOfThisThread();
  auto number = std::make_unique<int>(3);
  std::vector<int> numbers(100, *number);
  struct alignas(128) Wide {
    char bytes[128];
  };
  const auto wide = std::make_unique<Wide>();
  EXPECT_EQ(NumAllocationsOfThisThread() - before, 3u + (wide == nullptr ? 1 : 0));
}

TEST_P(StepCostTest, DecodeStepsAllocateNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "allocations are counted in builds without ThreadSanitizer, which adds its own";
#endif
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  for (uint32_t row = 0; row < 8; ++row)
    driver.Start({.row = row, .prompt = RandomPrompt(row, 5)}, 80);
  const StepDraft all{.continue_all = true}, some{.continue_rows = {5, 2, 7}};
  StepResult result;
  for (int i = 0; i < 70; ++i) {
    const DraftView view(i % 3 == 0 ? some : all, driver.session(), driver.sequence());
    const uint64_t allocations = AllocationsOf(*tiny.engine, view.request(), &result);
    driver.CountStep();
    // The first may still grow buffers: the result's rows, a queue.
    if (i > 1) {
      EXPECT_EQ(allocations, 0u) << "step " << i;
    }
    EXPECT_EQ(result.rows.size(), i % 3 == 0 ? 3u : 8u);
  }
}

// Of a step that takes long, Wait asks the stream now and then whether it is still alive.
TEST(SlowStep, AllocatesNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "allocations are counted in builds without ThreadSanitizer, which adds its own";
#endif
  // A millisecond on average before each of some twenty kernels.
  const TestEngine tiny = testing::MakeTestEngine({.delays = {.max_us = 2000}});
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 5)}, 40);
  const StepDraft all{.continue_all = true};
  StepResult result;
  for (int i = 0; i < 8; ++i) {
    const DraftView view(all, driver.session(), driver.sequence());
    const uint64_t allocations = AllocationsOf(*tiny.engine, view.request(), &result);
    driver.CountStep();
    if (i > 1) {
      EXPECT_EQ(allocations, 0u) << "step " << i;
      EXPECT_GT(result.ledger.total_ns, 10'000'000u) << "no longer than Wait's first look";
    }
  }
}

// Rows come and go, chunks run, tables grow: as long as the request's own arrays are there, nothing
// is allocated either.
TEST_P(StepCostTest, StepsThatChangeRowsAllocateNothingOnceWarm) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "allocations are counted in builds without ThreadSanitizer, which adds its own";
#endif
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> a = driver.AllocateFor(40), b = driver.AllocateFor(40);
  const StepDraft steps[] = {
      {.add = {{.row = 1, .blocks = {a.begin(), a.begin() + 3}}, {.row = 2, .blocks = b}},
       .chunks = {{.row = 1, .tokens = RandomPrompt(1, 9)}, {.row = 2, .tokens = {7}}}},
      {.append = {{.row = 1, .blocks = {a.begin() + 3, a.end()}}},
       .chunks = {{.row = 2, .tokens = RandomPrompt(2, 20)}},
       .continue_all = true},
      {.continue_all = true},
      {.drop = {1, 2}}};
  StepResult result;
  for (int round = 0; round < 4; ++round) {
    for (const StepDraft& step : steps) {
      const DraftView view(step, driver.session(), driver.sequence());
      const uint64_t allocations = AllocationsOf(*tiny.engine, view.request(), &result);
      driver.CountStep();
      if (round > 0) {
        EXPECT_EQ(allocations, 0u) << "step " << &step - steps;
      }
    }
  }
}

}  // namespace
}  // namespace reprise::engine
