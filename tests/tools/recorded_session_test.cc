// SPDX-License-Identifier: Apache-2.0
// Repeating a recorded session: order, block ids, and what is left out.
#include "tools/replay/recorded_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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

constexpr uint32_t kStateTokens = 40;

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
  absl::Status Write(const v1::WriteBlocksRequest& write) override {
    std::string call = "write";
    for (const v1::KvPart& part : write.parts())
      absl::StrAppend(&call, " ", part.block(), ":", part.contents());
    calls.push_back(call);
    return absl::OkStatus();
  }
  // Places are 500, 501 and so on, and states likewise from 900 on.
  absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) override {
    calls.push_back(absl::StrCat("swap out ", absl::StrJoin(blocks, ",")));
    std::vector<uint32_t> places;
    for (size_t i = 0; i < blocks.size(); ++i) places.push_back(next_place_++);
    return places;
  }
  absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped) override {
    calls.push_back(absl::StrCat("swap in ", absl::StrJoin(swapped, ",")));
    std::vector<uint32_t> blocks;
    for (size_t i = 0; i < swapped.size(); ++i) blocks.push_back(next_block_++);
    return blocks;
  }
  absl::StatusOr<engine::SwappedState> SwapOutState(uint32_t row) override {
    calls.push_back(absl::StrCat("swap out state of ", row));
    return engine::SwappedState{.place = next_state_++, .context_length = kStateTokens};
  }
  absl::Status FreeSwapped(const std::vector<uint32_t>& swapped,
                           const std::vector<uint32_t>& states) override {
    calls.push_back(absl::StrCat("free swapped ", absl::StrJoin(swapped, ","), " and ",
                                 absl::StrJoin(states, ",")));
    return absl::OkStatus();
  }
  absl::Status Share(const std::string& name, const std::vector<uint32_t>& blocks) override {
    names.push_back(name);
    calls.push_back(absl::StrCat("share ", absl::StrJoin(blocks, ",")));
    return absl::OkStatus();
  }
  absl::Status Release(const std::string& name) override {
    EXPECT_EQ(name, names.back());
    calls.push_back("release");
    return absl::OkStatus();
  }
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override {
    std::string call = absl::StrCat("step ", step.sequence());
    for (const v1::AddRow& row : step.add()) {
      absl::StrAppend(&call, " add ", absl::StrJoin(row.blocks(), ","));
      if (row.has_swapped_state()) absl::StrAppend(&call, " state ", row.swapped_state());
    }
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
  std::vector<std::string> names;  // under which blocks were shared
  uint64_t refuse = 0;
  uint64_t lose = 0;   // at this step the session is gone
  bool fails = false;  // to allocate

 private:
  uint32_t next_block_ = 100;
  uint32_t next_place_ = 500;
  uint32_t next_state_ = 900;
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
  EXPECT_EQ(session.needs.blocks, 2u);
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
  EXPECT_EQ(RecordedSession(recording).needs.blocks, 3u);
}

// ---- swap space, contents and shares ----

v1::SessionRecord SwappedOut(uint64_t time_ns, const std::vector<uint32_t>& blocks,
                             const std::vector<uint32_t>& places) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_swap_out()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  record.mutable_swapped_out()->mutable_swapped()->Assign(places.begin(), places.end());
  return record;
}

v1::SessionRecord SwappedIn(uint64_t time_ns, const std::vector<uint32_t>& places,
                            const std::vector<uint32_t>& blocks) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_swap_in()->mutable_swapped()->Assign(places.begin(), places.end());
  record.mutable_swapped_in()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return record;
}

v1::SessionRecord StateSwappedOut(uint64_t time_ns, uint32_t row, uint32_t state) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_swap_out_state()->set_row(row);
  record.mutable_swapped_out_state()->set_swapped_state(state);
  record.mutable_swapped_out_state()->set_context_length(kStateTokens);
  return record;
}

