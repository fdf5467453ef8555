// SPDX-License-Identifier: Apache-2.0
// StepJob and StepQueue: a step on its way through the pipeline, and those of one session that wait
// for it. Linked through the jobs themselves, so that waiting allocates nothing and cannot fail.
// Threads: the pipeline's, under its lock; see StepPipeline.
#ifndef REPRISE_SERVICE_STEP_QUEUE_H_
#define REPRISE_SERVICE_STEP_QUEUE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
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

 private:
  friend class StepQueue;
  friend class StepPipeline;
  friend class JobList;
  StepQueue* queue_ = nullptr;  // from Enqueue to Finished
  StepJob* next_ = nullptr;     // in the queue, or in the list of those refused
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

// The steps of one session that wait, and the device time it has used. Outlives its jobs.
class StepQueue {
 public:
  StepQueue() = default;
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

 private:
  friend class StepPipeline;
  // The device time that the session will have used once its steps in flight and the next one are
  // done, as far as its last step tells: of two that used as much, the one that asks for less is
  // first.
  uint64_t ServedAfterNextNs() const { return served_ns_ + (in_flight_ + 1) * last_step_ns_; }

  JobList waiting_;
  uint32_t in_flight_ = 0;
  // Device time of its steps, from a start that leaves it level with the others whenever it comes
  // back from having nothing to do.
  uint64_t served_ns_ = 0;
  uint64_t last_step_ns_ = 0;
  StepQueue* previous_ = nullptr;  // among the queues with waiting jobs
  StepQueue* next_ = nullptr;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_QUEUE_H_
