// SPDX-License-Identifier: Apache-2.0
// CallLimit: calls of a server that may never answer: breaks off those that take too long, and
// those that go on when a signal has asked the command to end. A session's stream needs it: gRPC's
// own deadline is of a whole stream, and not of a step on it.
#ifndef REPRISE_TOOLS_REPLAY_CALL_LIMIT_H_
#define REPRISE_TOOLS_REPLAY_CALL_LIMIT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "grpcpp/client_context.h"

namespace reprise::tools {

// One thread calls, one call at a time.
class CallLimit {
 public:
  // Of every call; a time of 0: only a signal ends it. `interrupted` must outlive the limit. Throws
  // std::system_error where no thread can be had.
  CallLimit(std::chrono::nanoseconds time, const std::atomic<bool>* interrupted);
  ~CallLimit();
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

 private:
  friend class LimitedCall;
  void Watch();

  const std::chrono::nanoseconds time_;
  const std::atomic<bool>* const interrupted_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the call; nullptr: there is none.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::chrono::steady_clock::time_point begin_ ABSL_GUARDED_BY(mutex_){};  // of the call
  absl::Status broken_off_ ABSL_GUARDED_BY(mutex_);                        // the call, and why
  std::thread thread_;  // the last member: it uses the others
};

// A call, or a message and its answer on a stream, from construction to destruction.
class LimitedCall {
 public:
  // Both must outlive it.
  LimitedCall(CallLimit* limit, grpc::ClientContext* context);
  ~LimitedCall();
  LimitedCall(const LimitedCall&) = delete;
  LimitedCall& operator=(const LimitedCall&) = delete;

  // OK where the call was not broken off, else why: DeadlineExceeded ("got no answer within 60.0 s,
  // allowed: ..."), Cancelled ("interrupted").
  absl::Status broken_off() const;

 private:
  CallLimit* const limit_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_CALL_LIMIT_H_
