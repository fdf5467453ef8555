// SPDX-License-Identifier: Apache-2.0
// SessionRegistry: the sessions that are open on streams, by their tokens. What a session holds is
// the engine's to know. Threads: every method from any thread.
#ifndef REPRISE_SERVICE_SESSION_REGISTRY_H_
#define REPRISE_SERVICE_SESSION_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "service/clock.h"
#include "service/session_token.h"
#include "service/step_queue.h"
#include "service/unary_answers.h"

namespace reprise::service {

struct ServedSession {
  engine::SessionInfo info;  // set by Open alone
  const SessionToken token = SessionToken::Random();
  StepQueue queue;
  UnaryAnswers answers;
  std::atomic<uint64_t> last_asked_ns = NowNs();  // when a call last named it, or a message came
};

class SessionRegistry {
 public:
  // `limits`: of each session.
  SessionRegistry(uint32_t max_sessions, const engine::SessionLimits& limits)
      : max_sessions_(max_sessions), limits_(limits) {}

  // Opens a session in the engine. Errors: ResourceExhausted (max_sessions).
  absl::StatusOr<std::shared_ptr<ServedSession>> Open(engine::DecodeEngine& engine);
  // Notes that the session was used. Takes the same time for every token, known or not. Errors
  // never repeat the token: InvalidArgument (wrong size), NotFound.
  absl::StatusOr<std::shared_ptr<ServedSession>> Find(std::string_view token) const;
  // No call finds the session any more.
  void Forget(const ServedSession& session);

 private:
  const uint32_t max_sessions_;
  const engine::SessionLimits limits_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ServedSession>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SESSION_REGISTRY_H_
