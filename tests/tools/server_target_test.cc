// SPDX-License-Identifier: Apache-2.0
// A replay's session with a server that does not answer: it ends at its time, or by a signal.
#include "tools/replay/server_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/testing/status_matchers.h"
#include "tests/tools/stuck_server.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTimeout(2000);
// Far more than any call takes here, and far less than a call that nothing ends.
constexpr std::chrono::seconds kSoon(30);

class ServerTargetTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ReplayServer>> Connect(const StuckServer& server,
                                                        milliseconds timeout = kTimeout) {
    EXPECT_TRUE(server.started());
    return ReplayServer::Connect({.address = server.address()}, timeout, &interrupted_);
  }
  // Of a session's first step.
  static absl::Status Step(ReplayTarget* target, uint64_t sequence = 1) {
    v1::StepRequest step;
    step.set_sequence(sequence);
    v1::StepStreamResponse answer;
    return target->Step(step, &answer);
  }
  std::atomic<bool> interrupted_ = false;
  const steady_clock::time_point begin_ = steady_clock::now();
};

TEST_F(ServerTargetTest, AStepWithoutAnAnswerEndsAtItsTime) {
  const StuckServer stuck(StuckAt::kStep);
  ASSERT_OK_AND_ASSIGN(const auto server, Connect(stuck));
  {
    ASSERT_OK_AND_ASSIGN(const auto target, server->OpenSession());
    EXPECT_THAT(Step(target.get()), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                             "the server at " + stuck.address() +
                                                 ": got no answer within 2.00 s, "
                                                 "allowed: one by then, or a longer --timeout"));
  }
  EXPECT_LT(steady_clock::now() - begin_, kSoon);
}

TEST_F(ServerTargetTest, SoDoesACallBesideTheStream) {
  const StuckServer stuck(StuckAt::kAllocate);
  ASSERT_OK_AND_ASSIGN(const auto server, Connect(stuck));
  {
    ASSERT_OK_AND_ASSIGN(const auto target, server->OpenSession());
    EXPECT_THAT(target->Allocate(3).status(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         "allocating 3 blocks: the server at " + stuck.address() +
                             ": got no answer within 2.00 s"));
  }
  EXPECT_LT(steady_clock::now() - begin_, kSoon);
}

TEST_F(ServerTargetTest, SoDoWhatASessionBeginsWith) {
  const StuckServer describes_not(StuckAt::kDescribe);
  EXPECT_THAT(Connect(describes_not).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "Describe of the server at "));
  const StuckServer opens_not(StuckAt::kOpen);
  ASSERT_OK_AND_ASSIGN(const auto server, Connect(opens_not));
  EXPECT_THAT(server->OpenSession().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "opening a session: the server at "));
}

TEST_F(ServerTargetTest, ASignalEndsAStepThatMayTakeForEver) {
  const StuckServer stuck(StuckAt::kStep);
  ASSERT_OK_AND_ASSIGN(const auto server, Connect(stuck, milliseconds(0)));
  {
    ASSERT_OK_AND_ASSIGN(const auto target, server->OpenSession());
    std::thread signal([&] {
      EXPECT_TRUE(stuck.AwaitCall());
      interrupted_ = true;
    });
    EXPECT_THAT(Step(target.get()), StatusIs(absl::StatusCode::kCancelled, "interrupted"));
    signal.join();
  }
  EXPECT_LT(steady_clock::now() - begin_, kSoon);
}

// The time is a step's and not the session's.
TEST_F(ServerTargetTest, StepsThatAreAnsweredHaveTheirTimeEach) {
  const StuckServer server_that_answers(StuckAt::kNothing);
  constexpr milliseconds kLong(1000);
  ASSERT_OK_AND_ASSIGN(const auto server, Connect(server_that_answers, kLong));
  ASSERT_OK_AND_ASSIGN(const auto target, server->OpenSession());
  for (uint64_t sequence = 1; steady_clock::now() - begin_ < 2 * kLong; ++sequence) {
    ASSERT_OK(Step(target.get(), sequence));
    std::this_thread::sleep_for(milliseconds(50));
  }
  ASSERT_OK_AND_ASSIGN(const auto blocks, target->Allocate(2));
  EXPECT_EQ(blocks.size(), 2u);
}

}  // namespace
}  // namespace reprise::tools
