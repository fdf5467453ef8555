// SPDX-License-Identifier: Apache-2.0
// StepPipeline: keeps up to pipeline_depth steps of all sessions in flight on one engine, queues
// the rest, and takes results off with one thread. It knows neither gRPC nor wire messages: steps 3
// to 7 of the way of a step happen below Enqueue and above Finished.
//
// Order: a session's steps run in the order in which they came. Among sessions with steps that
// wait, the next one is that which has had the least time of the device since it began to ask; so a
// session that asks for little waits for the steps in flight and not for what others have queued.
//
// Threads: every method from any thread. Finished is called with no lock of the pipeline held.
#ifndef REPRISE_SERVICE_STEP_PIPELINE_H_
#define REPRISE_SERVICE_STEP_PIPELINE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "engine/step_result.h"
#include "service/step_queue.h"

namespace reprise::service {

class StepPipeline {
 public:
  // `engine` must outlive the pipeline. `on_fault` is called, on the pipeline's thread, when a step
  // was lost to a device fault.
  StepPipeline(engine::DecodeEngine& engine, std::function<void()> on_fault);
  // Takes in-flight steps to their end; queued ones are finished as Unavailable.
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  // Submits the job, or queues it in its session's queue while the pipeline is full. A refusal of
  // the engine's goes to Finished.
  void Enqueue(StepJob* job, StepQueue& queue);
  // Finishes the queue's waiting jobs as Aborted; those in flight go on.
  void Withdraw(StepQueue& queue);
  // Closes the session in the engine, which keeps what it holds until its steps in flight have
  // ended, and withdraws its queued jobs.
  void CloseSession(engine::SessionId session, StepQueue& queue);

 private:
  struct InFlight {
    engine::StepTicket ticket = 0;
    StepJob* job = nullptr;
  };

  // Moves queued jobs into the engine while there is room. Adds those that are refused to
  // `refused`.
  void SubmitWaiting(JobList* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Submit(StepJob* job, JobList* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The queue whose turn it is; nullptr when nothing waits.
  StepQueue* PickQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddJob(StepJob* job, StepQueue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StepJob* TakeJob(StepQueue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAllJobs(StepQueue& queue, JobList* withdrawn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The queue of a step that has ended: what it took of the device.
  static void NoteServed(StepQueue& queue, const absl::Status& status, uint64_t device_ns);
  static void Refuse(StepJob* job, absl::Status status, JobList* refused);
  static void FinishRefused(JobList* refused);
  void Pump();
  void FinishOldest();

  engine::DecodeEngine& engine_;
  const std::function<void()> on_fault_;

  // std::mutex and not absl::Mutex: the distribution's Abseil is not instrumented, so
  // ThreadSanitizer cannot see into the latter.
  std::mutex mutex_;
  std::condition_variable work_;
  StepQueue* first_waiting_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // served_ns_ of the queue that ran last, before that turn. A queue that comes back from having
  // nothing to do starts there.
  uint64_t turn_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);  // ring of pipeline_depth
  size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  engine::StepResult result_;  // of the pump thread
  std::thread pump_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_PIPELINE_H_
