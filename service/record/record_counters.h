// SPDX-License-Identifier: Apache-2.0
// RecordCounters: what has become of sessions that were to be recorded. The recorder counts,
// metrics read. Threads: every member from any thread.
#ifndef REPRISE_SERVICE_RECORD_RECORD_COUNTERS_H_
#define REPRISE_SERVICE_RECORD_RECORD_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "reprise/v1/record.pb.h"
#include "service/metrics/counter.h"

namespace reprise::service {

// Why a session is not recorded, or not to its end.
enum class RecordLoss : uint8_t {
  kLimit,        // all recordings together would exceed the limit
  kWriteFailed,  // a full disk, for example
  kOverflow,     // records came faster than they could be written
  kOutOfMemory,  // there was no memory for a record
  kKvCall        // what came into KV blocks could not be read, or was not known for certain
};
inline constexpr size_t kNumRecordLosses = 5;
// "limit", "write_failed", "overflow", "out_of_memory", "kv_call".
const char* NameOf(RecordLoss loss);
// What a file that ends for it says.
v1::RecordEndReason EndReasonOf(RecordLoss loss);

struct RecordCounters {
  RecordCounters(uint64_t limit, uint64_t num_files, uint64_t num_bytes)
      : limit_bytes(limit), files(num_files), bytes(num_bytes) {}
  const uint64_t limit_bytes;
  // Of all recordings in the directory, as it was last measured, and what was written since.
  std::atomic<uint64_t> files;
  std::atomic<uint64_t> bytes;
  Counter steps;  // that were written
  // In the order of RecordLoss:
  std::array<Counter, kNumRecordLosses> stopped;  // recordings that ended before their sessions
  std::array<Counter, kNumRecordLosses> refused;  // sessions that have no recording
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RECORD_COUNTERS_H_
