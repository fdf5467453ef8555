// SPDX-License-Identifier: Apache-2.0
// Admission: who may still make calls: which streams are connected, how many unary steps are on
// their way, and whether the server still takes new ones. Which sessions are open and what they
// hold is the engine's to know. Threads: every method from any thread. No lock is held while a
// stream is called.
#ifndef REPRISE_SERVICE_ADMISSION_H_
#define REPRISE_SERVICE_ADMISSION_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/session_info.h"

namespace reprise::service {

class Admission {
 public:
  class Stream {
   public:
    virtual ~Stream() = default;
    // Takes no further steps; ends once those accepted are answered, of unary ones of its session
    // as well. Told again when the last of these has ended.
    virtual void Drain() = 0;
    // Ends if nothing was asked of it since `since_ns` (NowNs()) and nothing is unanswered, or if
    // its client has not taken an answer that was written before then.
    virtual void EndIfIdle(uint64_t since_ns) = 0;
    // Ends without any more word to its client if it has lost its session to another stream, or to
    // an administrator, before `since_ns`, and its client has not taken an answer since then.
    virtual void CutIfLost(uint64_t since_ns) = 0;
  };

  // Unavailable while draining.
  absl::Status CheckAdmitting() const;
  // A stream is connected until Leave. Errors: Unavailable while draining.
  absl::Status Join(const std::shared_ptr<Stream>& stream);
  void Leave(const Stream* stream);
  // What streams did before they left is done before this returns. REQUIRES: all have.
  void Settle() const;

  // Counts a unary step of the session; each success needs an AnswerStep, right before its client
  // is answered, and an EndStep, when the answer is taken and nothing of it is left. Errors:
  // Unavailable while draining; ResourceExhausted when `limit` of the session are unanswered
  // already, or twice as many have not ended.
  absl::Status BeginStep(engine::SessionId session, uint32_t limit);
  void AnswerStep(engine::SessionId session);
  void EndStep(engine::SessionId session);

  // Tells every connected stream.
  void EndIdleStreams(uint64_t since_ns);
  void CutLostStreams(uint64_t since_ns);

  // From now on nothing is admitted, and every connected stream is told to drain.
  void Drain();
  // Waits until no stream is connected and no unary step is on its way. False at the deadline.
  bool WaitIdle(std::chrono::steady_clock::time_point deadline);

 private:
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<Stream>> ConnectedStreams() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<const Stream*, std::weak_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  struct UnarySteps {
    uint32_t unanswered = 0;
    uint32_t all = 0;
  };
  // By session; sessions without any are not in it.
  absl::flat_hash_map<engine::SessionId, UnarySteps> unary_steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ADMISSION_H_
