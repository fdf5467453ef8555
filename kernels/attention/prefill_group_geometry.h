// SPDX-License-Identifier: Apache-2.0
// Shapes of the prefill kernel on products of warpgroups, as host and device both need them.
#ifndef REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_GEOMETRY_H_
#define REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_GEOMETRY_H_

#include <cstdint>

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/plan.h"
#include "kernels/device/traits.h"

namespace reprise::kernels {

// Two warpgroups that compute, of 64 query rows each, and four warps that request
// KV.
inline constexpr int kGroupComputeWarps = 8;
inline constexpr int kGroupComputeThreads = 32 * kGroupComputeWarps;
inline constexpr int kGroupRequestWarps = 4;
inline constexpr int kGroupThreads = kGroupComputeThreads + 32 * kGroupRequestWarps;
// Registers of their threads: those who compute hold a tile's scores, weights and sums at once.
inline constexpr int kGroupComputeRegisters = 216;
inline constexpr int kGroupRequestRegisters = 72;
static_assert(kPrefillGroupRows == 16 * kGroupComputeWarps);
// KV tokens of a tile, and how many of them one bulk copy brings, of one panel.
inline constexpr int kGroupTile = 128;
inline constexpr int kGroupChunk = 16;
// Items that the block is at: one that is computed, one whose KV is requested.
inline constexpr int kGroupItems = 2;

// Tiles of K, and as many of V, in shared memory.
constexpr int GroupStages(int head_size) { return head_size <= 64 ? 4 : 2; }
constexpr uint32_t GroupPanelBytes() { return kGroupTile * kKvPanelBytes; }
constexpr uint32_t GroupTileBytes(int head_size) {
  return GroupPanelBytes() * static_cast<uint32_t>(head_size / 64);
}

// Barriers in shared memory, in this order.
struct GroupBarriers {
  int keys_full, keys_empty, values_full, values_empty;  // [stages]
  int item_full, item_empty;                             // [kGroupItems]
  int turn;                                              // [2] a warpgroup's, by the other's warps
  int query;                                             // [2] of a warpgroup's threads
  int merge;                                             // [1] of the threads that compute
  int count;
};
constexpr GroupBarriers GroupBarriersFor(int head_size) {
  const int stages = GroupStages(head_size);
  GroupBarriers b{};
  b.keys_empty = b.keys_full + stages;
  b.values_full = b.keys_empty + stages;
  b.values_empty = b.values_full + stages;
  b.item_full = b.values_empty + stages;
  b.item_empty = b.item_full + kGroupItems;
  b.turn = b.item_empty + kGroupItems;
  b.query = b.turn + 2;
  b.merge = b.query + 2;
  b.count = b.merge + 1;
  return b;
}

// Byte offsets in dynamic shared memory. Tiles lie in panels (KvLayout), swizzled.
struct GroupSharedLayout {
  uint32_t query = 0;     // [panels, kPrefillGroupRows] rows of 128 bytes
  uint32_t keys = 0;      // [stages] tiles
  uint32_t values = 0;    // [stages] tiles
  uint32_t items = 0;     // [kGroupItems] ResolvedWorkItem
  uint32_t barriers = 0;  // GroupBarriers
  uint32_t flag = 0;      // one word
  uint32_t bytes = 0;
};
constexpr GroupSharedLayout GroupLayout(int head_size) {
  const uint32_t stages = static_cast<uint32_t>(GroupStages(head_size));
  GroupSharedLayout l;
  l.keys = l.query + kPrefillGroupRows * static_cast<uint32_t>(head_size) * 2;
  l.values = l.keys + stages * GroupTileBytes(head_size);
  l.items = l.values + stages * GroupTileBytes(head_size);
  l.barriers =
      (l.items + kGroupItems * static_cast<uint32_t>(sizeof(ResolvedWorkItem)) + 15) / 16 * 16;
  l.flag = l.barriers + static_cast<uint32_t>(GroupBarriersFor(head_size).count) * 8;
  l.bytes = l.flag + 8;
  return l;
}

// Whether a device has kernels for heads of so many elements.
constexpr bool HasGroupHeadSize(const DeviceTraits& traits, int head_size) {
  return traits.group_products &&
         static_cast<int>(GroupLayout(head_size).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_GEOMETRY_H_
