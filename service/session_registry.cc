// SPDX-License-Identifier: Apache-2.0
#include "service/session_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "service/out_of_memory.h"

namespace reprise::service {
namespace {

// Sessions that ended without their clients' doing, whose clients are told why when they come.
constexpr size_t kMaxEnded = 64;

absl::Status Draining() { return absl::UnavailableError("draining: the server is stopping"); }

absl::Status Unknown() {
  return absl::NotFoundError("session: got a token of none, allowed that of an open StepStream");
}

absl::Status Removed(const Account& account) {
  return absl::PermissionDeniedError(
      absl::StrCat("session: got the identity ", account.name,
                   ", which was taken out meanwhile, allowed: one that may have sessions"));
}

absl::Status Expired(const ServedSession& session) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  return absl::NotFoundError(
      absl::StrCat("session: has ended, because no stream resumed it within its grace time of ",
                   session.grace_ns / kNsPerMs, " ms"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ServedSession>> SessionRegistry::Open(
    engine::DecodeEngine& engine, Account& account, const SessionOpening& opening) {
  std::lock_guard lock(mutex_);
  if (!account.may_have_sessions) return Removed(account);
  if (sessions_.size() >= max_sessions_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "sessions: ", sessions_.size(), " are open; allowed: ", max_sessions_, " (max_sessions)"));
  }
  const auto open =
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&account](const auto& other) { return &other->account == &account; });
  const uint32_t allowed = account.max_sessions;
  if (allowed != 0 && static_cast<size_t>(open) >= allowed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sessions of ", account.name, ": ", open, " are open; allowed: ", allowed));
  }
  sessions_.reserve(max_sessions_);
  // As many as a stream may have unanswered.
  const uint32_t num_kept = opening.grace_ns == 0 ? 0 : 2 * engine.info().limits.pipeline_depth;
  // Before the engine's: it may throw.
  auto session = std::make_shared<ServedSession>(account, opening, num_kept);
  session->origin_ = opening.origin;
  session->stream_ = opening.stream;
  session->holder_ = opening.stream.get();
  session->info = engine.OpenSession(limits_, account.engine_account);
  sessions_.push_back(session);
  return session;
}

absl::StatusOr<std::shared_ptr<ServedSession>> SessionRegistry::Find(std::string_view token,
                                                                     const Account& account) const {
  if (token.size() != SessionToken::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat("session: got ", token.size(),
                                                   " bytes, allowed ", SessionToken::kBytes,
                                                   ", as Opened.session gave them"));
  }
  std::shared_ptr<ServedSession> found;
  const Ended* ended = nullptr;
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<ServedSession>& session : sessions_) {
    if (session->token.Is(token)) found = session;
  }
  for (const Ended& session : ended_) {
    if (session.token.Is(token)) ended = &session;
  }
  if (found != nullptr && &found->account == &account) {
    found->last_asked_ns.store(NowNs(), std::memory_order_relaxed);
    return found;
  }
  if (ended != nullptr && ended->account == &account) return ended->why;
  return draining_ ? Draining() : Unknown();
}

absl::Status SessionRegistry::CauseOf(const ServedSession& session,
                                      const absl::Status& otherwise) const {
  for (const Ended& ended : ended_) {
    if (ended.token.Is(session.token.bytes())) return ended.why;
  }
  return draining_ ? Draining() : otherwise;
}

absl::Status SessionRegistry::WhyEnded(const ServedSession& session,
                                       const absl::Status& refusal) const {
  if (!absl::IsNotFound(refusal) && !absl::IsAborted(refusal)) return refusal;
  std::lock_guard lock(mutex_);
  return IsOpen(session) ? refusal : CauseOf(session, refusal);
}

// ---- streams ----

absl::StatusOr<SessionRegistry::Attached> SessionRegistry::Attach(
    ServedSession& session, const std::shared_ptr<SessionStream>& stream,
    const CallOrigin& origin) {
  if (session.grace_ns == 0) {
    return absl::FailedPreconditionError(
        "resume: got a session without a grace time, allowed: one whose Opened.resume_grace_ms is "
        "not 0");
  }
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  if (!IsOpen(session)) return CauseOf(session, Unknown());
  Attached attached;
  if (session.holder_ != nullptr) {
    attached.holder = session.stream_.lock();
    attached.waiter = session.next_.lock();
    session.next_ = stream;
    session.next_origin_ = origin;
    return attached;
  }
  attached.now = true;
  session.holder_ = stream.get();
  session.stream_ = stream;
  session.origin_ = origin;
  return attached;
}

