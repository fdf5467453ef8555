// SPDX-License-Identifier: Apache-2.0
// UnaryAnswers: a session's unary steps that are on their way, and the answer to the last of them:
// a client whose answer was lost on the way sends the same request again and is given it. Threads:
// every method from any thread.
#ifndef REPRISE_SERVICE_UNARY_ANSWERS_H_
#define REPRISE_SERVICE_UNARY_ANSWERS_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "service/memory_budget.h"

namespace reprise::service {

// What identifies a repetition of a unary step.
struct UnaryRequest {
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;  // a hash of its bytes
};

// Who waits for the answer to a request that somebody else has sent before.
class UnaryWaiter {
 public:
  virtual ~UnaryWaiter() = default;
  // `answer` is set when `status` is OK; the bytes are shared.
  virtual void Answer(const absl::Status& status, const grpc::ByteBuffer* answer) = 0;
};

class UnaryAnswers {
 public:
  enum class Claim : uint8_t {
    kRun,       // nobody has sent it: run it, and call Finish
    kWait,      // it is on its way: `waiter` is told
    kAnswered,  // `answer` is what it was answered with
  };
  // Errors: FailedPrecondition when another request with this sequence number has been sent.
  absl::StatusOr<Claim> Begin(const UnaryRequest& request, UnaryWaiter* waiter,
                              grpc::ByteBuffer* answer);
  // Whether any request is on its way.
  bool IsBusy() const;
  // Takes back a request that was to run, in place of Finish, if nobody but its sender waits for
  // it: who sends it from now on runs it. False: somebody waits for it, and it stays.
  bool Withdraw(const UnaryRequest& request);
  // Ends a request that was to run, and keeps its answer, the last one, charged to `memory`, unless
  // it was refused (nullptr). Returns those who wait for it.
  std::vector<UnaryWaiter*> Finish(const UnaryRequest& request, const grpc::ByteBuffer* answer,
                                   MemoryBudget& memory);

 private:
  struct OnItsWay {
    UnaryRequest request;
    std::vector<UnaryWaiter*> waiters;
  };

  std::vector<OnItsWay>::iterator Find(const UnaryRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  std::vector<OnItsWay> on_their_way_ ABSL_GUARDED_BY(mutex_);
  UnaryRequest last_ ABSL_GUARDED_BY(mutex_);  // sequence 0: none
  grpc::ByteBuffer last_answer_ ABSL_GUARDED_BY(mutex_);
  MemoryBudget::Charge last_charge_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_UNARY_ANSWERS_H_
