// SPDX-License-Identifier: Apache-2.0
#include "service/step_turns.h"

#include <algorithm>

namespace reprise::service {
namespace {

// What a step counts at least: validating, launching and answering it takes time as well.
constexpr uint64_t kLeastStepNs = 20'000;

}  // namespace

void StepTurns::Add(StepJob* job, StepQueue& queue) {
  job->queue_ = &queue;
  if (queue.last_step_ns_ == 0) queue.last_step_ns_ = latest_step_ns_;
  if (queue.waiting_.empty()) {
    StepShare& share = queue.share_;
    if (share.first_waiting_ == nullptr) Link(share);
    Link(share, queue);
  }
  queue.waiting_.PushBack(job);
  ++num_waiting_;
}

// What a share or a queue has in flight is not counted yet when it comes back, so it starts that
// much behind the turn.
void StepTurns::Link(StepShare& share) {
  const uint64_t turn_ns = turn_ns_[share.priority_];
  const uint64_t in_flight_ns = std::min(turn_ns, share.in_flight_ns_ / share.weight_);
  share.served_ns_ = std::max(share.served_ns_, turn_ns - in_flight_ns);
  share.previous_ = nullptr;
  share.next_ = first_waiting_;
  if (first_waiting_ != nullptr) first_waiting_->previous_ = &share;
  first_waiting_ = &share;
}

void StepTurns::Link(StepShare& share, StepQueue& queue) {
  const uint64_t in_flight_ns = std::min(share.turn_ns_, queue.in_flight_ * queue.last_step_ns_);
  queue.served_ns_ = std::max(queue.served_ns_, share.turn_ns_ - in_flight_ns);
  queue.previous_ = nullptr;
  queue.next_ = share.first_waiting_;
  if (share.first_waiting_ != nullptr) share.first_waiting_->previous_ = &queue;
  share.first_waiting_ = &queue;
}

// Time was counted among those of another priority, so it starts level with its new ones.
void StepTurns::Set(StepShare& share, uint32_t weight, uint32_t priority) {
  share.weight_ = weight;
  if (share.priority_ == priority) return;
  share.priority_ = priority;
  share.served_ns_ = turn_ns_[priority];
}

void StepTurns::Unlink(StepShare& share) {
  (share.previous_ == nullptr ? first_waiting_ : share.previous_->next_) = share.next_;
  if (share.next_ != nullptr) share.next_->previous_ = share.previous_;
}

void StepTurns::Unlink(StepShare& share, StepQueue& queue) {
  (queue.previous_ == nullptr ? share.first_waiting_ : queue.previous_->next_) = queue.next_;
  if (queue.next_ != nullptr) queue.next_->previous_ = queue.previous_;
}

StepJob* StepTurns::Next() const {
  const StepShare* share = PickShare();
  return share == nullptr ? nullptr : PickQueue(*share)->waiting_.front();
}

void StepTurns::TakeTurn(StepJob& job) {
  StepQueue& queue = *job.queue_;
  StepShare& share = queue.share_;
  uint64_t& turn_ns = turn_ns_[share.priority_];
  turn_ns = std::max(turn_ns, share.served_ns_);
  share.turn_ns_ = std::max(share.turn_ns_, queue.served_ns_);
  share.latest_turn_ = ++num_turns_;
  Take(queue);
  job.goes_along_ = false;
}

void StepTurns::TakeAlong(StepJob& job) {
  Take(*job.queue_);
  job.goes_along_ = true;
}

StepJob* StepTurns::TakeNext() {
  StepJob* next = Next();
  if (next != nullptr) TakeTurn(*next);
  return next;
}

StepJob* StepTurns::Take(StepQueue& queue) {
  if (queue.waiting_.empty()) return nullptr;
  StepJob* job = queue.waiting_.PopFront();
  --num_waiting_;
  if (!queue.waiting_.empty()) return job;
  StepShare& share = queue.share_;
  Unlink(share, queue);
  if (share.first_waiting_ == nullptr) Unlink(share);
  return job;
}

StepShare* StepTurns::PickShare() const {
  StepShare* picked = first_waiting_;
  for (StepShare* share = picked; share != nullptr; share = share->next_) {
    if (share->IsBefore(*picked)) picked = share;
  }
  return picked;
}

StepQueue* StepTurns::PickQueue(const StepShare& share) {
  StepQueue* picked = share.first_waiting_;
  for (StepQueue* queue = picked; queue != nullptr; queue = queue->next_) {
    if (IsSooner(*queue, *picked)) picked = queue;
  }
  return picked;
}

bool StepTurns::IsSooner(const StepQueue& a, const StepQueue& b) {
  const uint64_t a_ns = a.ServedAfterNextNs(), b_ns = b.ServedAfterNextNs();
  // Of equals the one whose step has waited longest.
  return a_ns != b_ns
             ? a_ns < b_ns
             : a.waiting_.front()->times.converted_ns < b.waiting_.front()->times.converted_ns;
}

bool StepTurns::IsBefore(const StepJob* a, const StepJob* b) {
  const StepShare &share_a = a->queue_->share_, &share_b = b->queue_->share_;
  return &share_a == &share_b ? IsSooner(*a->queue_, *b->queue_) : share_a.IsBefore(share_b);
}

WaitingSteps StepTurns::Look(uint64_t now_ns) const {
  WaitingSteps waiting = {.requests = num_waiting_};
  uint64_t oldest_ns = now_ns;
  for (const StepShare* share = first_waiting_; share != nullptr; share = share->next_) {
    uint64_t least_ns = ~uint64_t{0}, most_ns = 0;
    for (const StepQueue* queue = share->first_waiting_; queue != nullptr; queue = queue->next_) {
      ++waiting.sessions;
      least_ns = std::min(least_ns, queue->served_ns_);
      most_ns = std::max(most_ns, queue->served_ns_);
      oldest_ns = std::min(oldest_ns, queue->waiting_.front()->times.converted_ns);
    }
    waiting.served_spread_ns = std::max(waiting.served_spread_ns, most_ns - least_ns);
  }
  waiting.oldest_wait_ns = now_ns - oldest_ns;
  return waiting;
}

void StepTurns::NoteSubmitted(StepJob& job) {
  if (job.goes_along_) return;
  StepQueue& queue = *job.queue_;
  const uint64_t num_steps = StepQueue::NumSteps(job);
  job.expected_ns_ = num_steps * queue.last_step_ns_;
  queue.in_flight_ += num_steps;
  queue.share_.in_flight_ns_ += job.expected_ns_;
}

void StepTurns::NoteRefused(const StepJob& job) {
  job.queue_->served_ns_ += kLeastStepNs;
  job.queue_->share_.AddServed(kLeastStepNs);
}

void StepTurns::NoteServed(StepJob& job, uint64_t num_steps, uint64_t device_ns) {
  StepQueue& queue = *job.queue_;
  const uint64_t took_ns = std::max(device_ns, num_steps * kLeastStepNs);
  queue.last_step_ns_ = latest_step_ns_ = took_ns / num_steps;
  if (job.goes_along_) return;
  queue.in_flight_ -= StepQueue::NumSteps(job);
  queue.share_.in_flight_ns_ -= job.expected_ns_;
  queue.served_ns_ += took_ns;
  queue.share_.AddServed(took_ns);
}

}  // namespace reprise::service
