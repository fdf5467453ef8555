// SPDX-License-Identifier: Apache-2.0
#include "service/kept_answers.h"

#include <utility>

namespace reprise::service {

void KeptAnswers::Add(uint64_t sequence, const grpc::Slice& answer, MemoryBudget& memory) {
  MemoryBudget::Charge charge = memory.ChargeAnswer(answer.size());
  const uint64_t bytes = charge.bytes();
  const bool fits = bytes <= max_bytes_ && !answers_.empty();
  if (!fits) return NoteLost(sequence);
  while (count_ == answers_.size() || bytes_ + bytes > max_bytes_) DropOldest();
  Kept& kept = answers_[(oldest_ + count_) % answers_.size()];
  kept.sequence = sequence;
  kept.bytes = answer;
  kept.charge = std::move(charge);
  bytes_ += bytes;
  ++count_;
}

void KeptAnswers::NoteLost(uint64_t sequence) {
  if (sequence <= missing_through_) return;
  while (count_ > 0) DropOldest();
  missing_through_ = sequence;
}

std::vector<grpc::Slice> KeptAnswers::After(uint64_t sequence) const {
  std::vector<grpc::Slice> later;
  for (size_t i = 0; i < count_; ++i) {
    if (at(i).sequence > sequence) later.push_back(at(i).bytes);
  }
  return later;
}

void KeptAnswers::DropOldest() {
  Kept& kept = answers_[oldest_];
  missing_through_ = kept.sequence;
  bytes_ -= kept.charge.bytes();
  kept.bytes = grpc::Slice();
  kept.charge = MemoryBudget::Charge();
  oldest_ = (oldest_ + 1) % answers_.size();
  --count_;
}

}  // namespace reprise::service
