// SPDX-License-Identifier: Apache-2.0
// Bodies of the memory probes, block style: grid x is the piece. Four vectors per thread and turn,
// so that enough loads are in flight.
#ifndef REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_BODY_H_
#define REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_BODY_H_

#include "kernels/device/block.h"
#include "kernels/memory_probe/memory_probe_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

constexpr int kProbeVectors = 4;  // of a group, 16 bytes each
static_assert(kMemoryProbeGroup == kProbeVectors * 16);

// Groups of this block's piece.
REPRISE_FN int ProbeGroups(Block& b, int64_t bytes) {
  const int64_t left = bytes - b.x() * kMemoryProbePiece;
  return static_cast<int>((left < kMemoryProbePiece ? left : kMemoryProbePiece) /
                          kMemoryProbeGroup);
}

REPRISE_FN void MemoryReadBody(Block& b, const MemoryReadArgs& a) {
  const auto* piece = static_cast<const uint32_t*>(a.data) + b.x() * (kMemoryProbePiece / 4);
  const int n = ProbeGroups(b, a.bytes);
  const float matches = b.Sum(n, [&](int g) {
    Vec<uint32_t, 4> x[kProbeVectors];
    REPRISE_UNROLL
    for (int k = 0; k < kProbeVectors; ++k) x[k] = LoadVec<4>(piece + (g + k * n) * 4);
    uint32_t word = 0;
    REPRISE_UNROLL
    for (int k = 0; k < kProbeVectors; ++k) word ^= x[k].v[0] ^ x[k].v[1] ^ x[k].v[2] ^ x[k].v[3];
    return word == a.pattern ? 1.0f : 0.0f;
  });
  b.Once([&] { a.matches[b.x()] = static_cast<uint32_t>(matches); });
}

REPRISE_FN void MemoryCopyBody(Block& b, const MemoryCopyArgs& a) {
  const auto* from = static_cast<const uint32_t*>(a.from) + b.x() * (kMemoryProbePiece / 4);
  auto* to = static_cast<uint32_t*>(a.to) + b.x() * (kMemoryProbePiece / 4);
  const int n = ProbeGroups(b, a.bytes);
  b.For(n, [&](int g) {
    Vec<uint32_t, 4> x[kProbeVectors];
    REPRISE_UNROLL
    for (int k = 0; k < kProbeVectors; ++k) x[k] = LoadVec<4>(from + (g + k * n) * 4);
    REPRISE_UNROLL
    for (int k = 0; k < kProbeVectors; ++k) StoreVec(to + (g + k * n) * 4, x[k]);
  });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_BODY_H_
