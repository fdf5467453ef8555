// SPDX-License-Identifier: Apache-2.0
// When a step waits for those of other sessions, and for how long at most. Times in microseconds.
#include "service/step_gather.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace reprise::service {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint32_t kKind = 1;
constexpr uint64_t kStepUs = 5000, kBoundUs = 300;  // less than a quarter of a step

class StepGatherTest : public ::testing::Test {
 protected:
  using Pace = StepGather::Pace;

  void Came(Pace& pace, uint64_t us) { gather_.NoteCame(pace, us * kUs); }
  void Submitted(Pace& pace) { gather_.NoteSubmitted(pace, kKind); }
  void Answered(Pace& pace, uint64_t us, uint64_t step_us = kStepUs) {
    gather_.NoteAnswered(pace, us * kUs, step_us * kUs);
  }
  // Until when steps are held, in microseconds.
  uint64_t HeldUntil(uint64_t us, uint32_t kind = kKind) {
    const uint64_t until = gather_.HoldUntil(us * kUs, kind);
    return until == StepGather::kUntilTheNextAnswer ? until : until / kUs;
  }
  // One step of the session, from `us` on, whose client sends the next one `think_us` after it.
  // Returns when that comes.
  uint64_t StepAndThink(Pace& pace, uint64_t us, uint64_t think_us) {
    Came(pace, us);
    Submitted(pace);
    Answered(pace, us + kStepUs);
    return us + kStepUs + think_us;
  }

  StepGather gather_{kBoundUs * kUs};
  std::array<Pace, 3> paces_;
};

TEST_F(StepGatherTest, NobodyWaitsForASessionWhosePaceIsUnknown) {
  Came(paces_[0], 1000);
  EXPECT_EQ(HeldUntil(1000), 0u);
  Submitted(paces_[0]);
  Came(paces_[1], 1100);
  EXPECT_EQ(HeldUntil(1100), 0u);
  Answered(paces_[0], 6000);
  EXPECT_EQ(HeldUntil(6000), 0u);
}

TEST_F(StepGatherTest, OfOneThatComesBackSoonOthersWaitForTheNextStep) {
  const uint64_t next = StepAndThink(paces_[0], 1000, 100);
  Came(paces_[0], next);  // its pace is known from here on
  EXPECT_EQ(HeldUntil(next), 0u);
  Submitted(paces_[0]);
  Came(paces_[1], next + 10);
  EXPECT_EQ(HeldUntil(next + 10), StepGather::kUntilTheNextAnswer);
  const uint64_t answered = next + kStepUs;
  Answered(paces_[0], answered);
  EXPECT_EQ(HeldUntil(answered + 1), answered + kBoundUs);
  Came(paces_[0], answered + 90);
  EXPECT_EQ(HeldUntil(answered + 90), 0u);  // all are here
}

TEST_F(StepGatherTest, NoLongerThanTheBound) {
  const uint64_t next = StepAndThink(paces_[0], 1000, 100);
  const uint64_t answered = StepAndThink(paces_[0], next, 0);
  Came(paces_[1], answered);
  EXPECT_EQ(HeldUntil(answered + kBoundUs - 1), answered + kBoundUs);
  EXPECT_EQ(HeldUntil(answered + kBoundUs), 0u);
  // It comes late, and is not expected the next time.
  Came(paces_[0], answered + 5000);
  Submitted(paces_[0]);
  EXPECT_EQ(HeldUntil(answered + 5001), 0u);
  Answered(paces_[0], answered + 5000 + kStepUs);
  EXPECT_EQ(HeldUntil(answered + 5000 + kStepUs), 0u);
}

TEST_F(StepGatherTest, NorThanAQuarterOfAStep) {
  constexpr uint64_t kShortUs = 1000;
  const uint64_t next = StepAndThink(paces_[0], 1000, 90);
  Came(paces_[0], next);
  Submitted(paces_[0]);
  Answered(paces_[0], next + kShortUs, kShortUs);
  Came(paces_[1], next + kShortUs);
  EXPECT_EQ(HeldUntil(next + kShortUs), next + kShortUs + kShortUs / 4);
}

