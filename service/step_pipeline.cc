// SPDX-License-Identifier: Apache-2.0
#include "service/step_pipeline.h"

#include <algorithm>
#include <utility>

#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/out_of_memory.h"

namespace reprise::service {
namespace {

// What a step counts at least: validating, launching and answering it takes time as well.
constexpr uint64_t kLeastStepNs = 20'000;

absl::Status Stopping() { return absl::UnavailableError("the server is stopping"); }

}  // namespace

StepPipeline::StepPipeline(engine::DecodeEngine& engine, std::function<void()> on_fault)
    : engine_(engine),
      on_fault_(std::move(on_fault)),
      in_flight_(engine.info().limits.pipeline_depth),
      pump_([this] { Pump(); }) {}

StepPipeline::~StepPipeline() {
  JobList refused;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    while (StepQueue* queue = PickQueue()) Refuse(TakeJob(*queue), Stopping(), &refused);
  }
  work_.notify_one();
  FinishRefused(&refused);
  pump_.join();
}

void StepPipeline::Enqueue(StepJob* job, StepQueue& queue) {
  JobList refused;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      Refuse(job, Stopping(), &refused);
    } else {
      AddJob(job, queue);
      SubmitWaiting(&refused);
    }
  }
  work_.notify_one();
  FinishRefused(&refused);
}

// ---- queues ----

void StepPipeline::AddJob(StepJob* job, StepQueue& queue) {
  job->queue_ = &queue;
  if (queue.waiting_.empty()) {
    // Time in which a session asked for nothing gives it no claim on what others ask for now. What
    // it has in flight is not counted yet, so it starts that much behind.
    const uint64_t in_flight_ns = std::min(turn_ns_, queue.in_flight_ * queue.last_step_ns_);
    queue.served_ns_ = std::max(queue.served_ns_, turn_ns_ - in_flight_ns);
    queue.previous_ = nullptr;
    queue.next_ = first_waiting_;
    if (first_waiting_ != nullptr) first_waiting_->previous_ = &queue;
    first_waiting_ = &queue;
  }
  queue.waiting_.PushBack(job);
}

StepJob* StepPipeline::TakeJob(StepQueue& queue) {
  StepJob* job = queue.waiting_.PopFront();
  if (!queue.waiting_.empty()) return job;
  (queue.previous_ == nullptr ? first_waiting_ : queue.previous_->next_) = queue.next_;
  if (queue.next_ != nullptr) queue.next_->previous_ = queue.previous_;
  return job;
}

StepQueue* StepPipeline::PickQueue() {
  StepQueue* picked = first_waiting_;
  for (StepQueue* queue = picked; queue != nullptr; queue = queue->next_) {
    const uint64_t served_ns = queue->ServedAfterNextNs();
    const uint64_t least_ns = picked->ServedAfterNextNs();
    // Of equals the one whose step has waited longest.
    if (served_ns < least_ns ||
        (served_ns == least_ns && queue->waiting_.front()->times.converted_ns <
                                      picked->waiting_.front()->times.converted_ns))
      picked = queue;
  }
  return picked;
}

void StepPipeline::TakeAllJobs(StepQueue& queue, JobList* withdrawn) {
  while (!queue.waiting_.empty()) {
    Refuse(TakeJob(queue), absl::AbortedError("the session's stream ended before this step ran"),
           withdrawn);
  }
}

void StepPipeline::NoteServed(StepQueue& queue, const absl::Status& status, uint64_t device_ns) {
  --queue.in_flight_;
  queue.last_step_ns_ = std::max(status.ok() ? device_ns : 0, kLeastStepNs);
  queue.served_ns_ += queue.last_step_ns_;
}

void StepPipeline::Withdraw(StepQueue& queue) {
  JobList withdrawn;
  {
    std::lock_guard lock(mutex_);
    TakeAllJobs(queue, &withdrawn);
  }
  FinishRefused(&withdrawn);
}

void StepPipeline::CloseSession(engine::SessionId session, StepQueue& queue) {
  JobList withdrawn;
  {
    // Both under the lock: none of its jobs can come to the engine between the two.
    std::lock_guard lock(mutex_);
    TakeAllJobs(queue, &withdrawn);
    // NotFound means that nothing is left to close; a fault is the engine's health to tell.
    engine_.CloseSession(session).IgnoreError();
  }
  FinishRefused(&withdrawn);
}

// ---- refusals ----

void StepPipeline::Refuse(StepJob* job, absl::Status status, JobList* refused) {
  job->refusal_ = std::move(status);
  refused->PushBack(job);
}

void StepPipeline::FinishRefused(JobList* refused) {
  while (!refused->empty()) {
    StepJob* job = refused->PopFront();
    const absl::Status status = std::exchange(job->refusal_, absl::OkStatus());
    job->Finished(status, nullptr);
  }
}

// ---- steps ----

void StepPipeline::SubmitWaiting(JobList* refused) {
  while (num_in_flight_ < in_flight_.size()) {
    StepQueue* queue = PickQueue();
    if (queue == nullptr) return;
    turn_ns_ = std::max(turn_ns_, queue->served_ns_);
    Submit(TakeJob(*queue), refused);
  }
}

void StepPipeline::Submit(StepJob* job, JobList* refused) {
  job->times.submitted_ns = NowNs();
  engine::StepTicket ticket = 0;
  absl::Status submitted = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(job->CheckWanted());
    REPRISE_ASSIGN_OR_RETURN(ticket, engine_.Submit(job->request));
    return absl::OkStatus();
  });
  if (!submitted.ok()) {
    job->queue_->served_ns_ += kLeastStepNs;
    return Refuse(job, std::move(submitted), refused);
  }
  ++job->queue_->in_flight_;
  in_flight_[(oldest_ + num_in_flight_) % in_flight_.size()] = {ticket, job};
  ++num_in_flight_;
}

void StepPipeline::Pump() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || num_in_flight_ != 0; });
      if (num_in_flight_ == 0) return;
    }
    FinishOldest();
  }
}

void StepPipeline::FinishOldest() {
  InFlight oldest;
  {
    std::lock_guard lock(mutex_);
    oldest = in_flight_[oldest_];
  }
  absl::Status status = CatchOutOfMemory([&] { return engine_.Wait(oldest.ticket, &result_); });
  oldest.job->times.result_ns = NowNs();
  // A step behind the one that failed is lost to the same fault, whatever its own Wait says.
  if (const absl::Status fault = engine_.health(); !status.ok() && !fault.ok()) status = fault;
  JobList refused;
  {
    std::lock_guard lock(mutex_);
    oldest_ = (oldest_ + 1) % in_flight_.size();
    --num_in_flight_;
    NoteServed(*oldest.job->queue_, status, result_.ledger.device_ns);
    // The next step goes in before this one is answered: an idle device costs more than a later
    // reply.
    SubmitWaiting(&refused);
  }
  // Before the answer: whoever learns of the fault from it finds health changed already.
  if (!status.ok()) on_fault_();
  oldest.job->Finished(status, status.ok() ? &result_ : nullptr);
  FinishRefused(&refused);
}

}  // namespace reprise::service
