// SPDX-License-Identifier: Apache-2.0
#include "service/step_pipeline.h"

#include <chrono>
#include <utility>

#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/out_of_memory.h"

namespace reprise::service {
namespace {

uint64_t NumGivenTokens(const engine::StepRequest& request) {
  uint64_t count = 0;
  for (const engine::RowChunk& chunk : request.chunks) count += chunk.tokens.size();
  for (const engine::RowDraft& draft : request.drafts) count += draft.tokens.size();
  return count;
}

absl::Status Stopping() { return absl::UnavailableError("the server is stopping"); }

}  // namespace

StepPipeline::StepPipeline(engine::DecodeEngine& engine, const JointLimits& joint,
                           std::function<void()> on_fault)
    : engine_(engine),
      profiler_(engine),
      joint_limits_(joint),
      on_fault_(std::move(on_fault)),
      in_flight_(engine.info().limits.pipeline_depth),
      gather_(joint.max_requests > 1 ? joint.max_wait_us * 1000 : 0),
      results_(joint.max_requests) {
  for (InFlight& step : in_flight_) step.jobs.reserve(joint.max_requests);
  finished_.reserve(joint.max_requests);
  joint_.reserve(joint.max_requests);
  requests_.reserve(joint.max_requests);
  pump_ = std::thread([this] { Pump(); });
}

StepPipeline::~StepPipeline() {
  JobList refused;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    while (StepJob* job = turns_.TakeNext()) Refuse(job, Stopping(), &refused);
  }
  work_.notify_one();
  idle_.notify_all();
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
      turns_.Add(job, queue);
      gather_.NoteCame(queue.pace_, NowNs());
      SubmitWaiting(&refused);
    }
  }
  work_.notify_one();
  FinishRefused(&refused);
}

// ---- queues ----

void StepPipeline::SetShare(StepShare& share, uint32_t weight, uint32_t priority) {
  std::lock_guard lock(mutex_);
  turns_.Set(share, weight, priority);
}

WaitingSteps StepPipeline::waiting() const {
  std::lock_guard lock(mutex_);
  WaitingSteps waiting = turns_.Look(NowNs());
  waiting.launches = num_in_flight_;
  for (size_t i = 0; i < num_in_flight_; ++i)
    waiting.in_flight += in_flight_[(oldest_ + i) % in_flight_.size()].jobs.size();
  return waiting;
}

void StepPipeline::TakeAllJobs(StepQueue& queue, JobList* withdrawn) {
  while (StepJob* job = turns_.Take(queue)) {
    gather_.NoteRefused(queue.pace_);
    Refuse(job, absl::AbortedError("the session's stream ended before this step ran"), withdrawn);
  }
}

void StepPipeline::NoteServed(StepJob& job, const engine::StepResult* result) {
  const uint64_t num_steps = result != nullptr ? result->steps.size() : 1;
  const uint64_t device_ns = result != nullptr ? result->ledger.device_ns : 0;
  gather_.NoteAnswered(job.queue_->pace_, NowNs(), device_ns / num_steps);
  turns_.NoteServed(job, num_steps, device_ns);
}

JobList StepPipeline::Withdraw(StepQueue& queue) {
  JobList withdrawn;
  std::lock_guard lock(mutex_);
  TakeAllJobs(queue, &withdrawn);
  return withdrawn;
}

