// SPDX-License-Identifier: Apache-2.0
// SessionRegistry: the sessions that are open, by their tokens, each its account's alone, and which
// stream has each of them. What a session holds is the engine's to know.
//
// A session is a lease: a stream has it, or it is detached for at most its grace time, during which
// a stream that knows the token may attach. A stream that attaches while another has the session
// waits until that one lets go.
//
// Threads: every method from any thread. No lock is held while a stream is called.
#ifndef REPRISE_SERVICE_SESSION_REGISTRY_H_
#define REPRISE_SERVICE_SESSION_REGISTRY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "service/call_origin.h"
#include "service/clock.h"
#include "service/identity/callers.h"
#include "service/kept_answers.h"
#include "service/record/recorder.h"
#include "service/session_token.h"
#include "service/step_queue.h"
#include "service/unary_answers.h"

namespace reprise::service {

// A stream, as sessions know it.
class SessionStream {
 public:
  virtual ~SessionStream() = default;
  // Lets go of the session as soon as its steps in flight have ended, or stops to wait for it, and
  // ends with `why`.
  virtual void LoseSession(const absl::Status& why) = 0;
  // The session that it waited for is its own.
  virtual void GainSession() = 0;
};

// What a session is opened with.
struct SessionOpening {
  std::string client;     // what it calls itself
  uint64_t grace_ns = 0;  // 0: it ends with its stream
  uint64_t max_kept_bytes = 0;
  CallOrigin origin;
  std::shared_ptr<SessionStream> stream;
};

struct ServedSession {
  ServedSession(Account& of, const SessionOpening& opening, uint32_t max_kept_answers)
      : account(of),
        client(opening.client),
        grace_ns(opening.grace_ns),
        queue(of.share),
        kept(max_kept_answers, opening.max_kept_bytes) {}
  Account& account;
  const std::string client;
  const uint64_t grace_ns;
  const uint64_t opened_ns = NowNs();
  engine::SessionInfo info;  // set by Open alone
  const SessionToken token = SessionToken::Random();
  StepQueue queue;
  UnaryAnswers answers;
  KeptAnswers kept;  // of the stream that has the session
  RecordingSlot recording;
  std::atomic<uint64_t> last_asked_ns = NowNs();  // when a call last named it, or a message came
  std::atomic<uint32_t> num_calls = 0;            // CallInSession
  // Whether a call beside its stream works on it.
  bool IsInUse() const {
    return answers.IsBusy() || num_calls.load(std::memory_order_acquire) != 0;
  }
  // Whether none does, and nothing has been asked of it since.
  bool IsIdle(uint64_t since_ns) const {
    return !IsInUse() && last_asked_ns.load(std::memory_order_relaxed) <= since_ns;
  }
  // Requests that were answered with a result and, of them, those that shared a replay.
  std::atomic<uint64_t> num_requests = 0;
  std::atomic<uint64_t> num_joint_requests = 0;
  void NoteResult(const engine::StepReport& report) {
    num_requests.fetch_add(1, std::memory_order_relaxed);
    if (report.other_rows != 0) num_joint_requests.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  friend class SessionRegistry;
  // The registry's, under its lock.
  CallOrigin origin_;                      // of its last stream
  const SessionStream* holder_ = nullptr;  // nullptr: detached
  std::weak_ptr<SessionStream> stream_;    // the same
  std::weak_ptr<SessionStream> next_;      // waits for it
  CallOrigin next_origin_;                 // of that one
  uint64_t detached_until_ns_ = 0;         // of one that is detached
};

// A call that works on a session, which is in use until the call has ended, however long it takes.
class CallInSession {
 public:
  CallInSession() = default;
  explicit CallInSession(std::shared_ptr<ServedSession> session) : session_(std::move(session)) {
    if (session_ != nullptr) session_->num_calls.fetch_add(1, std::memory_order_relaxed);
  }
  CallInSession(CallInSession&&) = default;
  CallInSession& operator=(CallInSession&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~CallInSession() {
    if (session_ == nullptr) return;
    session_->last_asked_ns.store(NowNs(), std::memory_order_relaxed);
    // Whoever sees that there is no call sees that time too.
    session_->num_calls.fetch_sub(1, std::memory_order_release);
  }
  ServedSession& operator*() const { return *session_; }
  ServedSession* operator->() const { return session_.get(); }

 private:
  std::shared_ptr<ServedSession> session_;
};

// What is told of a session.
struct SessionView {
  std::shared_ptr<const ServedSession> session;
  std::string peer;
  bool attached = false;
  uint64_t grace_left_ns = 0;
};

class SessionRegistry {
 public:
  // `limits`: of each session.
  SessionRegistry(uint32_t max_sessions, const engine::SessionLimits& limits)
      : max_sessions_(max_sessions), limits_(limits) {}

