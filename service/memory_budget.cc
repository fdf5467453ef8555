// SPDX-License-Identifier: Apache-2.0
#include "service/memory_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

// A packed number of one byte takes four once parsed, and while its array grows the new one of up
// to twice the size stands beside the old one; the bytes of the message are there until it is
// parsed.
constexpr uint64_t kParsedBytesPerByte = 13;
// A message within another, however few bytes it has: AddRow with its Sampling takes the most.
constexpr uint64_t kParsedBytesPerEntry = 512;
// An answer is held as a message and, while it is written, as its bytes: a sampled token of two
// bytes takes four, and one's log-probability as much as on the wire.
constexpr uint64_t kAnswerBytesPerByte = 3;
// Messages that are always taken. Each stream has a few at a time, so they add up to little.
constexpr uint64_t kSmallMessageBytes = 4096;

}  // namespace

MemoryBudget::MemoryBudget(uint64_t bytes, uint64_t max_message_bytes)
    : largest_charge_(kParsedBytesPerByte * max_message_bytes),
      bytes_(std::max(bytes, largest_charge_)),
      bytes_per_stream_(std::max(bytes_ / 4, largest_charge_)) {}

absl::StatusOr<MemoryBudget::Charge> MemoryBudget::ChargeMessage(uint64_t wire_bytes,
                                                                 uint32_t num_entries) {
  const uint64_t asked = kParsedBytesPerByte * wire_bytes + kParsedBytesPerEntry * num_entries;
  // Beyond the largest charge a message of the largest size would never fit.
  const uint64_t needed =
      wire_bytes > kSmallMessageBytes ? std::min(asked, largest_charge_) : asked;
  const uint64_t before = used_.fetch_add(needed, std::memory_order_relaxed);
  if (wire_bytes > kSmallMessageBytes && before + needed > bytes_) {
    used_.fetch_sub(needed, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(absl::StrCat(
        "message of ", wire_bytes, " bytes: takes up to ", needed,
        " bytes while it waits; the server has ", before < bytes_ ? bytes_ - before : 0, " of ",
        bytes_, " left for messages that wait"));
  }
  return Charge(this, needed);
}

MemoryBudget::Charge MemoryBudget::ChargeAnswer(uint64_t wire_bytes) {
  const uint64_t bytes = kAnswerBytesPerByte * wire_bytes;
  used_.fetch_add(bytes, std::memory_order_relaxed);
  return Charge(this, bytes);
}

}  // namespace reprise::service
