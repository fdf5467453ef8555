// SPDX-License-Identifier: Apache-2.0
#include "service/admission.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using ::reprise::testing::StatusIs;

constexpr engine::SessionId kSession = 7, kOther = 8;
constexpr uint32_t kLimit = 2;

bool IsIdle(Admission& admission) { return admission.WaitIdle(std::chrono::steady_clock::now()); }

TEST(Admission, AStepThatIsAnsweredMakesRoomForTheNextOfItsSession) {
  Admission admission;
  EXPECT_OK(admission.BeginStep(kSession, kLimit));
  EXPECT_OK(admission.BeginStep(kSession, kLimit));
  EXPECT_THAT(admission.BeginStep(kSession, kLimit),
              StatusIs(absl::StatusCode::kResourceExhausted, "that wait: got 3, allowed 2"));
  EXPECT_OK(admission.BeginStep(kOther, kLimit));
  admission.AnswerStep(kSession);
  EXPECT_OK(admission.BeginStep(kSession, kLimit));
}

TEST(Admission, AnswersThatNobodyTakesAreBounded) {
  Admission admission;
  for (uint32_t i = 0; i < 2 * kLimit; ++i) {
    EXPECT_OK(admission.BeginStep(kSession, kLimit));
    admission.AnswerStep(kSession);
  }
  EXPECT_THAT(admission.BeginStep(kSession, kLimit),
              StatusIs(absl::StatusCode::kResourceExhausted, "not taken: got 5, allowed 4"));
  admission.EndStep(kSession);
  EXPECT_OK(admission.BeginStep(kSession, kLimit));
}

TEST(Admission, IsIdleWhenNothingIsLeftOfTheLastStep) {
  Admission admission;
  EXPECT_OK(admission.BeginStep(kSession, kLimit));
  admission.AnswerStep(kSession);
  EXPECT_FALSE(IsIdle(admission));
  admission.EndStep(kSession);
  EXPECT_TRUE(IsIdle(admission));
  admission.Drain();
  EXPECT_THAT(admission.BeginStep(kSession, kLimit),
              StatusIs(absl::StatusCode::kUnavailable, "draining"));
}

}  // namespace
}  // namespace reprise::service