  // Opens a session in the engine, which `opening.stream` has. Errors: ResourceExhausted
  // (max_sessions, of all or of the account); PermissionDenied (the account may have none any
  // more).
  absl::StatusOr<std::shared_ptr<ServedSession>> Open(engine::DecodeEngine& engine,
                                                      Account& account,
                                                      const SessionOpening& opening);
  // Notes that the session was used. Takes the same time for every token, known or not. Errors
  // never repeat the token: InvalidArgument (wrong size), NotFound; that also where the session is
  // another account's; what the session was ended with, for a while after Evict or TakeExpired.
  absl::StatusOr<std::shared_ptr<ServedSession>> Find(std::string_view token,
                                                      const Account& account) const;

  // What to say to a call of the session that was refused as NotFound or Aborted, which may be
  // because the session has ended since Find gave it: as Find would, where that knows more than
  // that there is none; else `refusal`.
  absl::Status WhyEnded(const ServedSession& session, const absl::Status& refusal) const;

  // Whom a stream that attaches has to wait for.
  struct Attached {
    bool now = false;                       // for nobody
    std::shared_ptr<SessionStream> holder;  // is to lose the session
    std::shared_ptr<SessionStream> waiter;  // waited for it, and is to lose as well
  };
  // `stream` has the session now, or once Release hands it on; the caller tells the others. Errors:
  // FailedPrecondition (it has no grace time), Unavailable (draining); where it has ended, as Find.
  absl::StatusOr<Attached> Attach(ServedSession& session,
                                  const std::shared_ptr<SessionStream>& stream,
                                  const CallOrigin& origin);
  // What has become of a session that its stream let go of, and what the caller does.
  struct Released {
    enum class State : uint8_t {
      kGone,      // had ended before; nothing
      kEnded,     // no call finds it any more: ends it in the engine; tells `next` that it lost it
      kDetached,  // nothing
      kHandedOn,  // tells `next` that it gained it
    };
    State state = State::kGone;
    std::shared_ptr<SessionStream> next;
  };
  // `stream` lets go. `lost`: it was not closed, so the session outlives it for its grace time.
  Released Release(ServedSession& session, const SessionStream& stream, bool lost, uint64_t now_ns);

  // `stream` waits no more, if it did.
  void StopWaiting(ServedSession& session, const SessionStream& stream);

  // Sessions whose grace time is over. No call finds them any more; the caller ends them. Where it
  // throws std::bad_alloc, none has been taken.
  std::vector<std::shared_ptr<ServedSession>> TakeExpired(uint64_t now_ns);
  // From now on no session is detached; those that are: as TakeExpired.
  std::vector<std::shared_ptr<ServedSession>> Drain();
  struct Evicted {
    std::shared_ptr<ServedSession> session;
    std::vector<std::shared_ptr<SessionStream>> streams;  // which are to lose it
  };
  // No call finds the session any more; who asks for it is told `why`. The caller ends it. Errors:
  // NotFound.
  absl::StatusOr<Evicted> Evict(engine::SessionId id, const absl::Status& why);

  // The same of any one session of the account; nullopt where it has none.
  std::optional<Evicted> EvictOneOf(const Account& account, const absl::Status& why);

  // At most `count` sessions with higher ids, in their order.
  std::vector<SessionView> List(engine::SessionId after, size_t count, uint64_t now_ns) const;
  size_t num_open() const {
    std::lock_guard lock(mutex_);
    return sessions_.size();
  }
  size_t num_detached() const;
  uint32_t max_sessions() const { return max_sessions_; }
  // Of the session's last stream.
  CallOrigin OriginOf(const ServedSession& session) const {
    std::lock_guard lock(mutex_);
    return session.origin_;
  }

 private:
  // A session that ended without its client's doing.
  struct Ended {
    SessionToken token;
    const Account* account = nullptr;
    absl::Status why;
  };
  bool IsOpen(const ServedSession& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of one that is not open.
  absl::Status CauseOf(const ServedSession& session, const absl::Status& otherwise) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const ServedSession& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteEnded(const ServedSession& session, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  using Sessions = std::vector<std::shared_ptr<ServedSession>>;
  Evicted Take(Sessions::iterator session, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <typename IsTaken>
  std::vector<std::shared_ptr<ServedSession>> TakeDetached(IsTaken is_taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint32_t max_sessions_;
  const engine::SessionLimits limits_;
  mutable std::mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  // In the order of their ids.
  std::vector<std::shared_ptr<ServedSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Ended> ended_ ABSL_GUARDED_BY(mutex_);  // the last ones
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SESSION_REGISTRY_H_
