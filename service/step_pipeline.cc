// SPDX-License-Identifier: Apache-2.0
#include "service/step_pipeline.h"

#include <utility>

#include "service/clock.h"

namespace reprise::service {

StepPipeline::StepPipeline(engine::DecodeEngine& engine, std::function<void()> on_fault)
    : engine_(engine),
      depth_(engine.info().limits.pipeline_depth),
      on_fault_(std::move(on_fault)),
      pump_([this] { Pump(); }) {}

StepPipeline::~StepPipeline() {
  std::deque<StepJob*> waiting;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting.swap(waiting_);
  }
  work_.notify_one();
  for (StepJob* job : waiting) {
    job->Finished(absl::UnavailableError("the server is stopping"), nullptr);
  }
  pump_.join();
}

void StepPipeline::Enqueue(StepJob* job) {
  std::vector<Refusal> refused;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      refused.push_back({job, absl::UnavailableError("the server is stopping")});
    } else {
      waiting_.push_back(job);
      SubmitWaiting(&refused);
    }
  }
  work_.notify_one();
  for (const Refusal& refusal : refused) refusal.job->Finished(refusal.status, nullptr);
}

void StepPipeline::SubmitWaiting(std::vector<Refusal>* refused) {
  while (!waiting_.empty() && in_flight_.size() < depth_) {
    StepJob* job = waiting_.front();
    waiting_.pop_front();
    job->times.submitted_ns = NowNs();
    absl::StatusOr<engine::StepTicket> ticket = engine_.Submit(job->request);
    if (ticket.ok()) {
      in_flight_.push_back({*ticket, job});
    } else {
      refused->push_back({job, std::move(ticket).status()});
    }
  }
}

void StepPipeline::Withdraw(engine::SessionId session) {
  std::vector<Refusal> withdrawn;
  {
    std::lock_guard lock(mutex_);
    withdrawn = TakeWaiting(session);
  }
  for (const Refusal& refusal : withdrawn) refusal.job->Finished(refusal.status, nullptr);
}

std::vector<StepPipeline::Refusal> StepPipeline::TakeWaiting(engine::SessionId session) {
  std::vector<Refusal> taken;
  std::deque<StepJob*> kept;
  for (StepJob* job : waiting_) {
    if (job->request.session == session) {
      taken.push_back({job, absl::AbortedError("the session's stream ended before this step ran")});
    } else {
      kept.push_back(job);
    }
  }
  waiting_.swap(kept);
  return taken;
}

void StepPipeline::CloseSession(engine::SessionId session) {
  std::vector<Refusal> withdrawn;
  {
    // Both under the lock: none of its jobs can come to the engine between the two.
    std::lock_guard lock(mutex_);
    withdrawn = TakeWaiting(session);
    // NotFound is the one error there is, and means that nothing is left to close.
    engine_.CloseSession(session).IgnoreError();
  }
  for (const Refusal& refusal : withdrawn) refusal.job->Finished(refusal.status, nullptr);
}

void StepPipeline::Pump() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || !in_flight_.empty(); });
      if (in_flight_.empty()) return;
    }
    FinishOldest();
  }
}

void StepPipeline::FinishOldest() {
  InFlight oldest;
  {
    std::lock_guard lock(mutex_);
    oldest = in_flight_.front();
  }
  absl::Status status = engine_.Wait(oldest.ticket, &result_);
  oldest.job->times.result_ns = NowNs();
  // A step behind the one that failed is lost to the same fault, whatever its own Wait says.
  if (const absl::Status fault = engine_.health(); !status.ok() && !fault.ok()) status = fault;
  std::vector<Refusal> refused;
  {
    std::lock_guard lock(mutex_);
    in_flight_.pop_front();
    // The next step goes in before this one is answered: an idle device costs more than a later
    // reply.
    SubmitWaiting(&refused);
  }
  // Before the answer: whoever learns of the fault from it finds health changed already.
  if (!status.ok()) on_fault_();
  oldest.job->Finished(status, status.ok() ? &result_ : nullptr);
  for (const Refusal& refusal : refused) refusal.job->Finished(refusal.status, nullptr);
}

}  // namespace reprise::service