void StepPipeline::CloseSession(engine::SessionId session, StepQueue& queue) {
  JobList withdrawn;
  {
    // Both under the lock: none of its jobs can come to the engine between the two.
    std::lock_guard lock(mutex_);
    TakeAllJobs(queue, &withdrawn);
    gather_.Forget(queue.pace_);
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
  hold_until_ns_ = 0;
  if (alone_in_flight_ || num_running_alone_ != 0) return;
  while (num_in_flight_ < in_flight_.size()) {
    StepJob* next = turns_.Next();
    if (next == nullptr) return;
    if (next->form != engine::StepForm::kPlain) {
      if (num_in_flight_ == 0) SubmitOfProfile(next, refused);
      if (num_in_flight_ != 0) return;
      continue;
    }
    ListJoint(next);
    const uint32_t kind = KindOf(*next);
    // A launch that is full waits for nobody.
    if (kind != 0 && joint_.size() < joint_limits_.max_requests) {
      hold_until_ns_ = gather_.HoldUntil(NowNs(), kind);
      if (hold_until_ns_ != 0) return;
    }
    SubmitJoint(refused);
  }
}

void StepPipeline::SubmitOfProfile(StepJob* next, JobList* refused) {
  next->times.submitted_ns = NowNs();
  absl::Status submitted = CatchOutOfMemory([next] { return next->CheckWanted(); });
  engine::StepTicket ticket = 0;
  if (submitted.ok()) {
    submitted = CatchOutOfMemory([&]() -> absl::Status {
      REPRISE_ASSIGN_OR_RETURN(ticket, profiler_.Submit(next->request, next->form));
      return absl::OkStatus();
    });
  }
  if (!submitted.ok()) return RefuseNow(next, std::move(submitted), refused);
  turns_.TakeTurn(*next);
  StepTurns::NoteSubmitted(*next);
  gather_.NoteSubmitted(next->queue_->pace_, KindOf(*next));
  InFlight& step = in_flight_[oldest_];
  step.ticket = ticket;
  step.jobs.assign(1, next);
  ++num_in_flight_;
  alone_in_flight_ = true;
}

absl::Status StepPipeline::RunAlone(const std::function<absl::Status()>& work) {
  absl::Status status = Stopping();
  JobList refused;
  {
    std::unique_lock lock(mutex_);
    ++num_running_alone_;
    while (!stopping_ && (num_in_flight_ != 0 || runs_alone_)) idle_.wait(lock);
    if (!stopping_) {
      runs_alone_ = true;
      lock.unlock();
      status = CatchOutOfMemory(work);
      lock.lock();
      runs_alone_ = false;
    }
    --num_running_alone_;
    SubmitWaiting(&refused);
  }
  idle_.notify_all();
  work_.notify_one();
  FinishRefused(&refused);
  return status;
}

uint32_t StepPipeline::KindOf(const StepJob& job) const {
  const engine::StepRequest& request = job.request;
  const bool alone = joint_limits_.max_requests == 1 || job.form != engine::StepForm::kPlain ||
                     request.mode != engine::ExecutionMode::kReplay ||
                     NumGivenTokens(request) > joint_limits_.max_given_tokens;
  return alone ? 0 : request.num_steps;
}

void StepPipeline::ListJoint(StepJob* next) {
  const uint32_t kind = KindOf(*next);
  const size_t most = kind == 0 ? 1 : joint_limits_.max_requests;
  turns_.ListJoint(
      next, most, [this, kind](const StepJob& job) { return kind != 0 && KindOf(job) == kind; },
      &joint_);
  uint64_t num_tokens = 0;
  std::erase_if(joint_, [this, &num_tokens](const StepJob* job) {
    const uint64_t own = NumGivenTokens(job->request);
    const bool fits = num_tokens == 0 || num_tokens + own <= joint_limits_.max_given_tokens;
    if (fits) num_tokens += own;
    return !fits;
  });
}

void StepPipeline::RefuseUnwanted(JobList* refused) {
  size_t kept = 0;
  for (StepJob* job : joint_) {
    absl::Status wanted = CatchOutOfMemory([job] { return job->CheckWanted(); });
    if (wanted.ok()) {
      joint_[kept++] = job;
    } else {
      RefuseNow(job, std::move(wanted), refused);
    }
  }
  joint_.resize(kept);
}

void StepPipeline::RefuseNow(StepJob* job, absl::Status status, JobList* refused) {
  turns_.TakeTurn(*job);
  StepTurns::NoteRefused(*job);
  gather_.NoteRefused(job->queue_->pace_);
  Refuse(job, std::move(status), refused);
}

void StepPipeline::SubmitJoint(JobList* refused) {
  const uint64_t now_ns = NowNs();
  for (StepJob* job : joint_) job->times.submitted_ns = now_ns;
  RefuseUnwanted(refused);
  if (joint_.empty()) return;
  requests_.clear();
  for (const StepJob* job : joint_) requests_.push_back({.request = &job->request});
  engine::StepTicket ticket = 0;
  absl::Status submitted = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(ticket, engine_.SubmitJoint(requests_));
    return absl::OkStatus();
  });
  // The others' turns come.
  if (!submitted.ok()) return RefuseNow(joint_.front(), std::move(submitted), refused);
  InFlight& step = in_flight_[(oldest_ + num_in_flight_) % in_flight_.size()];
  if (ticket != 0) {
    step.ticket = ticket;
    step.jobs.clear();
    ++num_in_flight_;
  }
  for (size_t i = 0; i < joint_.size(); ++i) {
    StepJob* job = joint_[i];
    switch (requests_[i].outcome) {
      case engine::JointRequest::Outcome::kTaken:
        step.jobs.empty() ? turns_.TakeTurn(*job) : turns_.TakeAlong(*job);
        StepTurns::NoteSubmitted(*job);
        gather_.NoteSubmitted(job->queue_->pace_, KindOf(*job));
        step.jobs.push_back(job);
        break;
      case engine::JointRequest::Outcome::kRefused:
        RefuseNow(job, std::move(requests_[i].status), refused);
        break;
      case engine::JointRequest::Outcome::kLeft:
        break;
    }
  }
}

