// SPDX-License-Identifier: Apache-2.0
// MemoryBudget: limits the memory of messages that wait in the server, all clients together. A
// message is charged before it is parsed, and given back when it has been answered. Answers are
// charged too, until the client has taken them: they are never refused, but leave less for
// messages. Threads: every method from any thread.
#ifndef REPRISE_SERVICE_MEMORY_BUDGET_H_
#define REPRISE_SERVICE_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace reprise::service {

class MemoryBudget {
 public:
  // A part of the budget; given back when it is destroyed.
  class Charge {
   public:
    Charge() = default;
    Charge(Charge&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Charge& operator=(Charge&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Charge() {
      if (budget_ != nullptr) budget_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
    }
    uint64_t bytes() const { return bytes_; }

   private:
    friend class MemoryBudget;
    Charge(MemoryBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    MemoryBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // Room for `bytes`, and for one message of `max_message_bytes` at least.
  MemoryBudget(uint64_t bytes, uint64_t max_message_bytes);

  // Charges the memory that a message of so many bytes on the wire, with so many entries of
  // repeated messages, may take once parsed. Small messages always fit: a client that sends large
  // ones cannot keep others from their steps. Errors: ResourceExhausted (needed, left).
  absl::StatusOr<Charge> ChargeMessage(uint64_t wire_bytes, uint32_t num_entries = 0);

  // Charges an answer that waits, or is kept, as so many bytes on the wire.
  Charge ChargeAnswer(uint64_t wire_bytes);

  // What one stream may have charged before it is read no further: a quarter of the whole, and no
  // less than its largest message takes.
  uint64_t bytes_per_stream() const { return bytes_per_stream_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const uint64_t largest_charge_;  // of a large message
  const uint64_t bytes_;
  const uint64_t bytes_per_stream_;
  std::atomic<uint64_t> used_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_MEMORY_BUDGET_H_
