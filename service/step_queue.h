// SPDX-License-Identifier: Apache-2.0
// StepJob, StepQueue and StepShare: a step on its way through the pipeline, those of one session
// that wait for it, and what all sessions of one identity get of the device. Linked through the
// jobs themselves, so that waiting allocates nothing and cannot fail. Who is next: step_turns.h.
// Threads: the pipeline's, under its lock; see StepPipeline.
#ifndef REPRISE_SERVICE_STEP_QUEUE_H_
#define REPRISE_SERVICE_STEP_QUEUE_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/step_form.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "engine/step_stamps.h"
#include "kernels/step/step_limits.h"
#include "service/step_gather.h"
#include "service/step_times.h"

namespace reprise::service {

class StepQueue;

// One step on its way through the pipeline. The owner keeps it, and everything that `request`
// views, until Finished.
class StepJob {
 public:
  virtual ~StepJob() = default;
  // Called exactly once per Enqueue, on the thread that enqueued (refused at once) or on the
  // pipeline's own. `result` is set when `status` is OK, and valid during the call. May destroy or
  // reuse the job. Must not block, nor throw.
  virtual void Finished(const absl::Status& status, const engine::StepResult* result) = 0;
  // OK while somebody waits for the answer. Asked right before the step is launched, under the
  // pipeline's lock; an error is what the step is refused with.
  virtual absl::Status CheckWanted() { return absl::OkStatus(); }

  engine::StepRequest request;
  StepTimes times;
  engine::StepForm form = engine::StepForm::kPlain;  // others run alone
  // Of a profiled step that ran; valid during Finished. nullptr: there are none.
  const engine::StepStamps* stamps = nullptr;

 private:
  friend class StepQueue;
  friend class StepPipeline;
  friend class StepTurns;
  friend class JobList;
  StepQueue* queue_ = nullptr;  // from Enqueue to Finished
  StepJob* next_ = nullptr;     // in the queue, or in the list of those refused
  uint64_t expected_ns_ = 0;    // of the device, as far as its session's last step tells
  bool goes_along_ = false;     // in a replay that another job pays for
  absl::Status refusal_;        // of one in the latter
};

// Jobs in the order in which they came.
class JobList {
 public:
  bool empty() const { return first_ == nullptr; }
  StepJob* front() const { return first_; }
  void PushBack(StepJob* job) {
    job->next_ = nullptr;
    (first_ == nullptr ? first_ : last_->next_) = job;
    last_ = job;
  }
  StepJob* PopFront() {
    StepJob* job = first_;
    first_ = job->next_;
    return job;
  }

 private:
  StepJob* first_ = nullptr;
  StepJob* last_ = nullptr;
};

// What one identity gets of the device beside others, and has had of it. Outlives its queues.
// StepTurns::Set changes what it gets.
class StepShare {
 public:
  static constexpr uint32_t kMaxWeight = 100;
  static constexpr uint32_t kNumPriorities = 10;

  // REQUIRES: `weight` is 1 to kMaxWeight, `priority` below kNumPriorities.
  explicit StepShare(uint32_t weight = 1, uint32_t priority = 0)
      : weight_(weight), priority_(priority) {}
  StepShare(const StepShare&) = delete;
  StepShare& operator=(const StepShare&) = delete;

 private:
  friend class StepTurns;
  // By weight, what it will have had once its steps in flight are done.
  uint64_t ServedAfterThoseInFlightNs() const { return served_ns_ + in_flight_ns_ / weight_; }
  // Whether its turn comes before that of `other`. Of equals the one whose last is longer ago.
  bool IsBefore(const StepShare& other) const {
    if (priority_ != other.priority_) return priority_ > other.priority_;
    const uint64_t own_ns = ServedAfterThoseInFlightNs();
    const uint64_t others_ns = other.ServedAfterThoseInFlightNs();
    return own_ns != others_ns ? own_ns < others_ns : latest_turn_ < other.latest_turn_;
  }
  void AddServed(uint64_t took_ns) { served_ns_ += took_ns / weight_; }

  uint64_t weight_;
  uint32_t priority_;
  // Device time of its steps by its weight, from a start that leaves it level with the others of
  // its priority whenever it comes back from having nothing to do.
  uint64_t served_ns_ = 0;
  uint64_t in_flight_ns_ = 0;  // what its steps in flight are expected to take
  // Of its queues: served_ns_ of that which ran last, before that turn.
  uint64_t turn_ns_ = 0;
  uint64_t latest_turn_ = 0;            // counts the turns of all
  StepQueue* first_waiting_ = nullptr;  // of its queues with waiting jobs
  StepShare* previous_ = nullptr;       // among the shares with waiting jobs
  StepShare* next_ = nullptr;
};

// The steps of one session that wait, and the device time it has used. Outlives its jobs.
class StepQueue {
 public:
  // `share`: of the identity whose session it is.
  explicit StepQueue(StepShare& share) : share_(share) {}
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

 private:
  friend class StepTurns;
  friend class StepPipeline;
  // The steps that a request counts as. Its number has not been checked yet.
  static uint64_t NumSteps(const StepJob& job) {
    return std::clamp(job.request.num_steps, 1u, kernels::kMaxStepsPerRequest);
  }
  // The device time that the session will have used once its steps in flight and those of its next
  // request are done, as far as its last ones tell: of two that used as much, the one that asks for
  // less is first. REQUIRES: a job waits.
  uint64_t ServedAfterNextNs() const {
    return served_ns_ + (in_flight_ + NumSteps(*waiting_.front())) * last_step_ns_;
  }

  StepShare& share_;
  StepGather::Pace pace_;
  JobList waiting_;
  uint64_t in_flight_ = 0;  // steps
  // Device time of its steps, from a start that leaves it level with the others whenever it comes
  // back from having nothing to do.
  uint64_t served_ns_ = 0;
  uint64_t last_step_ns_ = 0;      // of one step; before its first ends, that of another session's
  StepQueue* previous_ = nullptr;  // among its share's queues with waiting jobs
  StepQueue* next_ = nullptr;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_QUEUE_H_
