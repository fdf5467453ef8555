// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/plan/plan.h"
#include "kernels/step/fetch.h"
#include "kernels/step/publish.h"
#include "tests/testing/cases/step_cases.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/random_steps.h"
#include "tests/testing/status_codes.h"
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
  size_t index = 0;
  for (const StepCase& c : kernels::kStepCases) {
    if (!IsOfThisUnit(index++)) continue;
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

// What the steps of the test above hold, counted by the oracle alone.
TEST(RandomStepsTest, MeetEveryRuleOfRowsWithFeatures) {
  std::map<kernels::FinishReason, uint32_t> finishes;
  std::map<uint32_t, uint32_t> updates;
  uint32_t stopped = 0, paused = 0, asked = 0, places = 0, changes = 0, sampled_twice = 0,
           of_both = 0, accepted = 0, rejected = 0;
  for (const StepCase& c : kernels::kStepCases) {
    if (c.vocab == 0) continue;
    OracleRows rows(c.max_rows, c.max_blocks_per_row, c.vocab);
    RandomSteps steps(c, 1);
    Random random(2);
    for (uint32_t i = 0; i < c.num_steps; ++i) {
      const OracleStep step = steps.Next(rows);
      const OraclePlan plan =
          PlanStep(step, c.block_size,
                   {.prefill_q_tokens = c.prefill_q_tokens, .windows = {c.window}}, c.tree, rows);
      std::vector<uint32_t> token;
      std::vector<float> logprob;
      RandomSampled(c, random, &token, &logprob);
      for (const kernels::SamplingUpdate& update : step.sampling_updates) ++updates[update.kind];
      std::map<size_t, kernels::SampledToken> sampled;
      const auto results = PublishStep(plan, token, logprob, rows, &sampled);
      for (size_t e = 0; e < results.size(); ++e) {
        const kernels::RowResult& result = results[e];
        const uint32_t taken = result.flags >> kernels::kResultAcceptedShift;
        const kernels::RowEntry& row = plan.entries[e];
        accepted += taken;
        rejected += kernels::NumDrafts(row.flags, row.num_tokens) - taken;
        ++finishes[static_cast<kernels::FinishReason>(result.flags >> kernels::kResultFinishShift &
                                                      0xffu)];
        stopped += (result.flags & kernels::kResultStopped) != 0;
        paused += (result.flags & kernels::kResultPaused) != 0;
      }
      asked += static_cast<uint32_t>(plan.prompt_target.size());
      for (const uint32_t place : plan.logits_place)
        places += place != 0 && place != OraclePlan::kAnyPlace;
      for (const kernels::RowEntry& row : plan.entries)
        changes += (row.flags & kernels::kRowFeatures) != 0;
    }
    for (const uint32_t word : rows.history) {
      if (word == OracleRows::kNever) continue;
      sampled_twice += (word & kernels::kHistoryCount) > 1;
      of_both += word > kernels::kHistoryPrompt;
    }
  }
  EXPECT_GT(finishes[kernels::FinishReason::kStopToken], 20u);
  EXPECT_GT(finishes[kernels::FinishReason::kLength], 20u);
  EXPECT_GT(finishes[kernels::FinishReason::kNoCandidate], 20u);
  EXPECT_EQ(updates.size(), kernels::kSamplingUpdatesPerRow);
  for (const auto& [kind, count] : updates) EXPECT_GT(count, 100u) << "kind " << kind;
  EXPECT_GT(stopped, 100u);
  EXPECT_GT(paused, 100u);
  EXPECT_GT(asked, 200u);
  EXPECT_GT(places, 100u);
  EXPECT_GT(changes, 100u);
  EXPECT_GT(sampled_twice, 100u);
  EXPECT_GT(of_both, 100u);
  EXPECT_GT(accepted, 20u);
  EXPECT_GT(rejected, 100u);
}

TEST_P(StepTest, AReplayWithoutItsStepTouchesNoRowAndPublishesNothing) {
  for (const StepCase& c : kernels::kStepCases) {
    if (c.max_rows > 12 || c.depth == 1) continue;
    StepBench bench(device(), stream(), kernels(), c);
    RandomSteps steps(c, 3);
    Random random(4);
    for (uint32_t i = 0; i < 8 && !HasFailure(); ++i) {
      SCOPED_TRACE(std::string(c.name) + ", step " + std::to_string(i));
      const uint64_t next = bench.count() + 1;
      // An empty entry at first, later one that still holds an older step, and one that holds a
      // step too far ahead.
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
}

// The host fills the whole ring, enqueues a replay for each entry, and only then waits: what the
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

TEST_P(StepTest, TheReplaysOfARequestRepeatTheRowsThatSampledInItsFirst) {
  size_t index = 0;
  for (const StepCase& c : kernels::kStepCases) {
    if (!IsOfThisUnit(index++)) continue;
    StepBench bench(device(), stream(), kernels(), c);
    RandomSteps steps(c, 7);
    Random random(8);
    for (uint32_t i = 0; i < c.num_steps && !HasFailure(); ++i) {
      SCOPED_TRACE(std::string(c.name) + ", request " + std::to_string(i));
      const uint32_t num_replays = 1 + random.Below(5);
      const OracleStep first = steps.Next(bench.rows());
      const OracleStep repeat = steps.Repeat(first);
      bench.Write(bench.count() + 1, first, num_replays, repeat);
      for (uint32_t replay = 0; replay < num_replays; ++replay) {
        SetRandomSampled(c, random, bench);
        bench.ExpectStep(replay == 0 ? first : repeat, replay, num_replays);
        bench.Launch();
        bench.Check();
      }
    }
  }
}

// As the engine enqueues them: a full ring of requests, all replays of each back to back.
TEST_P(StepTest, RequestsOfSeveralReplaysQueuedAheadRunInOrder) {
  for (const StepCase& c : kernels::kStepCases) {
    SCOPED_TRACE(c.name);
    StepBench bench(device(), stream(), kernels(), c);
    RandomSteps steps(c, 9);
    Random random(10);
    SetRandomSampled(c, random, bench);
    for (uint32_t round = 0; round < 3 && !HasFailure(); ++round) {
      for (uint32_t i = 0; i < c.depth; ++i) {
        const uint32_t num_replays = 1 + random.Below(4);
        const OracleStep first = steps.Next(bench.rows());
        const OracleStep repeat = steps.Repeat(first);
        bench.Write(bench.count() + 1, first, num_replays, repeat);
        for (uint32_t replay = 0; replay < num_replays; ++replay) {
          bench.ExpectStep(replay == 0 ? first : repeat, replay, num_replays);
          bench.Launch();
        }
      }
      bench.Check();
    }
  }
}

TEST_P(StepTest, RefusesImpossibleShapes) {
  EXPECT_THAT(Fetch(stream(), kernels(), {}), StatusIs(kInvalid, "depth is 0"));
  EXPECT_THAT(Publish(stream(), kernels(), {}), StatusIs(kInvalid, "depth is 0"));
  kernels::PlanArgs plan;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "block_size is 0"));
  plan.block_size = 16;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "prefill_q_tokens is 0"));
  plan.attention.prefill_q_tokens = 16;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "max_rows is 0"));
  plan.max_rows = 1;
  for (const uint32_t bad : {0u, kernels::kMaxAttentionWindows + 1}) {
    plan.attention.num_windows = bad;
    EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "allowed: 1 to 2"));
  }
  plan.attention.num_windows = 1;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "there is no attention tree"));
  const kernels::AttentionTree tree;
  plan.attention.tree = &tree;  // nothing is launched that would look at it
  plan.attention.num_shares = 65536;
  EXPECT_THAT(Plan(stream(), kernels(), plan), StatusIs(kInvalid, "num_kv_heads is 0"));
  plan.attention.num_kv_heads = 8;
  EXPECT_THAT(Plan(stream(), kernels(), plan),
              StatusIs(kInvalid, "num_shares is 65536; allowed: at most 65535"));
}

}  // namespace
}  // namespace reprise::testing
