// SPDX-License-Identifier: Apache-2.0
// Repeating a recorded session: order, block ids, and what is left out.
#include "tools/replay/recorded_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::SessionRecord Allocated(uint64_t time_ns, const std::vector<uint32_t>& blocks) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_allocate()->set_count(static_cast<uint32_t>(blocks.size()));
  record.mutable_allocated()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return record;
}

v1::SessionRecord Freed(uint64_t time_ns, uint32_t block) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_free()->add_blocks(block);
  return record;
}

v1::SessionRecord Step(uint64_t time_ns, uint64_t sequence,
                       const std::vector<uint32_t>& blocks = {}) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_step()->set_sequence(sequence);
  if (!blocks.empty()) {
    record.mutable_step()->add_add()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    record.mutable_step()->add_append()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  }
  record.mutable_answer()->set_sequence(sequence);
  return record;
}

// Notes what it is asked; its blocks are 100, 101 and so on.
class NotingTarget final : public ReplayTarget {
 public:
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override {
    calls.push_back(absl::StrCat("allocate ", count));
    if (fails) return absl::DeadlineExceededError("no answer");
    std::vector<uint32_t> blocks;
    for (uint32_t i = 0; i < count; ++i) blocks.push_back(next_block_++);
    return blocks;
  }
  absl::Status Free(const std::vector<uint32_t>& blocks) override {
    calls.push_back(absl::StrCat("free ", absl::StrJoin(blocks, ",")));
    return absl::OkStatus();
  }
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override {
    std::string call = absl::StrCat("step ", step.sequence());
    for (const v1::AddRow& row : step.add())
      absl::StrAppend(&call, " add ", absl::StrJoin(row.blocks(), ","));
    for (const v1::AppendBlocks& row : step.append())
      absl::StrAppend(&call, " append ", absl::StrJoin(row.blocks(), ","));
    calls.push_back(call);
    if (step.sequence() == lose) return absl::UnavailableError("gone");
    if (step.sequence() == refuse) {
      answer->mutable_error()->set_message("no");
    } else {
      answer->mutable_step()->set_sequence(step.sequence());
    }
    return absl::OkStatus();
  }

  std::vector<std::string> calls;
  uint64_t refuse = 0;
  uint64_t lose = 0;   // at this step the session is gone
  bool fails = false;  // to allocate

 private:
  uint32_t next_block_ = 100;
};

absl::StatusOr<ReplayResult> Replay(const std::vector<v1::SessionRecord>& calls,
                                    NotingTarget* target) {
  service::Recording recording;
  recording.calls = calls;
  const std::atomic<bool> interrupted = false;
  return ReplaySession(RecordedSession(recording), target, interrupted);
}

TEST(ReplaySession, ABlockOfSomebodyElseIsRefusedAloneAgain) {
  NotingTarget target;
  v1::SessionRecord isolated = Step(2, 1, {7, 8});
  isolated.mutable_step()->set_isolate_bad_rows(true);
  const auto result = Replay({Allocated(1, {7}), isolated}, &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls,
              ElementsAre("allocate 1", "step 1 add 100,4294967295 append 100,4294967295"));
}

// The target gives blocks 100, 101 and so on; the recorded 7 was given back before somebody else
// had it.
TEST(ReplaySession, ABlockThatWasGivenBackIsNobodys) {
  NotingTarget target;
  v1::SessionRecord isolated = Step(4, 1, {7, 8});
  isolated.mutable_step()->set_isolate_bad_rows(true);
  const auto result =
      Replay({Allocated(1, {7}), Freed(2, 7), Allocated(3, {8}), isolated}, &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls, ElementsAre("allocate 1", "free 100", "allocate 1",
                                        "step 1 add 4294967295,101 append 4294967295,101"));
}