TEST_F(StepGatherTest, OneThatSendsAheadIsExpectedAtOnce) {
  Came(paces_[0], 1000);
  Submitted(paces_[0]);
  Came(paces_[0], 1001);
  Submitted(paces_[0]);
  Answered(paces_[0], 6000);
  Came(paces_[0], 6050);
  Submitted(paces_[0]);
  Came(paces_[1], 6060);
  // Two of its steps are in flight, and the answer to the first of them brings one more.
  EXPECT_EQ(HeldUntil(6060), StepGather::kUntilTheNextAnswer);
  Answered(paces_[0], 11000);
  Came(paces_[0], 11050);
  EXPECT_EQ(HeldUntil(11060), 0u);
}

TEST_F(StepGatherTest, WaitsForTheLastOfSeveral) {
  for (const size_t i : {0, 1}) {
    const uint64_t next = StepAndThink(paces_[i], 1000, 200);
    Came(paces_[i], next);
    Submitted(paces_[i]);
  }
  Answered(paces_[0], 20'000);
  Answered(paces_[1], 20'050);
  Came(paces_[2], 20'060);
  EXPECT_EQ(HeldUntil(20'060), 20'050 + kBoundUs);
  Came(paces_[1], 20'200);
  EXPECT_EQ(HeldUntil(20'200), 20'000 + kBoundUs);
  Came(paces_[0], 20'220);
  EXPECT_EQ(HeldUntil(20'220), 0u);
}

TEST_F(StepGatherTest, OnlyForStepsThatCouldRunBesideIt) {
  const uint64_t next = StepAndThink(paces_[0], 1000, 100);
  Came(paces_[0], next);
  Submitted(paces_[0]);
  Came(paces_[1], next + 1);
  EXPECT_EQ(HeldUntil(next + 1, kKind + 1), 0u);
  EXPECT_EQ(HeldUntil(next + 1, kKind), StepGather::kUntilTheNextAnswer);
}

// The thread that could end the hold waits for that step.
TEST_F(StepGatherTest, NotForATimeBehindAStepOfASessionThatIsNotExpected) {
  const uint64_t next = StepAndThink(paces_[0], 1000, 100);
  Came(paces_[0], next);
  Submitted(paces_[0]);
  Came(paces_[2], next + 1);
  Submitted(paces_[2]);
  const uint64_t answered = next + kStepUs;
  Answered(paces_[0], answered);
  Came(paces_[1], answered + 1);
  EXPECT_EQ(HeldUntil(answered + 1), 0u);
  Answered(paces_[2], answered + 2);
  EXPECT_EQ(HeldUntil(answered + 3), answered + kBoundUs);
}

TEST_F(StepGatherTest, ASessionThatEndsIsNotWaitedFor) {
  const uint64_t next = StepAndThink(paces_[0], 1000, 100);
  Came(paces_[0], next);
  Submitted(paces_[0]);
  Came(paces_[1], next + 1);
  EXPECT_EQ(HeldUntil(next + 1), StepGather::kUntilTheNextAnswer);
  gather_.Forget(paces_[0]);
  EXPECT_EQ(HeldUntil(next + 2), 0u);
  Answered(paces_[0], next + kStepUs);  // what was in flight then
  EXPECT_EQ(HeldUntil(next + kStepUs), 0u);
}

TEST_F(StepGatherTest, ARefusedStepIsNoLongerThere) {
  const uint64_t next = StepAndThink(paces_[0], 1000, 100);
  Came(paces_[0], next);
  gather_.NoteRefused(paces_[0]);
  Came(paces_[1], next + 1);
  // Its client learns of that at once, and comes again.
  EXPECT_EQ(HeldUntil(next + 1), 1000 + kStepUs + kBoundUs);
}

TEST(StepGather, WithoutABoundNobodyWaits) {
  StepGather gather(0);
  StepGather::Pace pace, other;
  for (uint64_t ns = 1000; ns < 100'000; ns += 10'000) {
    gather.NoteCame(pace, ns);
    gather.NoteSubmitted(pace, kKind);
    gather.NoteCame(other, ns + 1);
    EXPECT_EQ(gather.HoldUntil(ns + 1, kKind), 0u);
    gather.NoteRefused(other);
    gather.NoteAnswered(pace, ns + 9990, 1'000'000);
    EXPECT_EQ(gather.HoldUntil(ns + 9991, kKind), 0u);
  }
}

}  // namespace
}  // namespace reprise::service