v1::SessionRecord SwappedFreed(uint64_t time_ns, uint32_t place, uint32_t state) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_free_swapped()->add_swapped(place);
  record.mutable_free_swapped()->add_swapped_states(state);
  return record;
}

v1::SessionRecord Written(uint64_t time_ns, uint32_t block, const std::string& contents) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  v1::KvPart* part = record.mutable_write()->add_parts();
  part->set_block(block);
  part->set_contents(contents);
  return record;
}

v1::SessionRecord Adopted(uint64_t time_ns, const std::vector<uint32_t>& blocks) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_adopted()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return record;
}

v1::SessionRecord SharedAs(uint64_t time_ns, const std::string& name,
                           const std::vector<uint32_t>& blocks) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_share()->set_name(name);
  record.mutable_share()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return record;
}

v1::SessionRecord Released(uint64_t time_ns, const std::string& name) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_release()->set_name(name);
  return record;
}

v1::SessionRecord AddsWithState(uint64_t time_ns, uint64_t sequence, uint32_t state) {
  v1::SessionRecord record;
  record.set_time_ns(time_ns);
  record.mutable_step()->set_sequence(sequence);
  record.mutable_step()->add_add()->set_swapped_state(state);
  record.mutable_answer()->set_sequence(sequence);
  return record;
}

TEST(ReplaySession, EndsWhereAStateIsBehindOtherTokensThanWasRecorded) {
  NotingTarget target;
  v1::SessionRecord swapped = StateSwappedOut(2, 17, 2);
  swapped.mutable_swapped_out_state()->set_context_length(kStateTokens + 1);
  const auto result = Replay({Step(1, 1), swapped, Step(3, 2)}, &target);
  EXPECT_EQ(result.status(),
            absl::InternalError(
                "before step 2: swapping a state out: got one behind 40 tokens, recorded 41"));
  EXPECT_THAT(target.calls, ElementsAre("step 1", "swap out state of 17"));
}

TEST(ReplaySession, NamesWhatIsInSwapSpaceAsTheReplayWasGivenIt) {
  NotingTarget target;
  const auto result =
      Replay({Allocated(1, {7, 8}), Step(2, 1), SwappedOut(3, {8, 7}, {0, 4}),
              SwappedIn(5, {4}, {9}), StateSwappedOut(6, 17, 2), AddsWithState(8, 3, 2), Step(4, 2),
              SwappedFreed(9, 0, 2), Step(10, 4, {9})},
             &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls,
              ElementsAre("allocate 2", "step 1", "swap out 101,100", "step 2", "swap in 501",
                          "swap out state of 17", "step 3 add  state 900",
                          "free swapped 500 and 900", "step 4 add 102 append 102"));
}

TEST(ReplaySession, WritesWhatWasWritten) {
  NotingTarget target;
  const auto result =
      Replay({Allocated(1, {7, 3}), Written(2, 3, "abc"), Step(4, 1, {3})}, &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls,
              ElementsAre("allocate 2", "write 101:abc", "step 1 add 101 append 101"));
}

// Another session's blocks have their contents here, and are nobody's to write.
TEST(ReplaySession, AdoptsByTakingFillingAndSharingBlocksOfItsOwn) {
  NotingTarget target;
  const auto result = Replay({Adopted(1, {7, 3}), Written(1, 7, "ab"), Written(1, 3, "cd"),
                              SharedAs(1, "digest", {7, 3}), Step(2, 1, {7}), Released(3, "digest"),
                              Adopted(4, {7, 3}), SharedAs(4, "digest", {7, 3}), Step(5, 2, {3})},
                             &target);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(target.calls,
              ElementsAre("allocate 2", "write 100:ab", "write 101:cd", "share 100,101",
                          "step 1 add 100 append 100", "release", "allocate 2", "share 102,103",
                          "step 2 add 103 append 103"));
  ASSERT_EQ(target.names.size(), 2u);
  EXPECT_NE(target.names[0], target.names[1]);
  EXPECT_LE(target.names[0].size(), 64u);
  EXPECT_THAT(target.names[0], Not(HasSubstr("digest")));
}