void StepPipeline::Pump() {
  while (AwaitInFlight()) FinishOldest();
}

bool StepPipeline::AwaitInFlight() {
  std::unique_lock lock(mutex_);
  while (num_in_flight_ == 0) {
    if (stopping_) return false;
    if (hold_until_ns_ == 0) {
      work_.wait(lock);
      continue;
    }
    const uint64_t now_ns = NowNs();
    if (now_ns < hold_until_ns_) {
      work_.wait_for(lock, std::chrono::nanoseconds(hold_until_ns_ - now_ns));
      continue;
    }
    JobList refused;
    SubmitWaiting(&refused);
    lock.unlock();
    FinishRefused(&refused);
    lock.lock();
  }
  return true;
}

void StepPipeline::FinishOldest() {
  engine::StepTicket ticket = 0;
  {
    std::lock_guard lock(mutex_);
    ticket = in_flight_[oldest_].ticket;
    finished_ = in_flight_[oldest_].jobs;
  }
  const size_t num_jobs = finished_.size();
  absl::Status status = CatchOutOfMemory([&] {
    return engine_.WaitJoint(ticket, {results_.data(), num_jobs});
  });
  const uint64_t result_ns = NowNs();
  if (status.ok() && finished_[0]->form == engine::StepForm::kProfiled) {
    // Its graphs may have gone with its session meanwhile.
    const absl::Status read =
        CatchOutOfMemory([this] { return profiler_.ReadLastStamps(&stamps_); });
    if (read.ok()) finished_[0]->stamps = &stamps_;
  }
  // A step behind the one that failed is lost to the same fault, whatever its own Wait says.
  if (const absl::Status fault = engine_.health(); !status.ok() && !fault.ok()) status = fault;
  const auto result_of = [&](size_t i) { return status.ok() ? &results_[i] : nullptr; };
  JobList refused;
  {
    std::lock_guard lock(mutex_);
    oldest_ = (oldest_ + 1) % in_flight_.size();
    --num_in_flight_;
    alone_in_flight_ = false;
    for (size_t i = 0; i < num_jobs; ++i) {
      finished_[i]->times.result_ns = result_ns;
      NoteServed(*finished_[i], result_of(i));
    }
    // The next step goes in before this one is answered: an idle device costs more than a later
    // reply.
    SubmitWaiting(&refused);
  }
  idle_.notify_all();
  // Before the answer: whoever learns of the fault from it finds health changed already.
  if (!status.ok()) on_fault_();
  for (size_t i = 0; i < num_jobs; ++i) finished_[i]->Finished(status, result_of(i));
  finished_.clear();
  FinishRefused(&refused);
}

}  // namespace reprise::service
