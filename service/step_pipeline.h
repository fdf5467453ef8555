// SPDX-License-Identifier: Apache-2.0
// StepPipeline: keeps up to pipeline_depth steps of all sessions in flight on one engine, queues
// the rest, and takes results off with one thread. It knows neither gRPC nor wire messages: steps 3
// to 7 of the way of a step happen below Enqueue and above Finished.
//
// Order: step_turns.h. A session that asks for little waits for the steps in flight and not for
// what others of its priority have queued.
//
// Steps of several sessions that wait together run in one replay, within JointLimits; step_gather.h
// says when one waits for others to come.
//
// A stamped step runs alone: nothing is in flight when it is submitted, and nothing is submitted
// until its stamps have been read.
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
#include "engine/engine_profiler.h"
#include "engine/step_result.h"
#include "engine/step_stamps.h"
#include "service/joint_limits.h"
#include "service/step_gather.h"
#include "service/step_queue.h"
#include "service/step_turns.h"

namespace reprise::service {

class StepPipeline {
 public:
  // `engine` must outlive the pipeline. `on_fault` is called, on the pipeline's thread, when a step
  // was lost to a device fault.
  StepPipeline(engine::DecodeEngine& engine, const JointLimits& joint,
               std::function<void()> on_fault);
  // Takes in-flight steps to their end; queued ones are finished as Unavailable.
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  // Submits the job, or queues it in its session's queue while the pipeline is full. A refusal of
  // the engine's goes to Finished.
  void Enqueue(StepJob* job, StepQueue& queue);
  // Takes the waiting jobs out of the queue; those in flight go on. The caller has FinishRefused
  // end them as Aborted, with no lock held that Finished takes.
  [[nodiscard]] JobList Withdraw(StepQueue& queue);
  static void FinishRefused(JobList* refused);
  // Closes the session in the engine, which keeps what it holds until its steps in flight have
  // ended, and withdraws its queued jobs.
  void CloseSession(engine::SessionId session, StepQueue& queue);

  // Runs `work` on this thread once the steps in flight have ended. Those that come meanwhile wait
  // for its end. Errors: Unavailable (the server is stopping); those of `work`.
  absl::Status RunAlone(const std::function<absl::Status()>& work);

  // What an identity gets of the device from now on: StepTurns::Set.
  void SetShare(StepShare& share, uint32_t weight, uint32_t priority);

  // Looks at the sessions that wait, and holds the lock for as long.
  WaitingSteps waiting() const;

 private:
  struct InFlight {
    engine::StepTicket ticket = 0;
    std::vector<StepJob*> jobs;
  };

  // Moves queued jobs into the engine while there is room, or holds them until hold_until_ns_. Adds
  // those that are refused to `refused`.
  void SubmitWaiting(JobList* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To joint_: `next`, whose turn it is, and others that may be one launch with it.
  void ListJoint(StepJob* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes or refuses the first of joint_ at least.
  void SubmitJoint(JobList* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Refuses what nobody waits for any more, and what does not stay in joint_.
  void RefuseUnwanted(JobList* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefuseNow(StepJob* job, absl::Status status, JobList* refused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes or refuses `next`, whose turn it is, and which replays a graph of a profile. REQUIRES:
  // none is in flight.
  void SubmitOfProfile(StepJob* next, JobList* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Jobs of one kind may run beside each other; 0: it runs alone.
  uint32_t KindOf(const StepJob& job) const;
  void TakeAllJobs(StepQueue& queue, JobList* withdrawn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A request has ended: what it took of the device counts for its session and identity.
  // result: nullptr where it was lost.
  void NoteServed(StepJob& job, const engine::StepResult* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Refuse(StepJob* job, absl::Status status, JobList* refused);
  void Pump();
  // False when the pipeline stops.
  bool AwaitInFlight();
  void FinishOldest();

  engine::DecodeEngine& engine_;
  engine::EngineProfiler profiler_;
  const JointLimits joint_limits_;
  const std::function<void()> on_fault_;

  // std::mutex and not absl::Mutex: the distribution's Abseil is not instrumented, so
  // ThreadSanitizer cannot see into the latter.
  mutable std::mutex mutex_;
  std::condition_variable work_;
  StepTurns turns_ ABSL_GUARDED_BY(mutex_);
  std::vector<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);  // ring of pipeline_depth
  size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::condition_variable idle_;                            // none is in flight
  bool alone_in_flight_ ABSL_GUARDED_BY(mutex_) = false;    // one of a profile, and nothing else
  uint32_t num_running_alone_ ABSL_GUARDED_BY(mutex_) = 0;  // RunAlone, waiting or at work
  bool runs_alone_ ABSL_GUARDED_BY(mutex_) = false;         // one of them is at work
  StepGather gather_ ABSL_GUARDED_BY(mutex_);
  uint64_t hold_until_ns_ ABSL_GUARDED_BY(mutex_) = 0;                  // as StepGather::HoldUntil
  std::vector<StepJob*> joint_ ABSL_GUARDED_BY(mutex_);                 // scratch of SubmitWaiting
  std::vector<engine::JointRequest> requests_ ABSL_GUARDED_BY(mutex_);  // likewise

  // Of the pump thread.
  std::vector<StepJob*> finished_;
  std::vector<engine::StepResult> results_;
  engine::StepStamps stamps_;
  std::thread pump_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_PIPELINE_H_
