// SPDX-License-Identifier: Apache-2.0
#include "kernels/step/step.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/step/cases.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/random_steps.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_bench.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {
namespace {

using kernels::StepCase;

using StepTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE(StepTest);

void SetRandomSampled(const StepCase& c, Random& random, StepBench& bench) {
  std::vector<uint32_t> token;
  std::vector<float> logprob;
  RandomSampled(c, random, &token, &logprob);
  bench.SetSampled(token, logprob);
}

TEST_P(StepTest, EveryStepLeavesExactlyWhatTheRulesSay) {
  for (const StepCase& c : kernels::kStepCases) {
    StepBench bench(device(), stream(), kernels(), c);
    RandomSteps steps(c, 1);
    Random random(2);
    for (uint32_t i = 0; i < c.num_steps && !HasFailure(); ++i) {
      SCOPED_TRACE(std::string(c.name) + ", step " + std::to_string(i));
      const OracleStep step = steps.Next(bench.rows());
      SetRandomSampled(c, random, bench);
      bench.Write(bench.count() + 1, step);
      bench.ExpectStep(step);
      bench.Launch();
      bench.Check();
    }
  }
}

TEST_P(StepTest, AReplayWithoutItsStepTouchesNoRowAndPublishesNothing) {
  const StepCase& c = kernels::kStepCases[1];
  StepBench bench(device(), stream(), kernels(), c);
  RandomSteps steps(c, 3);
  Random random(4);
  for (uint32_t i = 0; i < 8 && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const uint64_t next = bench.count() + 1;
    // An empty slot at first, later one that still holds an older step, and one that holds a step
    // too far ahead.
    bench.ExpectIdle();
    bench.Launch();
    bench.Check();
    const OracleStep step = steps.Next(bench.rows());
    bench.Write(next + c.depth, step);
    bench.Launch();
    bench.Check();

    SetRandomSampled(c, random, bench);
    bench.Write(next, step);
    bench.ExpectStep(step);
    bench.Launch();
    bench.Check();
  }
}

// The host fills the whole ring, enqueues a replay for each slot, and only then waits: what the
// engine does at its full depth.
TEST_P(StepTest, CapturedStepsQueuedAheadRunInOrder) {
  for (const StepCase& c : kernels::kStepCases) {
    SCOPED_TRACE(c.name);
    StepBench bench(device(), stream(), kernels(), c);
    RandomSteps steps(c, 5);
    Random random(6);
    SetRandomSampled(c, random, bench);
    ASSERT_OK(stream().BeginCapture());
    bench.Launch();
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<runtime::CapturedGraph> graph,
                         stream().EndCapture());
    EXPECT_EQ(graph->num_kernel_nodes(), 3);
    EXPECT_EQ(graph->num_other_nodes(), 0);
    for (uint32_t round = 0; round < 3 && !HasFailure(); ++round) {
      for (uint32_t i = 0; i < c.depth; ++i) {
        const OracleStep step = steps.Next(bench.rows());
        bench.Write(bench.count() + 1, step);
        bench.ExpectStep(step);
        ASSERT_OK(graph->Replay(stream()));
      }
      bench.Check();
    }
  }
}

TEST_P(StepTest, RefusesImpossibleShapes) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Fetch(stream(), kernels(), {}), StatusIs(kInvalid, "depth is 0"));
  EXPECT_THAT(Publish(stream(), kernels(), {}), StatusIs(kInvalid, "depth is 0"));
  kernels::PlanArgs plan;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "block_size is 0"));
  plan.block_size = 16;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "prefill_q_tokens is 0"));
  plan.prefill_q_tokens = 16;
  plan.split.max_splits = 0;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "max_splits is 0"));
}

}  // namespace
}  // namespace reprise::testing
