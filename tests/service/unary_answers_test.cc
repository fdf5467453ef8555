// SPDX-License-Identifier: Apache-2.0
#include "service/unary_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Claim = UnaryAnswers::Claim;

constexpr UnaryRequest kFirst = {.sequence = 1, .fingerprint = 10};
constexpr UnaryRequest kOther = {.sequence = 1, .fingerprint = 11};

struct Silent : UnaryWaiter {
  void Answer(const absl::Status&, const grpc::ByteBuffer*) override {}
};

class UnaryAnswersTest : public ::testing::Test {
 protected:
  Claim Begin(const UnaryRequest& request, UnaryWaiter& waiter) {
    const absl::StatusOr<Claim> claim = answers_.Begin(request, &waiter, &answer_);
    EXPECT_TRUE(claim.ok()) << claim.status();
    return *claim;
  }

  MemoryBudget memory_{1 << 20, 1024};
  UnaryAnswers answers_;
  grpc::ByteBuffer answer_;
  Silent sender_;
  Silent again_;
};

TEST_F(UnaryAnswersTest, ThoseWhoSendARequestAgainWaitForIt) {
  EXPECT_EQ(Begin(kFirst, sender_), Claim::kRun);
  EXPECT_EQ(Begin(kFirst, again_), Claim::kWait);
  EXPECT_TRUE(answers_.IsBusy());
  const grpc::Slice slice("answer");
  const grpc::ByteBuffer answer(&slice, 1);
  EXPECT_THAT(answers_.Finish(kFirst, &answer, memory_), ElementsAre(&again_));
  EXPECT_FALSE(answers_.IsBusy());
  EXPECT_EQ(Begin(kFirst, again_), Claim::kAnswered);
  EXPECT_EQ(answer_.Length(), 6u);
}

TEST_F(UnaryAnswersTest, ARequestThatIsWithdrawnIsRunByWhoSendsItAgain) {
  EXPECT_EQ(Begin(kFirst, sender_), Claim::kRun);
  EXPECT_TRUE(answers_.Withdraw(kFirst));
  EXPECT_FALSE(answers_.IsBusy());
  EXPECT_EQ(Begin(kFirst, again_), Claim::kRun);
  EXPECT_THAT(answers_.Finish(kFirst, nullptr, memory_), IsEmpty());
}

TEST_F(UnaryAnswersTest, ARequestThatOthersWaitForIsNotWithdrawn) {
  EXPECT_EQ(Begin(kFirst, sender_), Claim::kRun);
  EXPECT_EQ(Begin(kFirst, again_), Claim::kWait);
  EXPECT_FALSE(answers_.Withdraw(kFirst));
  EXPECT_TRUE(answers_.IsBusy());
  EXPECT_THAT(answers_.Finish(kFirst, nullptr, memory_), ElementsAre(&again_));
}

TEST_F(UnaryAnswersTest, AnotherRequestHasTheNumberOnlyWhenItIsFree) {
  EXPECT_EQ(Begin(kFirst, sender_), Claim::kRun);
  EXPECT_EQ(answers_.Begin(kOther, &again_, &answer_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(answers_.Withdraw(kFirst));
  EXPECT_EQ(Begin(kOther, again_), Claim::kRun);
}

}  // namespace
}  // namespace reprise::service
