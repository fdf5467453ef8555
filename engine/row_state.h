// SPDX-License-Identifier: Apache-2.0
// RowStates: copies what rows of some models carry beside their KV: from one row's slot to
// another's, and between slots and mapped memory. Each enqueues on the stream, behind every step
// that was submitted before and ahead of every later one. Errors: the stream's. Threads: as the
// stream.
#ifndef REPRISE_ENGINE_ROW_STATE_H_
#define REPRISE_ENGINE_ROW_STATE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "models/row_state.h"
#include "runtime/device.h"

namespace reprise::engine {

class RowStates {
 public:
  // Of rows without state.
  RowStates() = default;
  explicit RowStates(std::span<const models::RowStateBuffer> buffers);

  // Of one row, outside of its slot: what each buffer has begins at a multiple of 16 bytes.
  size_t bytes() const { return bytes_; }
  // Launches of one copy.
  size_t num_parts() const { return parts_.size(); }

  absl::Status Copy(runtime::Stream& stream, const kernels::KernelSet& kernels, uint32_t from_slot,
                    uint32_t to_slot) const;
  // `to`, `from`: device addresses of bytes().
  absl::Status Save(runtime::Stream& stream, const kernels::KernelSet& kernels, uint32_t slot,
                    std::byte* to) const;
  absl::Status Restore(runtime::Stream& stream, const kernels::KernelSet& kernels,
                       const std::byte* from, uint32_t slot) const;

 private:
  // Buffers of one size, one as far behind the other as the next.
  struct Part {
    std::byte* data = nullptr;
    int64_t slot_bytes = 0;
    int64_t layer_bytes = 0;  // from one buffer to the next
    int32_t layers = 1;
    // Outside: where it begins, and from one buffer to the next.
    size_t offset = 0;
    int64_t saved_layer_bytes = 0;
  };
  std::vector<Part> parts_;
  size_t bytes_ = 0;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ROW_STATE_H_
