// SPDX-License-Identifier: Apache-2.0
// MappedRing: a ring of equal entries in mapped pinned memory, addressed by both sides; entry =
// step number modulo depth. The metadata ring (host writes, first node reads) and the result ring
// (last node writes, host polls) are two of these. It knows no format but this: a result entry
// opens with a 64-bit sequence word that the device stores last, with release order.
//
// Threads: entries are data; who writes which entry when is the caller's protocol. Poll may be
// called from any thread.
#ifndef REPRISE_RUNTIME_MEMORY_MAPPED_RING_H_
#define REPRISE_RUNTIME_MEMORY_MAPPED_RING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

namespace reprise::runtime {

class MappedRing {
 public:
  MappedRing() = default;
  // Zero-filled. Errors: InvalidArgument on depth < 1 or entry_bytes not a positive multiple of 64;
  // the device's own.
  static absl::StatusOr<MappedRing> Create(Device& device, uint32_t depth, size_t entry_bytes);

  // Host address of the entry of step `number` (0 for the first).
  std::byte* HostEntry(uint64_t number) const {
    return buffer_.host() + (number % depth_) * entry_bytes_;
  }
  unsigned char* device_base() const { return reinterpret_cast<unsigned char*>(buffer_.device()); }
  // The entry's sequence word, read with acquire order: what was published before it is visible.
  uint64_t Poll(uint64_t number) const {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(HostEntry(number)), __ATOMIC_ACQUIRE);
  }
  uint32_t depth() const { return depth_; }
  size_t entry_bytes() const { return entry_bytes_; }

 private:
  MappedBuffer buffer_;
  uint32_t depth_ = 1;
  size_t entry_bytes_ = 0;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MEMORY_MAPPED_RING_H_
