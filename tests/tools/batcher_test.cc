// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/batcher.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/batcher_fixture.h"

namespace reprise::tools {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(BatcherTest, CutsALongPromptIntoChunksAndSamplesAfterTheLast) {
  Start(Limits(), {.step_tokens = 6});
  Request* request = Add(/*prompt_tokens=*/14, /*max_new_tokens=*/1);
  while (Step()) {
  }
  ASSERT_THAT(server_->steps, SizeIs(4));
  EXPECT_THAT(server_->steps.back().drop, ElementsAre(1));
  server_->steps.pop_back();
  std::vector<uint32_t> scheduled;
  for (const PlannedStep& step : server_->steps) {
    ASSERT_THAT(step.chunks, SizeIs(1));
    scheduled.insert(scheduled.end(), step.chunks[0].tokens.begin(), step.chunks[0].tokens.end());
  }
  EXPECT_EQ(scheduled, request->prompt);
  EXPECT_FALSE(server_->steps[0].chunks[0].sample);
  EXPECT_FALSE(server_->steps[1].chunks[0].sample);
  EXPECT_TRUE(server_->steps[2].chunks[0].sample);
  ExpectAllRight();
}

TEST_F(BatcherTest, PromptsAndDecodesShareStepsWithinTheBudget) {
  Start(Limits(), {.step_tokens = 8});
  Add(4, 12);
  Step();
  Add(14, 4);
  Add(9, 4);
  bool shared = false;
  while (Submit()) {
    size_t tokens = step_.continue_rows.size();
    if (step_.continue_all) tokens = 1;
    for (const auto& chunk : step_.chunks) tokens += chunk.tokens.size();
    if (!step_.chunks.empty()) {
      EXPECT_LE(tokens, 8u);
    }
    shared |= !step_.chunks.empty() && (step_.continue_all || !step_.continue_rows.empty());
    Receive();
  }
  EXPECT_TRUE(shared);
  ExpectAllRight();
}

TEST_F(BatcherTest, SaysContinueAllOnlyWhenAllRowsContinue) {
  Start(Limits());
  Add(3, 2);
  Add(3, 4);
  Step();  // both prompts
  Submit();
  EXPECT_TRUE(step_.continue_all);
  EXPECT_THAT(step_.continue_rows, IsEmpty());
  // The first row has reached its length but is still resident: its results are not read yet.
  Submit();
  EXPECT_FALSE(step_.continue_all);
  EXPECT_THAT(step_.continue_rows, ElementsAre(2));
  Receive();
  Receive();
  Submit();
  EXPECT_THAT(step_.drop, ElementsAre(1));
  EXPECT_TRUE(step_.continue_all);
  Receive();
  EXPECT_TRUE(Submit());  // nothing runs any more: the last drop goes alone
  EXPECT_THAT(step_.drop, ElementsAre(2));
  Receive();
  EXPECT_FALSE(Submit());
  EXPECT_TRUE(batcher_->idle());
  ExpectAllRight();
}

TEST_F(BatcherTest, PlansNoTokenBeyondALengthThatIsKnown) {
  Start(Limits());
  Add(3, 3);
  EXPECT_TRUE(Submit());
  EXPECT_TRUE(Submit());
  Receive();
  EXPECT_TRUE(Submit());
  Receive();
  EXPECT_FALSE(Submit());
  Receive();
  ExpectAllRight();
}

TEST_F(BatcherTest, DiscardsTheTokenThatWasOnItsWayWhenARowStopped) {
  Start(Limits());
  Request* request = Add(3, 10);
  const std::vector<uint32_t> all = ExpectedTokens(*request, 50);
  request->stop_sequences = {{all[1]}};
  Submit();
  Submit();
  Receive();
  Submit();
  Receive();  // the stop token
  EXPECT_EQ(request->finish, FinishReason::kStopToken);
  Receive();  // one token too many
  EXPECT_THAT(request->tokens, SizeIs(2));
  EXPECT_TRUE(Step());  // the drop
  EXPECT_FALSE(Submit());
  EXPECT_TRUE(batcher_->idle());
  ExpectAllRight();
}

TEST_F(BatcherTest, StopsAfterASequenceOfTokens) {
  Start(Limits());
  Request* request = Add(3, 10);
  const std::vector<uint32_t> all = ExpectedTokens(*request, 50);
  request->stop_sequences = {{all[2], all[3]}};
  while (Step()) {
  }
  EXPECT_THAT(request->tokens, SizeIs(4));
  ExpectAllRight();
}

TEST_F(BatcherTest, ARowTakesItsSamplingAlong) {
  Start(Limits());
  Request* penalised = Add(3, 4);
  penalised->sampling.numbers.top_k = 9;
  penalised->sampling.numbers.presence_penalty = 0.5f;
  Add(5, 4);
  Step();
  const std::vector<engine::StepDraft::Add>& add = server_->steps[0].add;
  ASSERT_THAT(add, SizeIs(2));
  EXPECT_EQ(add[0].sampling.top_k, 9u);
  EXPECT_EQ(add[0].sampling.presence_penalty, 0.5f);
  EXPECT_EQ(add[0].prompt_length, 3u);
  EXPECT_EQ(add[1].sampling.top_k, 0u);
  EXPECT_EQ(add[1].prompt_length, 0u) << "nobody asks without a penalty";
}

TEST_F(BatcherTest, EndsAfterATokenAtWhichTheRowStops) {
  Start(Limits());
  Request* request = Add(3, 10);
  const std::vector<uint32_t> all = ExpectedTokens(*request, 50);
  request->sampling.stop_tokens = {all[2]};
  while (Step()) {
  }
  EXPECT_EQ(request->finish, FinishReason::kStopToken);
  EXPECT_EQ(request->tokens.back(), all[2]);
  EXPECT_LE(request->tokens.size(), 3u);
}

// Prompts of Add(n) are 7 * id, 7 * id + 1, ...: the fake model finds no candidate behind the
// second request's.
TEST_F(BatcherTest, ARowWithoutACandidateEndsItsRequestAsAnErrorAndNoOther) {
  for (const uint32_t depth : {1u, 2u}) {
    requests_.clear();
    Start(Limits());
    server_->dead_end = 16;
    Request* first = Add(3, 6);
    Request* failing = Add(3, 6);
    Request* last = Add(3, 6);
    for (const Request* other : {first, last})
      ASSERT_THAT(ExpectedTokens(*other, 50), Not(Contains(16u)));
    ASSERT_EQ(failing->prompt.back(), 16u);
    std::vector<Request*> ended;
    uint32_t steps = 0;
    while (!batcher_->idle()) {
      ASSERT_LT(++steps, 100u) << "a request that never ends";
      while (batcher_->num_in_flight() < depth && Submit()) {
      }
      if (batcher_->num_in_flight() == 0) break;
      Receive();
      ended.insert(ended.end(), progress_.ended.begin(), progress_.ended.end());
      EXPECT_THAT(progress_.advanced, Not(Contains(failing)));
    }
    EXPECT_THAT(ended, ElementsAre(failing, first, last));
    EXPECT_EQ(failing->finish, FinishReason::kNoCandidate);
    EXPECT_THAT(failing->tokens, IsEmpty());
    EXPECT_THAT(failing->error, HasSubstr("after 3 prompt and 0 new tokens"));
    for (const Request* other : {first, last}) {
      EXPECT_EQ(other->tokens, ExpectedTokens(*other, 50));
      EXPECT_EQ(other->finish, FinishReason::kLength);
    }
    EXPECT_THAT(server_->violations, IsEmpty());
    EXPECT_EQ(server_->num_rows(), 0u);
    EXPECT_THAT(std::string(FailureOf(requests_).message()),
                HasSubstr("1 of 3 requests failed; request 2: no token can be sampled"));
  }
}

TEST_F(BatcherTest, TokensBeforeARowRunsOutOfCandidatesAreKept) {
  Start(Limits());
  Request* request = Add(3, 9);
  const std::vector<uint32_t> all = ExpectedTokens(*request, 50);
  server_->dead_end = all[2];
  uint32_t steps = 0;
  while (Step()) ASSERT_LT(++steps, 100u);
  EXPECT_TRUE(request->failed());
  EXPECT_THAT(request->tokens, ElementsAre(all[0], all[1], all[2]));
}

TEST_F(BatcherTest, EndsARequestWhoseRowStoppedForAReasonOfTheServers) {
  for (const FinishReason finish : {FinishReason::kStopToken, FinishReason::kLength}) {
    requests_.clear();
    Start(Limits());
    Request* request = Add(3, 9);
    Submit();
    StepOutcome outcome;
    outcome.sequence = 1;
    outcome.rows = {{.row = 1, .sampled = true, .token = 4, .context_length = 3, .finish = finish}};
    ASSERT_TRUE(batcher_->Apply(outcome, &progress_).ok());
    EXPECT_EQ(request->finish, finish);
    EXPECT_THAT(request->tokens, ElementsAre(4u));
    EXPECT_THAT(progress_.ended, ElementsAre(request));
  }
}

TEST_F(BatcherTest, RefusesARowThatStoppedWithoutAReason) {
  Start(Limits());
  Add(3, 4);
  Submit();
  StepOutcome outcome;
  outcome.sequence = 1;
  outcome.rows = {{.row = 1, .status = engine::RowStatus::kStopped, .context_length = 3}};
  EXPECT_EQ(batcher_->Apply(outcome, &progress_).code(), absl::StatusCode::kInternal);
}

TEST(FailureOf, NamesTheFirstFewRequests) {
  std::vector<Request> requests(9);
  EXPECT_TRUE(FailureOf(requests).ok());
  for (uint32_t i = 0; i < 9; ++i) {
    requests[i].id = i + 1;
    requests[i].finish = i == 3 ? FinishReason::kLength : FinishReason::kNoCandidate;
    requests[i].error = "why";
  }
  const std::string message(FailureOf(requests).message());
  EXPECT_THAT(message, HasSubstr("8 of 9 requests failed; request 1: why; request 2: why;"));
  EXPECT_THAT(message, Not(HasSubstr("request 4:")));
  EXPECT_THAT(message, EndsWith("request 5: why; and 4 more"));
}

TEST_F(BatcherTest, KeepsToTheServersRows) {
  Start(Limits());
  for (int i = 0; i < 9; ++i) Add(2, 3);
  size_t most = 0;
  while (Submit()) {
    most = std::max(most, server_->num_rows());
    Receive();
  }
  EXPECT_EQ(most, 4u);
  ExpectAllRight();
}

TEST_F(BatcherTest, GivesEveryBlockBackInTheEnd) {
  Start(Limits());
  for (int i = 0; i < 6; ++i) Add(5, 20);
  while (Step()) {
  }
  ExpectAllRight();
  ASSERT_TRUE(blocks_->ReturnAll().ok());
  EXPECT_EQ(server_->num_held_blocks(), 0u);
  EXPECT_EQ(server_->num_rows(), 0u);
}

TEST_F(BatcherTest, PreemptsTheYoungestRowWhenARowCannotGrow) {
  ServerInfo limits = Limits();
  limits.num_blocks = 7;  // six usable: two rows of 16 tokens need eight
  Start(limits);
  Request* old_request = Add(6, 11);
  Request* young_request = Add(6, 11);
  while (Step()) {
  }
  EXPECT_EQ(old_request->num_preemptions, 0u);
  EXPECT_GE(young_request->num_preemptions, 1u);
  ExpectAllRight();
}

TEST_F(BatcherTest, AdmitsNoOneWhileARowStarves) {
  ServerInfo limits = Limits();
  limits.num_blocks = 5;
  Start(limits);
  Add(7, 9);
  Add(1, 1);
  Add(7, 9);
  while (Step()) {
  }
  ExpectAllRight();
}

TEST_F(BatcherTest, PrefillFirstHoldsDecodesUntilAllResidentPromptsAreDone) {
  Start(Limits(), {.step_tokens = 8, .prefill_first = true});
  for (int i = 0; i < 3; ++i) Add(10, 5);
  bool decoding = false;
  while (Submit()) {
    if (step_.chunks.empty()) decoding = true;
    EXPECT_TRUE(step_.chunks.empty() || !decoding);
    EXPECT_TRUE(step_.chunks.empty() || (step_.continue_rows.empty() && !step_.continue_all));
    Receive();
  }
  ExpectAllRight();
}

TEST_F(BatcherTest, UndoPutsEverythingBack) {
  Start(Limits());
  Add(3, 4);
  Step();
  Add(5, 4);
  Add(5, 4);
  server_->rows_of_others = 2;  // room for one more
  Submit();
  Submit();
  EXPECT_EQ(server_->num_refused, 2u);
  StepOutcome outcome;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(server_->Receive(&outcome).ok());
  batcher_->Undo();
  batcher_->LimitRows();
  EXPECT_EQ(batcher_->num_resident(), 1u);
  EXPECT_EQ(batcher_->num_waiting(), 2u);
  Step();
  EXPECT_THAT(step_.add, IsEmpty());
  server_->rows_of_others = 0;
  batcher_->LiftRowLimit();
  while (Step()) {
  }
  ExpectAllRight();
}

TEST_F(BatcherTest, RefusesRequestsThatCanNeverRun) {
  ServerInfo limits = Limits();
  limits.num_blocks = 9;  // 32 tokens
  Start(limits);
  const auto refused = [this](std::vector<uint32_t> prompt, uint32_t max_new_tokens) {
    Request request;
    request.id = 1;
    request.prompt_index = 6;
    request.prompt = std::move(prompt);
    request.max_new_tokens = max_new_tokens;
    const absl::Status status = batcher_->Add(&request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({}, 1), HasSubstr("tokens of prompt 7: got 0, allowed: at least 1"));
  EXPECT_THAT(refused({50}, 1), HasSubstr("token of prompt 7: got 50, allowed: below 50"));
  EXPECT_THAT(refused({1}, 0), HasSubstr("max_new_tokens"));
  EXPECT_THAT(refused({1}, 65), HasSubstr("allowed: 64 together"));
  EXPECT_THAT(refused({1}, 33),
              HasSubstr("got 9 for 33 tokens of context, allowed: 8, the whole pool"));
  limits.max_session_blocks = 3;
  Start(limits);
  EXPECT_THAT(refused({1}, 13),
              HasSubstr("got 4 for 13 tokens of context, allowed: 3, which a session may hold"));
  EXPECT_TRUE(batcher_->idle());
}

TEST_F(BatcherTest, RefusesResultsThatNobodyAskedFor) {
  Start(Limits());
  Add(3, 4);
  Submit();
  StepOutcome outcome;
  outcome.sequence = 2;
  EXPECT_EQ(batcher_->Apply(outcome, &progress_).code(), absl::StatusCode::kInternal);
  outcome.sequence = 1;
  outcome.rows = {{.row = 77, .sampled = true, .token = 1, .context_length = 3}};
  EXPECT_EQ(batcher_->Apply(outcome, &progress_).code(), absl::StatusCode::kInternal);
}

// ---- priorities and swap space ----

TEST_F(BatcherTest, HigherPrioritiesAreAdmittedFirst) {
  ServerInfo limits = Limits();
  limits.limits.max_rows = 1;
  Start(limits);
  for (const int32_t priority : {0, 1, 1}) Add(3, 2, priority);
  std::vector<uint32_t> ended;
  while (Step()) {
    for (const Request* request : progress_.ended) ended.push_back(request->id);
  }
  EXPECT_THAT(ended, ElementsAre(2, 3, 1));
  ExpectAllRight();
}

TEST_F(BatcherTest, ARequestThatFindsNoRoomPreemptsALowerPriorityAlone) {
  ServerInfo limits = Limits();
  limits.num_blocks = 4;  // 12 tokens
  Start(limits);
  Request* low = Add(7, 5);
  Step();
  Request* same = Add(7, 5);
  Step();
  EXPECT_EQ(same->plan.row, 0u);
  EXPECT_EQ(low->num_preemptions, 0u);
  Add(5, 4, /*priority=*/1);
  std::vector<uint32_t> ended;
  while (Step()) {
    for (const Request* request : progress_.ended) ended.push_back(request->id);
  }
  EXPECT_THAT(ended, ElementsAre(3, 1, 2));
  EXPECT_EQ(low->num_preemptions, 1u);
  ExpectAllRight();
}

TEST_F(BatcherTest, ASwappedRowGoesOnWithoutComputingAnythingAgain) {
  ServerInfo limits = Limits();
  limits.num_blocks = 6;  // 20 tokens
  limits.num_swap_blocks = 8;
  Start(limits, {.preemption = Preemption::kSwap});
  server_->swap_room = 8;
  Request* first = Add(6, 10);
  Request* second = Add(6, 10);
  while (Step()) {
  }
  EXPECT_EQ(first->num_preemptions, 0u);
  EXPECT_GT(second->num_preemptions, 0u);
  EXPECT_EQ(second->num_swaps, second->num_preemptions);
  // The prompts, and after each swap the token that was sampled last.
  EXPECT_EQ(server_->num_prompt_tokens, 12 + second->num_swaps);
  EXPECT_EQ(server_->num_swapped_blocks(), 0u);
  ExpectAllRight();
}

TEST_F(BatcherTest, ARowIsSwappedOutAfterTheStepThatDropsIt) {
  ServerInfo limits = Limits();
  limits.num_blocks = 6;
  limits.num_swap_blocks = 8;
  Start(limits, {.preemption = Preemption::kSwap});
  server_->swap_room = 8;
  Add(6, 10);
  Add(6, 10);
  bool dropped = false;
  while (!dropped && Submit()) {
    dropped = !step_.drop.empty();
    EXPECT_EQ(server_->num_swapped_out, 0u);
    Receive();
  }
  EXPECT_TRUE(dropped);
  EXPECT_GT(server_->num_swapped_out, 0u);
}

// Of a model whose rows carry state beside their KV.
TEST_F(BatcherTest, ASwappedRowTakesItsStateAlong) {
  ServerInfo limits = Limits();
  limits.num_blocks = 6;
  limits.num_swap_blocks = 8;
  limits.num_swap_states = 1;
  limits.limits.row_state_bytes = 64;
  Start(limits, {.preemption = Preemption::kSwap});
  server_->swap_room = 8;
  server_->state_room = 1;
  Add(6, 10);
  Request* second = Add(6, 10);
  while (Step()) {
  }
  EXPECT_GT(second->num_preemptions, 0u);
  EXPECT_EQ(second->num_swaps, second->num_preemptions);
  EXPECT_EQ(server_->num_prompt_tokens, 12 + second->num_swaps);
  EXPECT_EQ(server_->num_swapped_states(), 0u);
  ExpectAllRight();
}

TEST_F(BatcherTest, WithoutRoomForItsStateARowIsComputedAgain) {
  ServerInfo limits = Limits();
  limits.num_blocks = 6;
  limits.num_swap_blocks = 8;
  limits.limits.row_state_bytes = 64;
  Start(limits, {.preemption = Preemption::kSwap});
  server_->swap_room = 8;
  Add(6, 10);
  Request* second = Add(6, 10);
  while (Step()) {
  }
  EXPECT_GT(second->num_preemptions, 0u);
  EXPECT_EQ(second->num_swaps, 0u);
  EXPECT_EQ(server_->num_swapped_out, 0u);
  ExpectAllRight();
}

TEST_F(BatcherTest, StateWhoseKvIsLostIsForgotten) {
  for (const bool out : {true, false}) {
    ServerInfo limits = Limits();
    limits.num_blocks = 6;
    limits.num_swap_blocks = 8;
    limits.limits.row_state_bytes = 64;
    Start(limits, {.preemption = Preemption::kSwap});
    server_->swap_room = 8;
    server_->state_room = 2;
    (out ? server_->lose_swap_outs : server_->lose_swap_ins) = 1;
    Add(6, 10);
    Request* second = Add(6, 10);
    while (Step()) {
    }
    EXPECT_GT(second->num_preemptions, second->num_swaps) << out;
    EXPECT_EQ(server_->num_swapped_states(), 0u) << out;
  }
}

TEST(BatcherOptions, SwappingNeedsSwapSpace) {
  ServerInfo server = Limits();
  server.limits.max_steps_per_request = 1;
  const absl::Status status = CheckBatcherOptions(server, {.preemption = Preemption::kSwap});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--swap-space"));
  server.num_swap_blocks = 1;
  EXPECT_TRUE(CheckBatcherOptions(server, {.preemption = Preemption::kSwap}).ok());
}

}  // namespace
}  // namespace reprise::tools
