// SPDX-License-Identifier: Apache-2.0
// Shape of the matrix-unit attention kernels, as host and device both need it: threads, tiles, and
// how a block's shared memory is laid out. The host picks kernels by it (attention_shapes.cc), the
// bodies place their buffers by it (attention_matrix_body.h).
#ifndef REPRISE_KERNELS_ATTENTION_MATRIX_GEOMETRY_H_
#define REPRISE_KERNELS_ATTENTION_MATRIX_GEOMETRY_H_

#include <cstdint>

#include "kernels/attention/attention_args.h"
#include "kernels/device/traits.h"

namespace reprise::kernels {

inline constexpr int kMatrixWarps = 4;
inline constexpr int kMatrixChunk = 16;  // KV tokens that one warp copies at a time
inline constexpr int kMatrixDecodeRows =
    16;  // query rows of a decode piece: heads of a group, padded
inline constexpr int kMatrixMaxGroup = kMatrixDecodeRows;
inline constexpr int kMatrixWindow = 32;  // pieces that a block resolves at a time, one per thread

constexpr int MatrixAttentionThreads(const DeviceTraits& traits) {
  return kMatrixWarps * traits.warp_size;
}

// One item seen from one KV head, with all that the loops need of the step's lists.
struct AttentionPiece {
  uint32_t kv_begin, kv_end;
  uint32_t tile_origin;  // of the first tile; its tokens below kv_begin read as zeros
  uint32_t kv_head;
  uint32_t row;  // resident row: whose block table
  uint32_t entry, split, num_splits;
  uint32_t first_q;   // index of the first query token in the step
  uint32_t position;  // KV position of that token
  uint32_t q_count;
};

// Head sizes that kernels are compiled for; smaller heads are padded with zeros in shared memory.
inline constexpr int kMatrixHeadSizes[] = {32, 64, 128, 256};

// Index in kMatrixHeadSizes of the smallest that holds head_dim, 4 when none does.
constexpr int MatrixHeadSizeIndex(int head_dim) {
  int i = 0;
  while (i < 4 && kMatrixHeadSizes[i] < head_dim) ++i;
  return i;
}

// A warp's ring in the decode kernel, in slots of kMatrixChunk rows of K or of V. With asynchronous
// copies 24 KB, less for small heads, so that two blocks fit a multiprocessor of sm_90 and hold
// well over the 36 KB in flight that its share of the memory's latency asks for. Without: three,
// one being read, one complete, one being written.
constexpr int MatrixDecodeSlots(const DeviceTraits& traits, int head_size) {
  if (!traits.async_copy) return 3;
  return head_size == 256 ? 3 : head_size == 128 ? 6 : head_size == 64 ? 10 : 12;
}
// The block's ring in the prefill kernel, in slots of kMatrixWarps * kMatrixChunk rows.
constexpr int MatrixPrefillSlots(const DeviceTraits& traits, int head_size) {
  if (!traits.async_copy) return 2;
  return head_size == 256 ? 3 : 4;
}

// Rows that the warps of a decode block merge at a time: about 8 KB of f32, 4 KB for head size 256.
constexpr int MatrixMergeRows(int head_size) { return head_size == 256 ? 1 : 512 / head_size; }
// Floats of one such row; 8 more than needed keeps neighbouring rows in different banks.
constexpr int MatrixMergeStride(int head_size) { return head_size + 8; }

// Byte offsets in dynamic shared memory.
struct MatrixSharedLayout {
  uint32_t ring = 0;    // slots of K and V, swizzled rows
  uint32_t query = 0;   // query rows, swizzled
  uint32_t merge = 0;   // [kMatrixWarps, MatrixMergeRows, MatrixMergeStride] f32, decode only
  uint32_t stats = 0;   // max and sum, [2, kMatrixWarps, kMatrixDecodeRows] f32, decode only
  uint32_t pieces = 0;  // [kMatrixWindow] AttentionPiece
  uint32_t flag = 0;    // one word, decode only
  uint32_t bytes = 0;
};

constexpr MatrixSharedLayout MatrixDecodeLayout(const DeviceTraits& traits, int head_size) {
  const uint32_t row = static_cast<uint32_t>(head_size) * 2;
  MatrixSharedLayout l;
  l.query = l.ring + kMatrixWarps * static_cast<uint32_t>(MatrixDecodeSlots(traits, head_size)) *
                         kMatrixChunk * row;
  l.merge = l.query + kMatrixDecodeRows * row;
  l.stats = l.merge +
            kMatrixWarps * 4 *
                static_cast<uint32_t>(MatrixMergeRows(head_size) * MatrixMergeStride(head_size));
  l.pieces = l.stats + 2 * kMatrixWarps * kMatrixDecodeRows * 4;
  l.flag = l.pieces + kMatrixWindow * static_cast<uint32_t>(sizeof(AttentionPiece));
  l.bytes = l.flag + 16;
  return l;
}

constexpr MatrixSharedLayout MatrixPrefillLayout(const DeviceTraits& traits, int head_size) {
  const uint32_t row = static_cast<uint32_t>(head_size) * 2;
  MatrixSharedLayout l;
  l.query = l.ring + kMatrixWarps * static_cast<uint32_t>(MatrixPrefillSlots(traits, head_size)) *
                         kMatrixChunk * row;
  l.pieces = l.query + kPrefillRows * row;
  l.bytes = l.pieces + kMatrixWindow * static_cast<uint32_t>(sizeof(AttentionPiece));
  return l;
}

// Whether kernels for heads of so many elements are compiled for such a device: head size 256 does
// not fit 64 KB.
constexpr bool HasMatrixHeadSize(const DeviceTraits& traits, int head_size) {
  return static_cast<int>(MatrixDecodeLayout(traits, head_size).bytes) <= traits.shared_bytes &&
         static_cast<int>(MatrixPrefillLayout(traits, head_size).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_MATRIX_GEOMETRY_H_
