// SPDX-License-Identifier: Apache-2.0
#include "service/step_gather.h"

namespace reprise::service {

void StepGather::NoteCame(Pace& pace, uint64_t now_ns) {
  // Of steps that a client sends ahead, the second comes at once.
  if (pace.answered_ns_ != 0) {
    pace.think_ns_ = pace.answered_ns_ > pace.came_ns_ ? now_ns - pace.answered_ns_ : 0;
  }
  pace.came_ns_ = now_ns;
  ++pace.waiting_;
}

void StepGather::NoteSubmitted(Pace& pace, uint32_t kind) {
  --pace.waiting_;
  ++pace.in_flight_;
  ++in_flight_;
  pace.kind_ = kind;
  if (!pace.is_recent_) Link(pace);
}

void StepGather::NoteRefused(Pace& pace) { --pace.waiting_; }

void StepGather::NoteAnswered(Pace& pace, uint64_t now_ns, uint64_t step_ns) {
  --pace.in_flight_;
  --in_flight_;
  pace.answered_ns_ = now_ns;
  latest_step_ns_ = step_ns;
}

void StepGather::Forget(Pace& pace) {
  if (pace.is_recent_) Unlink(pace);
}

uint64_t StepGather::HoldUntil(uint64_t now_ns, uint32_t kind) {
  const uint64_t bound_ns = BoundNs();
  if (bound_ns == 0) return 0;
  uint64_t until_ns = 0;
  Pace* next = nullptr;
  for (Pace* pace = first_; pace != nullptr; pace = next) {
    next = pace->next_;
    const bool is_expected =
        pace->waiting_ == 0 && pace->kind_ == kind && pace->think_ns_ <= bound_ns;
    if (pace->in_flight_ > 0) {
      if (is_expected) return kUntilTheNextAnswer;
      continue;
    }
    const uint64_t end_ns = pace->answered_ns_ + bound_ns;
    if (end_ns <= now_ns) {
      Unlink(*pace);
    } else if (is_expected) {
      until_ns = std::max(until_ns, end_ns);
    }
  }
  // Behind steps of sessions that are not expected nothing is lost by going to the device now.
  return in_flight_ == 0 ? until_ns : 0;
}

void StepGather::Link(Pace& pace) {
  pace.is_recent_ = true;
  pace.previous_ = nullptr;
  pace.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &pace;
  first_ = &pace;
}

void StepGather::Unlink(Pace& pace) {
  pace.is_recent_ = false;
  (pace.previous_ == nullptr ? first_ : pace.previous_->next_) = pace.next_;
  if (pace.next_ != nullptr) pace.next_->previous_ = pace.previous_;
}

}  // namespace reprise::service
