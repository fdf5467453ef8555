// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of linear_stream_body.h, as its kernel and its launch both need them.
#ifndef REPRISE_KERNELS_LINEAR_STREAM_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_STREAM_GEOMETRY_H_

#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/linear_geometry.h"

namespace reprise::kernels {

// Warps that multiply; behind them one that adds and stores, and one that requests weights.
inline constexpr int kStreamWarps = 8;
inline constexpr int kStreamSummingWarp = kStreamWarps;
inline constexpr int kStreamRequestingWarp = kStreamWarps + 1;
inline constexpr int kStreamThreads = (kStreamWarps + 2) * 32;

// A slot of the ring: half of a part. Every multiplying warp has kStreamStages slots of its own.
inline constexpr int kStreamSlotTiles = kPackedPartTiles / 2;
inline constexpr uint32_t kStreamSlotBytes = kStreamSlotTiles * kPackedTileBytes;
inline constexpr int kStreamStages = 2;
inline constexpr int kStreamSlots = kStreamWarps * kStreamStages;
// Weights of 8 bits: slots of half the bytes, and twice as many. Beside each its scales.
constexpr int StreamStages(int element_bytes) {
  return element_bytes == 1 ? 2 * kStreamStages : kStreamStages;
}
constexpr uint32_t StreamSlotBytes(int element_bytes) {
  return static_cast<uint32_t>(kStreamSlotTiles * kPackedTileElements * element_bytes);
}
static_assert(StreamSlotBytes(2) == kStreamSlotBytes);
inline constexpr int kStreamSlotGroups = kStreamSlotTiles * kPackedTileInputs / kScaleInputs;
static_assert(kStreamSlotGroups * kScaleInputs == kStreamSlotTiles * kPackedTileInputs);
constexpr uint32_t StreamScaleBytes(int element_bytes) {
  return element_bytes == 1 ? kStreamSlotGroups * kPackedTileOutputs * 4 : 0;
}
// Sums of parts on their way to the warp that adds them.
inline constexpr int kStreamSums = 2 * kStreamWarps;
constexpr uint32_t StreamSumBytes(int tokens) {
  return static_cast<uint32_t>(kPackedTileOutputs * tokens) * 4;
}

// The tokens of a slot's inputs, and of how many slots a multiplying warp has them on their way: a
// part's where there is room.
constexpr uint32_t StreamTokenSlotBytes(int tokens) {
  return static_cast<uint32_t>(tokens * kStreamSlotTiles * kPackedTileInputs) * 2;
}
constexpr int StreamTokenSlots(int tokens) { return tokens <= 8 ? 2 : 1; }

// Byte offsets in dynamic shared memory.
struct StreamSharedLayout {
  uint32_t ring = 0;       // [kStreamWarps, StreamStages] slots
  uint32_t scales = 0;     // the same, of StreamScaleBytes
  uint32_t tokens = 0;     // [kStreamWarps, StreamTokenSlots] of tiles [tokens, 64], swizzled
  uint32_t sums = 0;       // [kStreamSums] of StreamSumBytes
  uint32_t slot_tile = 0;  // words for all slots: of which tile a part is
  uint32_t sum_tile = 0;   // [kStreamSums] words
  uint32_t barriers = 0;   // StreamBarriers
  uint32_t bytes = 0;
};

// Barriers in shared memory, in this order.
template <int kElementBytes>
struct StreamBarriers {
  static constexpr int kSlots = kStreamWarps * StreamStages(kElementBytes);
  static constexpr int kFull = 0;                   // [kSlots] weights are there
  static constexpr int kEmpty = kFull + kSlots;     // [kSlots] they were multiplied
  static constexpr int kSumFull = kEmpty + kSlots;  // [kStreamSums] a part's sum is there
  static constexpr int kSumEmpty = kSumFull + kStreamSums;
  static constexpr int kCount = kSumEmpty + kStreamSums;
};

constexpr StreamSharedLayout StreamLayout(int tokens, int element_bytes) {
  StreamSharedLayout l;
  const auto slots = static_cast<uint32_t>(kStreamWarps * StreamStages(element_bytes));
  const int barriers = element_bytes == 1 ? StreamBarriers<1>::kCount : StreamBarriers<2>::kCount;
  l.scales = l.ring + slots * StreamSlotBytes(element_bytes);
  l.tokens = l.scales + slots * StreamScaleBytes(element_bytes);
  l.sums = l.tokens + static_cast<uint32_t>(kStreamWarps * StreamTokenSlots(tokens)) *
                          StreamTokenSlotBytes(tokens);
  l.slot_tile = l.sums + kStreamSums * StreamSumBytes(tokens);
  l.sum_tile = l.slot_tile + slots * 4;
  l.barriers = l.sum_tile + kStreamSums * 4;
  l.bytes = l.barriers + static_cast<uint32_t>(barriers) * 8;
  return l;
}
static_assert(StreamLayout(8, 2).barriers % 8 == 0 && StreamLayout(8, 1).barriers % 8 == 0);
static_assert(StreamLayout(8, 1).tokens % 1024 == 0, "tiles of tokens are swizzled");

// Whether a device has a kernel for so many tokens.
constexpr bool HasStreamTile(const DeviceTraits& traits, int tokens) {
  return traits.bulk_copy && static_cast<int>(StreamLayout(tokens, 2).bytes) <= traits.shared_bytes;
}
constexpr bool HasFp8StreamTile(const DeviceTraits& traits, int tokens) {
  return traits.bulk_copy && static_cast<int>(StreamLayout(tokens, 1).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_STREAM_GEOMETRY_H_
