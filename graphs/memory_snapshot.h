// SPDX-License-Identifier: Apache-2.0
// What lies in ranges of device memory at a moment, to be put back and to be compared.
#ifndef REPRISE_GRAPHS_MEMORY_SNAPSHOT_H_
#define REPRISE_GRAPHS_MEMORY_SNAPSHOT_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/memory_range.h"
#include "runtime/device.h"

namespace reprise::graphs {

class MemorySnapshot {
 public:
  // Reads all ranges, behind what is on the stream, and waits. `memory` must outlive it. Errors:
  // the stream's.
  static absl::StatusOr<MemorySnapshot> Take(runtime::Stream& stream,
                                             std::span<const MemoryRange> memory);
  // Writes them back, and waits. Errors: the stream's.
  absl::Status PutBack(runtime::Stream& stream) const;
  // "'y' differs at byte 12 of 4096: <a's name> 0x3f, <b's> 0x40", of the first byte that does; ""
  // where none does. REQUIRES: the same ranges.
  static std::string FirstDifference(const MemorySnapshot& a, std::string_view name_a,
                                     const MemorySnapshot& b, std::string_view name_b);
  size_t bytes() const;

 private:
  std::span<const MemoryRange> memory_;
  std::vector<std::vector<std::byte>> contents_;  // by range
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_MEMORY_SNAPSHOT_H_
