// SPDX-License-Identifier: Apache-2.0
// Which stream has a session, and for how long it waits for one: by a clock of the test's own.
#include "service/session_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "service/identity/callers.h"
#include "tests/service/served_model.h"
#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using State = SessionRegistry::Released::State;

constexpr uint64_t kGraceNs = 1'000'000'000;

class FakeStream final : public SessionStream {
 public:
  void LoseSession(const absl::Status& /*why*/) override {}
  void GainSession() override {}
};

class SessionRegistryTest : public ::testing::Test {
 protected:
  std::shared_ptr<ServedSession> Open(uint64_t grace_ns = kGraceNs) {
    auto session = registry_.Open(served_.engine(), account_,
                                  {.client = "test",
                                   .grace_ns = grace_ns,
                                   .max_kept_bytes = 1000,
                                   .origin = {},
                                   .stream = holder_});
    EXPECT_OK(session.status());
    return *session;
  }
  SessionRegistry::Attached Attach(ServedSession& session,
                                   const std::shared_ptr<FakeStream>& stream) {
    auto attached = registry_.Attach(session, stream, {.peer = "peer", .trace = {}});
    EXPECT_OK(attached.status());
    return attached.value_or(SessionRegistry::Attached{});
  }
  State Release(ServedSession& session, const FakeStream& stream, bool lost = true,
                uint64_t now_ns = 0) {
    return registry_.Release(session, stream, lost, now_ns).state;
  }
  absl::Status Find(const ServedSession& session) const {
    return registry_.Find(session.token.bytes(), account_).status();
  }

  ServedModel served_;
  Account account_{Identity{.name = "anyone", .roles = Roles::All()}, false};
  SessionRegistry registry_{4, {}};
  const std::shared_ptr<FakeStream> holder_ = std::make_shared<FakeStream>();
  const std::shared_ptr<FakeStream> second_ = std::make_shared<FakeStream>();
  const std::shared_ptr<FakeStream> third_ = std::make_shared<FakeStream>();
};

// However long it takes, and from its end on as if it had begun then.
TEST_F(SessionRegistryTest, ACallKeepsItsSessionInUse) {
  const auto session = Open();
  const uint64_t opened_ns = NowNs();
  EXPECT_TRUE(session->IsIdle(opened_ns));
  uint64_t begun_ns = 0;
  {
    CallInSession first(session), second(session);
    EXPECT_FALSE(session->IsIdle(UINT64_MAX));
    first = CallInSession();
    EXPECT_FALSE(session->IsIdle(UINT64_MAX));
    const CallInSession moved(std::move(second));
    EXPECT_FALSE(session->IsIdle(UINT64_MAX));
    EXPECT_TRUE(session->IsInUse());
    begun_ns = NowNs();
  }
  EXPECT_FALSE(session->IsIdle(begun_ns - 1));
  EXPECT_TRUE(session->IsIdle(NowNs()));
}

TEST_F(SessionRegistryTest, ADetachedSessionIsHadAtOnce) {
  const auto session = Open();
  EXPECT_EQ(Release(*session, *holder_), State::kDetached);
  EXPECT_EQ(registry_.num_detached(), 1u);
  EXPECT_TRUE(Attach(*session, second_).now);
  EXPECT_EQ(registry_.num_detached(), 0u);
  EXPECT_EQ(registry_.List(0, 9, 0).at(0).peer, "peer");
}

TEST_F(SessionRegistryTest, OfStreamsThatWaitTheLastOneGetsIt) {
  const auto session = Open();
  const SessionRegistry::Attached first = Attach(*session, second_);
  EXPECT_FALSE(first.now);
  EXPECT_EQ(first.holder, holder_);
  EXPECT_EQ(first.waiter, nullptr);
  const SessionRegistry::Attached next = Attach(*session, third_);
  EXPECT_EQ(next.holder, holder_);
  EXPECT_EQ(next.waiter, second_);
  registry_.StopWaiting(*session, *second_);  // which does not wait any more
  const SessionRegistry::Released released = registry_.Release(*session, *holder_, true, 0);
  EXPECT_EQ(released.state, State::kHandedOn);
  EXPECT_EQ(released.next, third_);
  EXPECT_EQ(registry_.num_detached(), 0u);
  EXPECT_EQ(Release(*session, *holder_), State::kGone) << "it had let go before";
  EXPECT_EQ(Release(*session, *third_), State::kDetached);
}

TEST_F(SessionRegistryTest, AStreamThatStopsToWaitGetsNothing) {
  const auto session = Open();
  Attach(*session, second_);
  registry_.StopWaiting(*session, *second_);
  EXPECT_EQ(Release(*session, *holder_), State::kDetached);
}

TEST_F(SessionRegistryTest, AStreamThatIsClosedEndsItsSessionForWhoWaitsToo) {
  const auto session = Open();
  Attach(*session, second_);
  const SessionRegistry::Released released = registry_.Release(*session, *holder_, false, 0);
  EXPECT_EQ(released.state, State::kEnded);
  EXPECT_EQ(released.next, second_);
  EXPECT_THAT(Find(*session), StatusIs(absl::StatusCode::kNotFound, "token of none"));
  EXPECT_THAT(registry_.Attach(*session, third_, {}).status(),
              StatusIs(absl::StatusCode::kNotFound, ""));
}