TEST(ReplaySession, RepeatsCallsInTheOrderInWhichTheyTookEffect) {
  NotingTarget target;
  // The file has the steps behind what was done while they were on their way.
  const auto result =
      Replay({Allocated(1, {7}), Allocated(5, {9}), Step(2, 1), Step(4, 2), Step(6, 3)}, &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 3u);
  EXPECT_THAT(target.calls, ElementsAre("allocate 1", "step 1", "step 2", "allocate 1", "step 3"));
}

TEST(ReplaySession, NamesBlocksAsTheReplayWasGivenThem) {
  NotingTarget target;
  const auto result = Replay({Allocated(1, {7, 3}), Step(2, 1, {3, 7}), Freed(3, 3),
                              Allocated(4, {3}), Step(5, 2, {7, 3})},
                             &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls,
              ElementsAre("allocate 2", "step 1 add 101,100 append 101,100", "free 101",
                          "allocate 1", "step 2 add 100,102 append 100,102"));
}

TEST(ReplaySession, RefusesBlocksThatTheRecordingNeverAllocated) {
  NotingTarget target;
  const auto result = Replay({Step(2, 1, {3})}, &target);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("block 3"));
}

TEST(ReplaySession, ErrorsSayAtWhichStep) {
  NotingTarget loses;
  loses.lose = 2;
  EXPECT_EQ(Replay({Step(1, 1), Step(2, 2)}, &loses).status(),
            absl::UnavailableError("step 2: gone"));
  NotingTarget fails;
  fails.fails = true;
  EXPECT_EQ(Replay({Allocated(1, {7}), Step(2, 1, {7})}, &fails).status(),
            absl::DeadlineExceededError("before step 1: no answer"));
  NotingTarget target;
  EXPECT_EQ(Replay({Step(1, 1), Step(2, 2, {3})}, &target).status().message(),
            "step 2: the recording names block 3, which it has not allocated");
}

TEST(ReplaySession, ComparesNothingWithoutRows) {
  NotingTarget target;
  v1::SessionRecord omits = Step(1, 1);
  omits.mutable_step()->set_omit_rows(true);
  const auto result = Replay({omits}, &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 1u);
  EXPECT_FALSE(result->has_compared());
  // A refusal in place of the answer is a difference all the same.
  target.refuse = 1;
  const auto refused = Replay({omits}, &target);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_TRUE(refused->has_compared());
}

TEST(ReplaySession, EndsAtTheFirstDifference) {
  NotingTarget target;
  target.refuse = 2;
  const auto result = Replay({Step(1, 1), Step(2, 2), Step(3, 3)}, &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls, ElementsAre("step 1", "step 2"));
  ASSERT_TRUE(result->difference);
  EXPECT_EQ(DifferenceText(*result->difference),
            "step 2: answer: expected a result, got the refusal \"no\"");
}

TEST(RecordedSession, LeavesOutPoolCallsBehindTheLastStep) {
  service::Recording recording;
  recording.calls = {Allocated(1, {1, 2}), Freed(4, 1), Step(2, 1)};
  const RecordedSession session(recording);
  EXPECT_EQ(session.calls.size(), 2u);
  EXPECT_EQ(session.num_steps, 1u);
  EXPECT_EQ(session.max_blocks, 2u);
}

TEST(RecordedSession, EndsWhereAStepIsMissing) {
  service::Recording recording;
  recording.calls = {Step(1, 1), Step(2, 2), Step(4, 4), Step(5, 5)};
  const RecordedSession session(recording);
  EXPECT_EQ(session.calls.size(), 2u);
  EXPECT_EQ(session.num_steps, 2u);
  EXPECT_EQ(session.missing_step, 3u);
}

TEST(RecordedSession, KnowsHowManyBlocksAreHeldAtATime) {
  service::Recording recording;
  recording.calls = {Allocated(1, {1, 2, 3}), Freed(2, 1), Freed(3, 2), Allocated(4, {1}),
                     Step(5, 1)};
  EXPECT_EQ(RecordedSession(recording).max_blocks, 3u);
}

}  // namespace
}  // namespace reprise::tools
