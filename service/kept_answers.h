// SPDX-License-Identifier: Apache-2.0
// KeptAnswers: the last answers to the steps of a session's streams, as bytes, for a client that
// lost its stream before it read them. Bounded in number and in bytes; keeping one allocates
// nothing. Threads: the caller orders all calls.
#ifndef REPRISE_SERVICE_KEPT_ANSWERS_H_
#define REPRISE_SERVICE_KEPT_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "grpcpp/support/slice.h"
#include "service/memory_budget.h"

namespace reprise::service {

class KeptAnswers {
 public:
  // Keeps at most so many answers, and no more than what a MemoryBudget charges as `max_bytes` for.
  KeptAnswers(uint32_t max_answers, uint64_t max_bytes)
      : max_bytes_(max_bytes), answers_(max_answers) {}

  // Shares the bytes. The oldest make room; one that is too large is not kept, nor are those before
  // it: what is kept has no gaps. REQUIRES: `sequence` is higher than all before it.
  void Add(uint64_t sequence, const grpc::Slice& answer, MemoryBudget& memory);
  // The answer is lost: nothing up to it is kept.
  void NoteLost(uint64_t sequence);

  // The highest sequence number whose answer came and is not kept any more; 0: none.
  uint64_t missing_through() const { return missing_through_; }
  size_t max_answers() const { return answers_.size(); }
  // Those to steps behind `sequence`, oldest first.
  std::vector<grpc::Slice> After(uint64_t sequence) const;

 private:
  struct Kept {
    uint64_t sequence = 0;
    grpc::Slice bytes;
    MemoryBudget::Charge charge;
  };
  const Kept& at(size_t index) const { return answers_[(oldest_ + index) % answers_.size()]; }
  void DropOldest();

  const uint64_t max_bytes_;
  std::vector<Kept> answers_;  // ring
  size_t oldest_ = 0;
  size_t count_ = 0;
  uint64_t bytes_ = 0;  // charged
  uint64_t missing_through_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KEPT_ANSWERS_H_
