// SPDX-License-Identifier: Apache-2.0
// Several steps per request in the batcher.
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/batcher_fixture.h"
#include "tools/sched/batcher.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ServerInfo LimitsOfSeveralSteps() {
  ServerInfo limits = Limits();
  limits.limits.max_steps_per_request = 8;
  return limits;
}

TEST_F(BatcherTest, RunsSeveralStepsWhereThereIsNoPromptToRun) {
  Start(LimitsOfSeveralSteps(), {.step_tokens = 6, .steps_per_request = 5});
  Add(4, 12);
  Add(9, 8);
  while (Step()) {
  }
  bool several = false;
  for (const PlannedStep& step : server_->steps) {
    EXPECT_TRUE(step.chunks.empty() || step.num_steps == 1);
    EXPECT_LE(step.num_steps, 5u);
    several |= step.num_steps == 5;
  }
  EXPECT_TRUE(several);
  ExpectAllRight();
}

TEST_F(BatcherTest, RunsNoMoreStepsThanRowsHaveTokensLeft) {
  Start(LimitsOfSeveralSteps(), {.steps_per_request = 8});
  Add(3, 4);
  Step();
  ASSERT_TRUE(Step());
  EXPECT_EQ(step_.num_steps, 3u);
  EXPECT_THAT(progress_.advanced, SizeIs(3));
  EXPECT_THAT(progress_.ended, SizeIs(1));
  while (Step()) {
  }
  ExpectAllRight();
}

TEST(BatcherOptions, MoreStepsThanTheServerTakesAreAnError) {
  EXPECT_TRUE(CheckBatcherOptions(LimitsOfSeveralSteps(), {.steps_per_request = 8}).ok());
  const absl::Status more = CheckBatcherOptions(LimitsOfSeveralSteps(), {.steps_per_request = 9});
  EXPECT_EQ(more.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(more.message(),
            "steps-per-request: got 9, allowed: 1 to 8, the server's --max-steps-per-request");
  EXPECT_FALSE(CheckBatcherOptions(LimitsOfSeveralSteps(), {.steps_per_request = 0}).ok());
}

// The blocks of 8 tokens and no more.
TEST_F(BatcherTest, ARowPausesWhereTheBlocksEndAndPreemptsNobodyForLaterSteps) {
  ServerInfo limits = LimitsOfSeveralSteps();
  limits.num_blocks = 4;
  Start(limits, {.steps_per_request = 8});
  Request* first = Add(3, 6);   // 8 tokens in the end
  Request* second = Add(3, 2);  // 4
  Step();
  ASSERT_TRUE(Step());
  EXPECT_GT(step_.num_steps, 1u);
  while (Step()) {
  }
  EXPECT_EQ(first->num_preemptions, 0u);
  EXPECT_EQ(second->num_preemptions, 0u);
  ExpectAllRight();
}

// The server runs a row to its length and not beyond, however long the others are.
TEST_F(BatcherTest, NoRowRunsBeyondItsLength) {
  Start(LimitsOfSeveralSteps(), {.steps_per_request = 8});
  const std::vector<Request*> added = {Add(3, 3), Add(4, 20), Add(5, 9), Add(2, 1)};
  size_t num_ended = 0;
  while (Step()) num_ended += progress_.ended.size();
  EXPECT_EQ(num_ended, added.size());
  EXPECT_EQ(server_->num_sampled, 3u + 20u + 9u + 1u);
  for (const Request* request : added) EXPECT_EQ(request->finish, FinishReason::kLength);
  ASSERT_THAT(server_->steps[0].add, SizeIs(4));
  EXPECT_EQ(server_->steps[0].add[1].sampling.max_new_tokens, 20u);
  ExpectAllRight();
}

// Two in flight: the second request has been planned before the length of a row is seen to be
// reached in the first.
TEST_F(BatcherTest, NoRowRunsBeyondItsLengthWithTwoInFlight) {
  Start(LimitsOfSeveralSteps(), {.steps_per_request = 4});
  Add(3, 6);
  Add(4, 20);
  Step();
  bool more = true;
  while (more || batcher_->num_in_flight() > 0) {
    more = Submit();
    const size_t num_in_flight = batcher_->num_in_flight();
    if (num_in_flight == 2 || (!more && num_in_flight == 1)) Receive();
  }
  EXPECT_EQ(server_->num_sampled, 26u);
  ExpectAllRight();
}

// What is left, not the whole.
TEST_F(BatcherTest, APreemptedRowComesBackWithWhatIsLeftOfItsLength) {
  ServerInfo limits = LimitsOfSeveralSteps();
  limits.num_blocks = 6;  // 20 tokens
  Start(limits, {.steps_per_request = 4});
  Request* first = Add(3, 14);
  Request* second = Add(3, 12);
  while (Step()) {
  }
  EXPECT_EQ(first->num_preemptions, 0u);
  EXPECT_GT(second->num_preemptions, 0u);
  bool came_back = false;
  for (const PlannedStep& step : server_->steps) {
    for (size_t i = 0; i < step.add.size(); ++i) {
      const uint32_t input = static_cast<uint32_t>(step.chunks.at(i).tokens.size());
      if (step.add[i].row <= 2) continue;
      came_back = true;
      EXPECT_EQ(step.add[i].sampling.max_new_tokens, 12 - (input - 3));
    }
  }
  EXPECT_TRUE(came_back);
  EXPECT_EQ(server_->num_sampled, 26u);
  ExpectAllRight();
}

// The tokens behind the one that ended it are thrown away.
TEST_F(BatcherTest, ARequestThatEndsMidwayTakesNoTokenBehindItsEnd) {
  Start(LimitsOfSeveralSteps(), {.steps_per_request = 8});
  Request* request = Add(5, 20);
  const std::vector<uint32_t> all = ExpectedTokens(*request, 50);
  request->stop_sequences = {{all[2], all[3]}};
  while (Step()) {
  }
  EXPECT_THAT(request->tokens, ElementsAre(all[0], all[1], all[2], all[3]));
  EXPECT_EQ(request->finish, FinishReason::kStopToken);
  ExpectAllRight();
}

TEST_F(BatcherTest, RefusesAPauseOfARowThatHasBlocks) {
  Start(LimitsOfSeveralSteps(), {.steps_per_request = 4});
  Add(5, 18);
  Step();
  ASSERT_TRUE(Submit());
  StepOutcome outcome;
  ASSERT_TRUE(server_->Receive(&outcome).ok());
  ASSERT_THAT(outcome.rows, SizeIs(4));
  outcome.rows[3].status = engine::RowStatus::kPaused;
  outcome.rows[3].sampled = false;
  const absl::Status applied = batcher_->Apply(outcome, &progress_);
  EXPECT_EQ(applied.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(applied.message(), HasSubstr("request 1: got 4 tokens by step 2, expected 5"));
}

TEST_F(BatcherTest, UndoPutsRequestsOfSeveralStepsBack) {
  Start(LimitsOfSeveralSteps(), {.steps_per_request = 4});
  Add(5, 18);
  Step();
  ASSERT_TRUE(Submit());
  Receive();
  // Two that the server never sees.
  PlannedStep lost;
  for (int i = 0; i < 2; ++i) {
    const auto planned = batcher_->Plan(&lost);
    ASSERT_TRUE(planned.ok() && *planned);
    EXPECT_EQ(lost.num_steps, 4u);
  }
  batcher_->Undo();
  while (Step()) {
  }
  ExpectAllRight();
}

}  // namespace
}  // namespace reprise::tools