TEST(ReplaySession, RefusesWhatTheRecordingNeverHad) {
  const std::pair<v1::SessionRecord, const char*> wrong[] = {
      {SwappedOut(1, {7}, {0}), "names block 7, which it has not allocated"},
      {SwappedIn(1, {4}, {7}), "names swapped block 4, which it has not swapped out"},
      {SwappedFreed(1, 4, 2), "names swapped block 4, which"},
      {Written(1, 7, "a"), "names block 7, which"},
      {SharedAs(1, "x", {7}), "names block 7, which"},
      {Released(1, "x"), "releases blocks under a name under which it has none"},
      {AddsWithState(1, 1, 2), "names swapped state 2, which it has not swapped out"}};
  for (const auto& [record, message] : wrong) {
    NotingTarget target;
    std::vector<v1::SessionRecord> calls = {record};
    if (!record.has_step()) calls.push_back(Step(2, 1));
    const absl::Status status = Replay(calls, &target).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_TRUE(target.calls.empty());
  }
  NotingTarget target;
  EXPECT_EQ(
      Replay({Adopted(1, {7}), SharedAs(2, "x", {7}), SharedAs(3, "x", {7}), Step(4, 1)}, &target)
          .status()
          .code(),
      absl::StatusCode::kDataLoss);
}

TEST(RecordedSession, KnowsWhatIsInSwapSpaceAtATime) {
  service::Recording recording;
  recording.calls = {Allocated(1, {1, 2, 3}),
                     SwappedOut(2, {1, 2}, {0, 1}),
                     Adopted(3, {8, 9}),
                     SharedAs(3, "x", {8, 9}),
                     StateSwappedOut(4, 17, 0),
                     StateSwappedOut(5, 17, 0),
                     SwappedIn(6, {1}, {1}),
                     SwappedOut(7, {3}, {1}),
                     Released(8, "x"),
                     AddsWithState(9, 1, 0),
                     StateSwappedOut(10, 18, 1),
                     Allocated(11, {4, 5}),
                     Step(12, 2),
                     Allocated(13, {20, 21, 22, 23})};
  const ReplayNeeds needs = RecordedSession(recording).needs;
  EXPECT_EQ(needs.blocks, 4u) << "a block, two that were adopted, and one that came back";
  EXPECT_EQ(needs.swap_blocks, 2u);
  EXPECT_EQ(needs.swap_states, 1u);
}

TEST(RecordedSession, KeepsTheStateOfARowThatWasRefusedAlone) {
  service::Recording recording;
  v1::SessionRecord refused = AddsWithState(2, 1, 0);
  refused.mutable_step()->mutable_add(0)->set_row(17);
  refused.mutable_answer()->add_row_errors()->set_row(17);
  recording.calls = {StateSwappedOut(1, 17, 0), refused, StateSwappedOut(3, 18, 1), Step(4, 2)};
  EXPECT_EQ(RecordedSession(recording).needs.swap_states, 2u);
}

TEST(ReplayNeeds, AreCheckedAgainstWhatAServerHas) {
  v1::DescribeResponse server;
  server.mutable_pool()->set_swap_blocks(4);
  server.mutable_pool()->set_swap_states(1);
  EXPECT_TRUE(CheckSwapSpace({.blocks = 99, .swap_blocks = 4, .swap_states = 1}, server).ok());
  const absl::Status blocks = CheckSwapSpace({.swap_blocks = 5}, server);
  EXPECT_EQ(blocks.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(blocks.message()), HasSubstr("swap_blocks: got 4, allowed: 5 or more"));
  EXPECT_THAT(std::string(CheckSwapSpace({.swap_states = 2}, server).message()),
              HasSubstr("swap_states: got 1, allowed: 2 or more"));
}

}  // namespace
}  // namespace reprise::tools
