// SPDX-License-Identifier: Apache-2.0
// Sessions: which streams are connected, which sessions they opened, and whether the server still
// takes new ones. The engine owns what a session holds; this is the service's book of who may still
// talk. Threads: every method from any thread. No lock is held while a stream is called.
#ifndef REPRISE_SERVICE_SESSIONS_H_
#define REPRISE_SERVICE_SESSIONS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/step.h"

namespace reprise::service {

class Sessions {
 public:
  class Stream {
   public:
    virtual ~Stream() = default;
    // Takes no further steps; ends once those accepted are answered.
    virtual void Drain() = 0;
  };

  // Unavailable while draining.
  absl::Status CheckAdmitting() const;
  // A stream is connected until Leave. Errors: Unavailable while draining.
  absl::Status Join(const std::shared_ptr<Stream>& stream);
  void Leave(const Stream* stream);
  // What streams did before they left is done before this returns. REQUIRES: all have.
  void Settle() const;

  // A session is open from Open to Close.
  void Open(engine::SessionId session);
  void Close(engine::SessionId session);
  // NotFound unless the session is open.
  absl::Status CheckOpen(engine::SessionId session) const;

  // Counts a unary step of an open session; each success needs an EndStep. Errors: NotFound;
  // ResourceExhausted when `limit` are on their way already.
  absl::Status BeginStep(engine::SessionId session, uint32_t limit);
  void EndStep(engine::SessionId session);

  // From now on nothing is admitted, and every connected stream is told to drain.
  void Drain();
  // Waits until no stream is connected and no unary step is on its way. False at the deadline.
  bool WaitIdle(std::chrono::steady_clock::time_point deadline);

 private:
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<const Stream*, std::weak_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<engine::SessionId, uint32_t> open_ ABSL_GUARDED_BY(mutex_);  // unary steps
  uint32_t unary_steps_ ABSL_GUARDED_BY(mutex_) = 0;  // of all sessions, closed ones included
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SESSIONS_H_
