// SPDX-License-Identifier: Apache-2.0
// StepPipeline: keeps up to pipeline_depth steps of all sessions in flight on one engine, queues
// the rest in arrival order, and takes results off with one thread. It knows neither gRPC nor wire
// messages: steps 3 to 7 of the way of a step happen below Enqueue and above Finished.
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
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "service/step_times.h"

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
  // Closes the session in the engine, which keeps what it holds until its steps in flight have
  // ended, and withdraws its queued jobs.
  void CloseSession(engine::SessionId session);

 private:
  struct InFlight {
    engine::StepTicket ticket;
    StepJob* job;
  };
  struct Refusal {
    StepJob* job;
    absl::Status status;
  };

  // Moves queued jobs into the engine while there is room, in order. Adds those that it refuses to
  // `refused`.
  void SubmitWaiting(std::vector<Refusal>* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Refusal> TakeWaiting(engine::SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  engine::StepResult result_;  // of the pump thread
  std::thread pump_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_PIPELINE_H_