SessionRegistry::Released SessionRegistry::Release(ServedSession& session,
                                                   const SessionStream& stream, bool lost,
                                                   uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  if (!IsOpen(session) || session.holder_ != &stream) return {};
  Released released;
  released.next = session.next_.lock();
  session.next_.reset();
  const bool survives = lost && session.grace_ns != 0 && !draining_;
  if (!survives) {
    Forget(session);
    released.state = Released::State::kEnded;
    return released;
  }
  session.holder_ = released.next.get();
  session.stream_ = released.next;
  if (released.next != nullptr) session.origin_ = session.next_origin_;
  session.detached_until_ns_ = now_ns + session.grace_ns;
  released.state =
      released.next != nullptr ? Released::State::kHandedOn : Released::State::kDetached;
  return released;
}

void SessionRegistry::StopWaiting(ServedSession& session, const SessionStream& stream) {
  std::lock_guard lock(mutex_);
  if (session.next_.lock().get() == &stream) session.next_.reset();
}

// ---- the end ----

bool SessionRegistry::IsOpen(const ServedSession& session) const {
  return std::ranges::any_of(sessions_,
                             [&session](const auto& open) { return open.get() == &session; });
}

void SessionRegistry::Forget(const ServedSession& session) {
  std::erase_if(sessions_, [&session](const auto& open) { return open.get() == &session; });
}

void SessionRegistry::NoteEnded(const ServedSession& session, const absl::Status& why) {
  if (ended_.size() == kMaxEnded) ended_.pop_front();
  ended_.push_back({.token = session.token, .account = &session.account, .why = why});
}

template <typename IsTaken>
std::vector<std::shared_ptr<ServedSession>> SessionRegistry::TakeDetached(IsTaken is_taken) {
  std::vector<std::shared_ptr<ServedSession>> taken;
  for (const std::shared_ptr<ServedSession>& session : sessions_) {
    if (session->holder_ == nullptr && is_taken(*session)) taken.push_back(session);
  }
  for (const std::shared_ptr<ServedSession>& session : taken) Forget(*session);
  return taken;
}

std::vector<std::shared_ptr<ServedSession>> SessionRegistry::TakeExpired(uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ServedSession>> taken = TakeDetached(
      [now_ns](const ServedSession& session) { return session.detached_until_ns_ <= now_ns; });
  for (const std::shared_ptr<ServedSession>& session : taken) {
    // Without memory for it, its client is told what any unknown token is.
    CatchOutOfMemory([&] {
      NoteEnded(*session, Expired(*session));
      return absl::OkStatus();
    }).IgnoreError();
  }
  return taken;
}

std::vector<std::shared_ptr<ServedSession>> SessionRegistry::Drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
  return TakeDetached([](const ServedSession&) { return true; });
}

absl::StatusOr<SessionRegistry::Evicted> SessionRegistry::Evict(engine::SessionId id,
                                                                const absl::Status& why) {
  std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(sessions_, [id](const auto& session) { return session->info.id == id; });
  if (found == sessions_.end())
    return absl::NotFoundError(absl::StrCat("session: got the id ", id, ", of none that is open"));
  return Take(found, why);
}

std::optional<SessionRegistry::Evicted> SessionRegistry::EvictOneOf(const Account& account,
                                                                    const absl::Status& why) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      sessions_, [&account](const auto& session) { return &session->account == &account; });
  if (found == sessions_.end()) return std::nullopt;
  return Take(found, why);
}

SessionRegistry::Evicted SessionRegistry::Take(Sessions::iterator session,
                                               const absl::Status& why) {
  Evicted evicted{.session = *session, .streams = {}};
  for (const std::weak_ptr<SessionStream>& weak : {(*session)->stream_, (*session)->next_}) {
    if (std::shared_ptr<SessionStream> stream = weak.lock())
      evicted.streams.push_back(std::move(stream));
  }
  NoteEnded(**session, why);
  sessions_.erase(session);
  return evicted;
}

// ---- what is told of them ----

std::vector<SessionView> SessionRegistry::List(engine::SessionId after, size_t count,
                                               uint64_t now_ns) const {
  std::vector<SessionView> views;
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<ServedSession>& session : sessions_) {
    if (session->info.id <= after) continue;
    if (views.size() == count) break;
    const uint64_t until_ns = session->detached_until_ns_;
    const bool attached = session->holder_ != nullptr;
    views.push_back({.session = session,
                     .peer = session->origin_.peer,
                     .attached = attached,
                     .grace_left_ns = attached || until_ns < now_ns ? 0 : until_ns - now_ns});
  }
  return views;
}

size_t SessionRegistry::num_detached() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(
      sessions_, [](const auto& session) { return session->holder_ == nullptr; }));
}

}  // namespace reprise::service
