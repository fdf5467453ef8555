// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/mapped_ring.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {

absl::StatusOr<MappedRing> MappedRing::Create(Device& device, uint32_t depth, size_t entry_bytes) {
  if (depth < 1) return absl::InvalidArgumentError("ring depth is 0; allowed: at least 1");
  if (entry_bytes == 0 || entry_bytes % 64 != 0 ||
      entry_bytes > std::numeric_limits<size_t>::max() / depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring entry has ", entry_bytes, " bytes; allowed: positive multiples of 64"));
  }
  MappedRing ring;
  REPRISE_ASSIGN_OR_RETURN(ring.buffer_, MappedBuffer::Create(device, depth * entry_bytes));
  ring.depth_ = depth;
  ring.entry_bytes_ = entry_bytes;
  return ring;
}

}  // namespace reprise::runtime
