// SPDX-License-Identifier: Apache-2.0
// Arguments of the memory probes. See memory_probe.h.
#ifndef REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_ARGS_H_
#define REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

// What one block moves: far more than it costs to start a block, and small enough that the last
// blocks to run do not leave most of the device idle.
inline constexpr int64_t kMemoryProbePiece = 1 << 17;  // bytes
// What is read together and becomes one word.
inline constexpr int64_t kMemoryProbeGroup = 64;  // bytes

struct MemoryReadArgs {
  const void* data = nullptr;   // [bytes]
  uint32_t* matches = nullptr;  // [pieces]
  int64_t bytes = 0;
  uint32_t pattern = 0;
};

struct MemoryCopyArgs {
  const void* from = nullptr;  // [bytes]
  void* to = nullptr;          // [bytes]
  int64_t bytes = 0;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_ARGS_H_
