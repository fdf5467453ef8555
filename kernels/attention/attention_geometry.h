// SPDX-License-Identifier: Apache-2.0
// Shapes of the attention kernels, as host and device both need them: threads, tiles, and how a
// block's shared memory is laid out. The host picks kernels and plans passes by them
// (attention_shapes.cc, attention.cc), the bodies place their buffers by them.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_GEOMETRY_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention_args.h"
#include "kernels/device/traits.h"

namespace reprise::kernels {

// ---- portable ----

inline constexpr int kPortableKvTile = 32;  // KV tokens of one tile

// Dynamic shared memory of one query row, in bytes: query and sums of head_dim floats each, scores
// of a tile, and three more.
constexpr size_t PortableAttentionRowBytes(int head_dim) {
  return (2 * static_cast<size_t>(head_dim) + kPortableKvTile + 3) * sizeof(float);
}

// What the kernel's static variables take of a block's shared memory at most: one word, which
// compilers round up to the alignment of the dynamic part.
inline constexpr size_t kPortableStaticBytes = 1024;

// Query rows (query tokens x heads of a group) of one pass, of items of at most `rows`: all of them
// where they fit in `shared_bytes` of one block, otherwise as few passes as fit, evenly filled. 0
// where not even one row fits.
constexpr int PortableAttentionPassRows(int rows, int head_dim, size_t shared_bytes) {
  if (shared_bytes < kPortableStaticBytes) return 0;
  const size_t fit = (shared_bytes - kPortableStaticBytes) / PortableAttentionRowBytes(head_dim);
  if (fit == 0) return 0;
  const size_t all = static_cast<size_t>(rows);
  const size_t passes = (all + fit - 1) / fit;
  return static_cast<int>((all + passes - 1) / passes);
}

// ---- naive ----

inline constexpr int kNaiveKvTile = 128;  // KV tokens of one tile
// Threads that share out the tokens of a tile for the same eight dimensions of the result.
inline constexpr int kNaiveSlices = 16;

// Dynamic shared memory, in bytes: the query, products by token and eight dimensions, a tile's
// scores, and the slices' sums, in floats. Dimensions are rounded up to a multiple of eight.
constexpr size_t NaiveAttentionBytes(int head_dim) {
  const size_t packs = static_cast<size_t>(head_dim + 7) / 8;
  return (packs * 8 + kNaiveKvTile * (packs + 1) + kNaiveKvTile + kNaiveSlices * packs * 8) *
         sizeof(float);
}

// ---- the host's own ----

inline constexpr int kNativeKvTile = 64;    // KV tokens of one tile
inline constexpr int kNativePassRows = 64;  // query rows that a block holds at a time

// Byte offsets in a block's shared memory, for any instruction set and format. A row is padded to
// row_floats.
struct NativeAttentionLayout {
  uint32_t q = 0;        // [kNativePassRows, row_floats] f32
  uint32_t sums = 0;     // the same
  uint32_t scores = 0;   // [kNativePassRows, kNativeKvTile] f32
  uint32_t weights = 0;  // [kNativePassRows, 16] f32, partial sums of a row's weights
  uint32_t rows = 0;     // [kNativePassRows], 64 bytes: what is kept of a row
  uint32_t staged = 0;  // [2, 2 (K, V), kNativeKvTile], 64 bytes: rows that are no longer than that
  uint32_t bytes = 0;
};

constexpr NativeAttentionLayout NativeAttentionLayoutOf(int head_dim) {
  constexpr uint32_t kRows = kNativePassRows, kTile = kNativeKvTile;
  const auto row = static_cast<uint32_t>((head_dim + 31) / 32 * 32) * 4;
  NativeAttentionLayout l;
  l.sums = l.q + kRows * row;
  l.scores = l.sums + kRows * row;
  l.weights = l.scores + kRows * kTile * 4;
  l.rows = l.weights + kRows * 64;
  l.staged = l.rows + kRows * 64;
  l.bytes = l.staged + 4 * kTile * 64;
  return l;
}

// ---- matrix units ----

inline constexpr int kMatrixWarps = 4;
inline constexpr int kMatrixChunk = 16;  // KV tokens that one warp copies at a time
inline constexpr int kMatrixDecodeRows =
    16;  // query rows of a decode item: heads of a group, padded
inline constexpr int kMatrixMaxGroup = kMatrixDecodeRows;
inline constexpr int kMatrixItemsAtOnce = 32;  // work items that a block resolves, one per thread

// A work item seen from one KV head, with all that the loops need of the step's lists.
struct ResolvedWorkItem {
  uint32_t kv_begin, kv_end;
  uint32_t tile_origin;  // of the first tile; its tokens below kv_begin read as zeros
  uint32_t kv_head;
  uint32_t row;  // resident row: whose block table
  uint32_t entry, split, num_splits;
  uint32_t first_q;   // index of the first query token in the step
  uint32_t position;  // KV position of that token
  uint32_t q_count;
};

// Kernels are compiled for a few head sizes, the tile of an instance; a smaller head is padded with
// zeros in shared memory.

// A warp's ring in the decode kernel, in stages of kMatrixChunk rows of K or of V, for heads of so
// many elements of 16 bits; twice as many of 8 have as many stages. With
// asynchronous copies 24 KB, less for small heads, so that two blocks fit a multiprocessor of sm_90
// and hold well over the 36 KB in flight that its share of the memory's latency asks for. Without:
// three, one being read, one complete, one being written.
constexpr int MatrixDecodeStages(const DeviceTraits& traits, int head_size) {
  if (!traits.async_copy) return 3;
  return head_size == 256 ? 3 : head_size == 128 ? 6 : head_size == 64 ? 10 : 12;
}
// The block's ring in the prefill kernel, in stages of kMatrixWarps * kMatrixChunk rows.
constexpr int MatrixPrefillStages(const DeviceTraits& traits, int head_size) {
  if (!traits.async_copy) return 2;
  return head_size == 256 ? 3 : 4;
}

// Rows that the warps of a decode block merge at a time: about 8 KB of f32, 4 KB for head size 256.
constexpr int MatrixMergeRows(int head_size) { return head_size == 256 ? 1 : 512 / head_size; }
// Floats of one such row; 8 more than needed keeps neighbouring rows in different banks.
constexpr int MatrixMergeStride(int head_size) { return head_size + 8; }

// Byte offsets in dynamic shared memory.
struct MatrixSharedLayout {
  uint32_t ring = 0;   // stages of K and V, swizzled rows
  uint32_t query = 0;  // query rows, swizzled
  uint32_t merge = 0;  // [kMatrixWarps, MatrixMergeRows, MatrixMergeStride] f32, decode only
  uint32_t stats = 0;  // max and sum, [2, kMatrixWarps, kMatrixDecodeRows] f32, decode only
  uint32_t items = 0;  // [kMatrixItemsAtOnce] ResolvedWorkItem
  uint32_t flag = 0;   // one word
  uint32_t bytes = 0;
};

// element_bytes: of KV; queries have two.
constexpr MatrixSharedLayout MatrixDecodeLayout(const DeviceTraits& traits, int head_size,
                                                int element_bytes = 2) {
  const uint32_t row = static_cast<uint32_t>(head_size) * 2;
  const int kv_row = head_size * element_bytes;
  MatrixSharedLayout l;
  l.query = l.ring + kMatrixWarps * kMatrixChunk *
                         static_cast<uint32_t>(MatrixDecodeStages(traits, kv_row / 2) * kv_row);
  l.merge = l.query + kMatrixDecodeRows * row;
  l.stats = l.merge +
            kMatrixWarps * 4 *
                static_cast<uint32_t>(MatrixMergeRows(head_size) * MatrixMergeStride(head_size));
  l.items = l.stats + 2 * kMatrixWarps * kMatrixDecodeRows * 4;
  l.flag = l.items + kMatrixItemsAtOnce * static_cast<uint32_t>(sizeof(ResolvedWorkItem));
  l.bytes = l.flag + 16;
  return l;
}

constexpr MatrixSharedLayout MatrixPrefillLayout(const DeviceTraits& traits, int head_size,
                                                 int element_bytes = 2) {
  const uint32_t row = static_cast<uint32_t>(head_size) * 2;
  const int kv_row = head_size * element_bytes;
  MatrixSharedLayout l;
  l.query = l.ring + kMatrixWarps * kMatrixChunk *
                         static_cast<uint32_t>(MatrixPrefillStages(traits, kv_row / 2) * kv_row);
  l.items = l.query + kPrefillRows * row;
  l.flag = l.items + kMatrixItemsAtOnce * static_cast<uint32_t>(sizeof(ResolvedWorkItem));
  l.bytes = l.flag + 16;
  return l;
}

// Whether a device has kernels for heads of so many elements: head size 256 does not fit 64 KB.
constexpr bool HasMatrixHeadSize(const DeviceTraits& traits, int head_size) {
  return static_cast<int>(MatrixDecodeLayout(traits, head_size).bytes) <= traits.shared_bytes &&
         static_cast<int>(MatrixPrefillLayout(traits, head_size).bytes) <= traits.shared_bytes;
}
// Of KV of 8 bits.
constexpr bool HasMatrixFp8HeadSize(const DeviceTraits& traits, int head_size) {
  return static_cast<int>(MatrixDecodeLayout(traits, head_size, 1).bytes) <= traits.shared_bytes &&
         static_cast<int>(MatrixPrefillLayout(traits, head_size, 1).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_GEOMETRY_H_
