// SPDX-License-Identifier: Apache-2.0
// StepPipeline: keeps up to pipeline_depth steps of all sessions in flight on one engine, queues
// the rest in arrival order, and takes results off with one thread. No gRPC, no wire: steps 3 to 7
// of a step's way happen below Enqueue and above Finished.
//
// Threads: every method from any thread. Finished is called with no lock of the pipeline held.
#ifndef REPRISE_SERVICE_STEP_PIPELINE_H_
#define REPRISE_SERVICE_STEP_PIPELINE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "engine/step.h"
#include "service/wire.h"

namespace reprise::service {

// One step on its way through the pipeline. The owner keeps it, and everything that `request`
// views, until Finished.
class StepJob {
 public:
  virtual ~StepJob() = default;
  // Called exactly once per Enqueue, on the thread that enqueued (refused at once) or on the
  // pipeline's own. `result` is set when `status` is OK, and valid during the call. May destroy or
  // reuse the job. Must not block.
  virtual void Finished(const absl::Status& status, const engine::StepResult* result) = 0;

  engine::StepRequest request;
  StepTimes times;
};

class StepPipeline {
 public:
  // `engine` must outlive the pipeline. `on_fault` is called, on the pipeline's thread, when a step
  // was lost to a device fault.
  StepPipeline(engine::DecodeEngine& engine, std::function<void()> on_fault);
  // Takes in-flight steps to their end; queued ones are finished as Unavailable.
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  // Submits the job, or queues it while the pipeline is full. A refusal of the engine's goes to
  // Finished.
  void Enqueue(StepJob* job);
  // Finishes the session's queued jobs as Aborted; those in flight go on.
  void Withdraw(engine::SessionId session);
  // Withdraws, then closes the session in the engine as soon as none of its steps is in flight.
  void CloseSession(engine::SessionId session);

 private:
  struct InFlight {
    engine::StepTicket ticket;
    StepJob* job;
    engine::SessionId session;
  };
  struct Refusal {
    StepJob* job;
    absl::Status status;
  };

  // Moves queued jobs into the engine while there is room, in order. Adds those that it refuses to
  // `refused`.
  void SubmitWaiting(std::vector<Refusal>* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the sessions out of closing_ that have no step in flight any more.
  std::vector<engine::SessionId> TakeIdleClosing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Refusal> TakeWaiting(engine::SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsInFlight(engine::SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump();
  void FinishOldest();

  engine::DecodeEngine& engine_;
  const size_t depth_;
  const std::function<void()> on_fault_;

  // std::mutex and not absl::Mutex: the distribution's Abseil is not instrumented, so
  // ThreadSanitizer cannot see into the latter.
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<StepJob*> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::vector<engine::SessionId> closing_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  engine::StepResult result_;  // of the pump thread
  std::thread pump_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_PIPELINE_H_
