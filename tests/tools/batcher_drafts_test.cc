// SPDX-License-Identifier: Apache-2.0
// Drafts in the batcher.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/batcher_fixture.h"
#include "tools/sched/batcher.h"

namespace reprise::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ServerInfo LimitsOfDrafts() {
  ServerInfo limits = Limits();
  limits.limits.max_draft_tokens = 8;
  limits.limits.max_steps_per_request = 8;
  return limits;
}

// What a model that repeats itself every `period` tokens says.
std::vector<uint32_t> Repeated(const Request& request, uint32_t period) {
  std::vector<uint32_t> all = request.prompt;
  while (all.size() < request.prompt.size() + request.max_new_tokens)
    all.push_back(all[all.size() - period]);
  return {all.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), all.end()};
}

TEST_F(BatcherTest, DraftsBringRowsFurtherInFewerSteps) {
  Start(LimitsOfDrafts(), {.draft = {.length = 2, .max_tokens = 4}});
  server_->period = 3;
  const std::vector<Request*> added = {Add(5, 30), Add(7, 25)};
  size_t num_steps = 0, num_tokens = 0;
  while (Step()) {
    ++num_steps;
    num_tokens += progress_.advanced.size();
  }
  EXPECT_THAT(server_->violations, IsEmpty());
  for (const Request* request : added) EXPECT_EQ(request->tokens, Repeated(*request, 3));
  EXPECT_EQ(num_tokens, 55u);
  EXPECT_LT(num_steps, 15u);
  EXPECT_GT(server_->num_accepted, 30u);
}

// Blocks for 24 tokens: rows starve and are preempted while they draft, mostly wrongly.
TEST_F(BatcherTest, WrongDraftsChangeNoToken) {
  for (const uint32_t num_blocks : {101u, 7u}) {
    ServerInfo limits = LimitsOfDrafts();
    limits.num_blocks = num_blocks;
    Start(limits, {.draft = {.length = 1, .max_tokens = 5}});
    requests_.clear();
    for (uint32_t i = 0; i < 4; ++i) Add(3 + 2 * i, 12);
    while (Step()) {
    }
    EXPECT_GT(server_->num_drafts, 5u);
    ExpectAllRight();
  }
}

// A guess begins with what the step in flight samples.
TEST_F(BatcherTest, PlansNothingBehindAStepInFlightWhereRowsDraft) {
  Start(LimitsOfDrafts(), {.draft = {.length = 2, .max_tokens = 4}});
  Add(5, 8);
  ASSERT_TRUE(Submit());
  EXPECT_FALSE(Submit());
  Receive();
  EXPECT_TRUE(Submit());
  Receive();
  while (Step()) {
  }
  ExpectAllRight();
}

TEST_F(BatcherTest, AStopAmongAcceptedDraftsEndsTheRequestThere) {
  Start(LimitsOfDrafts(), {.draft = {.length = 3, .max_tokens = 8}});
  server_->period = 4;
  Request* request = Add(8, 30);
  const std::vector<uint32_t> all = Repeated(*request, 4);
  request->stop_sequences = {{all.begin() + 3, all.begin() + 9}};
  while (Step()) {
  }
  EXPECT_THAT(server_->violations, IsEmpty());
  EXPECT_EQ(request->finish, FinishReason::kStopToken);
  EXPECT_EQ(request->tokens, std::vector<uint32_t>(all.begin(), all.begin() + 9));
  EXPECT_GT(server_->num_accepted, 5u);  // more than the request took
}

TEST(BatcherOptions, DraftsThatTheServerDoesNotTakeAreAnError) {
  const BatcherOptions drafts{.draft = {.length = 3, .max_tokens = 4}};
  EXPECT_TRUE(CheckBatcherOptions(LimitsOfDrafts(), drafts).ok());
  EXPECT_THAT(std::string(CheckBatcherOptions(Limits(), drafts).message()),
              HasSubstr("draft: got ngram:3,4, and the server takes no drafts"));
  const BatcherOptions several{.steps_per_request = 2, .draft = drafts.draft};
  EXPECT_THAT(std::string(CheckBatcherOptions(LimitsOfDrafts(), several).message()),
              HasSubstr("steps-per-request: got 2 with --draft, allowed with it: 1"));
}

}  // namespace
}  // namespace reprise::tools
