// SPDX-License-Identifier: Apache-2.0
// Shapes of the bulk decode kernel, as host and device both need them.
#ifndef REPRISE_KERNELS_ATTENTION_DECODE_BULK_GEOMETRY_H_
#define REPRISE_KERNELS_ATTENTION_DECODE_BULK_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/decode_share.h"
#include "kernels/device/traits.h"

namespace reprise::kernels {

// The warps of a block: those that compute, one that requests KV, one that counts arrivals.
inline constexpr int kBulkWarps = 4;
inline constexpr int kBulkThreads = 32 * (kBulkWarps + 2);
inline constexpr int kBulkComputeThreads = 32 * kBulkWarps;
// KV tokens that a warp takes at a time, as K and V.
inline constexpr int kBulkChunk = 16;
static_assert(kBulkWarps * kBulkChunk == static_cast<int>(kLeafMultiple));
// Query heads of one KV head at most: the columns of a fragment.
inline constexpr int kBulkMaxGroup = 8;

// Items that a block is at, counting those whose arrival is not known yet; and of them those whose
// queries wait.
inline constexpr int kBulkItems = 4;
inline constexpr int kBulkQueries = 2;

// Chunks of a warp's ring: 96 KB of KV per block, so that two blocks fit a multiprocessor; with
// heads above 128 up to 128 KB, and one block. element_bytes: of KV.
constexpr int BulkStages(int head_size, int element_bytes = 2) {
  const int row_bytes = head_size * element_bytes;
  return row_bytes == 128 ? 6 : row_bytes <= 256 ? 3 : 2;
}
constexpr int BulkBlocksPerMultiprocessor(int head_size) { return head_size <= 128 ? 2 : 1; }
// Of queries.
constexpr uint32_t BulkRowBytes(int head_size) { return static_cast<uint32_t>(head_size) * 2; }
// Of a chunk's K or V.
constexpr uint32_t BulkTileBytes(int head_size, int element_bytes) {
  return static_cast<uint32_t>(kBulkChunk * head_size * element_bytes);
}
// Query rows that the warps merge at a time, and floats of one of them: 4 more than needed, so that
// the lanes' columns are in different banks.
inline constexpr int kBulkMergeRows = 4;
constexpr int BulkMergeStride(int head_size) { return head_size + 4; }

// Members of a tile: every warp that computes takes as many as its columns hold.
constexpr int BulkWarpMembers(int group) { return kBulkMaxGroup / group; }
constexpr int BulkTileMembers(int group) { return kBulkWarps * BulkWarpMembers(group); }
static_assert(BulkTileMembers(1) <= 32);  // one for each lane that counts arrivals

// A run of leaves of one row or tile and KV head.
struct BulkItem {
  uint32_t num_leaves;  // of the item; 0: there is no further item
  uint32_t leaf;        // the first, among all of the row's
  uint32_t kv_head;
  uint32_t entry;  // in the list of rows
  DecodeRow row;

  constexpr bool is_tile() const { return row.is_tile(); }
  constexpr bool is_whole_row() const { return num_leaves == row.num_leaves && !is_tile(); }
};
static_assert(sizeof(BulkItem) == 48);

// Byte offsets in dynamic shared memory.
struct BulkSharedLayout {
  uint32_t ring = 0;      // [kBulkWarps, stages, K | V] tiles, in panels, swizzled (KvLayout)
  uint32_t query = 0;     // [kBulkQueries, kBulkMaxGroup] rows
  uint32_t merge = 0;     // [kBulkWarps, kBulkMergeRows, BulkMergeStride] f32
  uint32_t max = 0;       // [kBulkWarps, kBulkMaxGroup] f32
  uint32_t sum = 0;       // the same
  uint32_t items = 0;     // [kBulkItems] BulkItem
  uint32_t places = 0;    // [kBulkItems, kBulkWarps] words: of tiles, where they begin in the rings
  uint32_t last = 0;      // [kBulkItems] words: whether the item was its row's last to arrive; of
                          // tiles, a bit for every member
  uint32_t barriers = 0;  // BulkBarriers
  uint32_t bytes = 0;
};

// Barriers in shared memory, in this order.
struct BulkBarriers {
  int full, empty;            // [kBulkWarps * stages] a chunk's K and V
  int item_full, item_empty;  // [kBulkItems] BulkItem and its queries; all is done with it
  int query_empty;            // [kBulkQueries]
  int stored, arrived;        // [kBulkItems] the item's results; whether it was the last
  int merge;                  // [1] of the threads that compute
  int count;
};
constexpr BulkBarriers BulkBarriersFor(int stages) {
  const int chunks = kBulkWarps * stages;
  BulkBarriers b{};
  b.empty = b.full + chunks;
  b.item_full = b.empty + chunks;
  b.item_empty = b.item_full + kBulkItems;
  b.query_empty = b.item_empty + kBulkItems;
  b.stored = b.query_empty + kBulkQueries;
  b.arrived = b.stored + kBulkItems;
  b.merge = b.arrived + kBulkItems;
  b.count = b.merge + 1;
  return b;
}

constexpr BulkSharedLayout BulkLayout(int head_size, int stages, int element_bytes) {
  BulkSharedLayout l;
  l.query = l.ring + 2 * BulkTileBytes(head_size, element_bytes) *
                         static_cast<uint32_t>(kBulkWarps * stages);
  l.merge = l.query + kBulkQueries * kBulkMaxGroup * BulkRowBytes(head_size);
  l.max =
      l.merge + kBulkWarps * kBulkMergeRows * 4 * static_cast<uint32_t>(BulkMergeStride(head_size));
  l.sum = l.max + kBulkWarps * kBulkMaxGroup * 4;
  l.items = l.sum + kBulkWarps * kBulkMaxGroup * 4;
  l.places = l.items + kBulkItems * static_cast<uint32_t>(sizeof(BulkItem));
  l.last = l.places + kBulkItems * kBulkWarps * 4;
  l.barriers = l.last + kBulkItems * 4;
  l.bytes = l.barriers + static_cast<uint32_t>(BulkBarriersFor(stages).count) * 8;
  return l;
}
// Of a kernel of its own.
constexpr BulkSharedLayout BulkLayout(int head_size, int element_bytes) {
  return BulkLayout(head_size, BulkStages(head_size, element_bytes), element_bytes);
}
static_assert(BulkLayout(64, 2).barriers % 8 == 0 && BulkLayout(128, 2).barriers % 8 == 0 &&
              BulkLayout(192, 2).barriers % 8 == 0 && BulkLayout(256, 2).barriers % 8 == 0 &&
              BulkLayout(128, 1).barriers % 8 == 0);

// Whether a device has kernels for heads of so many elements.
constexpr bool HasBulkHeadSize(const DeviceTraits& traits, int head_size) {
  return traits.bulk_copy &&
         static_cast<int>(BulkLayout(head_size, 2).bytes) <= traits.shared_bytes;
}
// Of KV of 8 bits.
constexpr bool HasBulkFp8HeadSize(const DeviceTraits& traits, int head_size) {
  return traits.bulk_copy &&
         static_cast<int>(BulkLayout(head_size, 1).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_DECODE_BULK_GEOMETRY_H_