// A call that has found the session, and comes too late, is told what a later one would be.
TEST_F(SessionRegistryTest, SaysWhyASessionHasEndedSinceItWasFound) {
  const absl::Status unknown = absl::NotFoundError("no such session");
  const auto open = Open(), evicted = Open(), closed = Open();
  ASSERT_OK(registry_.Evict(evicted->info.id, absl::AbortedError("for the test")).status());
  Release(*closed, *holder_, /*lost=*/false);
  EXPECT_EQ(registry_.WhyEnded(*open, unknown), unknown);
  EXPECT_THAT(registry_.WhyEnded(*evicted, unknown),
              StatusIs(absl::StatusCode::kAborted, "for the test"));
  EXPECT_THAT(registry_.Attach(*evicted, second_, {}).status(),
              StatusIs(absl::StatusCode::kAborted, "for the test"));
  EXPECT_EQ(registry_.WhyEnded(*closed, unknown), unknown);
  const absl::Status other = absl::InvalidArgumentError("other");
  EXPECT_EQ(registry_.WhyEnded(*evicted, other), other);
  registry_.Drain();
  EXPECT_THAT(registry_.WhyEnded(*closed, unknown),
              StatusIs(absl::StatusCode::kUnavailable, "draining"));
  EXPECT_THAT(Find(*closed), StatusIs(absl::StatusCode::kUnavailable, "draining"));
  EXPECT_THAT(Find(*evicted), StatusIs(absl::StatusCode::kAborted, "for the test"));
}

TEST_F(SessionRegistryTest, WithoutAGraceTimeItEndsWithItsStream) {
  const auto session = Open(0);
  EXPECT_THAT(registry_.Attach(*session, second_, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "grace time"));
  EXPECT_EQ(Release(*session, *holder_), State::kEnded);
}

TEST_F(SessionRegistryTest, ExpiresAfterItsGraceTimeAndNotBefore) {
  const auto session = Open();
  EXPECT_EQ(Release(*session, *holder_, true, 500), State::kDetached);
  EXPECT_EQ(registry_.List(0, 9, 700).at(0).grace_left_ns, kGraceNs - 200);
  EXPECT_THAT(registry_.TakeExpired(kGraceNs + 499), IsEmpty());
  EXPECT_OK(Find(*session));
  // A second loss begins a new one.
  Attach(*session, second_);
  EXPECT_THAT(registry_.TakeExpired(10 * kGraceNs), IsEmpty());
  EXPECT_EQ(Release(*session, *second_, true, 10 * kGraceNs), State::kDetached);
  EXPECT_THAT(registry_.TakeExpired(11 * kGraceNs - 1), IsEmpty());
  EXPECT_THAT(registry_.TakeExpired(11 * kGraceNs), SizeIs(1));
  EXPECT_THAT(Find(*session), StatusIs(absl::StatusCode::kNotFound, "grace time of 1000 ms"));
  EXPECT_EQ(registry_.num_open(), 0u);
}

TEST_F(SessionRegistryTest, WhenItDrainsNothingIsDetached) {
  const auto detached = Open();
  EXPECT_EQ(Release(*detached, *holder_), State::kDetached);
  const auto attached = Open();
  EXPECT_THAT(registry_.Drain(), SizeIs(1));
  EXPECT_EQ(Release(*attached, *holder_), State::kEnded);
  EXPECT_EQ(registry_.num_open(), 0u);
}

TEST_F(SessionRegistryTest, AnEvictedSessionIsToldToWhoeverComesForIt) {
  const auto session = Open();
  Attach(*session, second_);
  const absl::Status why = absl::AbortedError("evicted");
  const auto evicted = registry_.Evict(session->info.id, why);
  ASSERT_OK(evicted.status());
  EXPECT_THAT(evicted->streams, ::testing::ElementsAre(holder_, second_));
  EXPECT_EQ(Find(*session), why);
  EXPECT_EQ(Release(*session, *holder_), State::kGone);
  Account other{Identity{.name = "other", .roles = Roles::All()}, true};
  EXPECT_THAT(registry_.Find(session->token.bytes(), other).status(),
              StatusIs(absl::StatusCode::kNotFound, "token of none"));
  EXPECT_THAT(registry_.Evict(session->info.id, why).status(),
              StatusIs(absl::StatusCode::kNotFound, "none that is open"));
}

// Memory for those that have ended is bounded.
TEST_F(SessionRegistryTest, TheLastOnesThatEndedAreKnown) {
  const absl::Status why = absl::AbortedError("evicted");
  const auto first = Open();
  EXPECT_OK(registry_.Evict(first->info.id, why).status());
  std::shared_ptr<ServedSession> last;
  for (int i = 0; i < 64; ++i) {
    last = Open();
    EXPECT_OK(registry_.Evict(last->info.id, why).status());
  }
  EXPECT_THAT(Find(*first), StatusIs(absl::StatusCode::kNotFound, "token of none"));
  EXPECT_EQ(Find(*last), why);
}

}  // namespace
}  // namespace reprise::service
