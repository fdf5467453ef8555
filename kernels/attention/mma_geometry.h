// SPDX-License-Identifier: Apache-2.0
// Shape of the matrix-unit attention kernels, as host and device both need it: threads, tiles, and
// how a block's shared memory is laid out. The host picks kernels by it (attention_shapes.cc), the
// bodies place their buffers by it (mma_body.h).
#ifndef REPRISE_KERNELS_ATTENTION_MMA_GEOMETRY_H_
#define REPRISE_KERNELS_ATTENTION_MMA_GEOMETRY_H_

#include <cstdint>

#include "kernels/attention/attention_args.h"
#include "kernels/device/traits.h"

namespace reprise::kernels {

inline constexpr int kMmaWaves = 4;
inline constexpr int kMmaChunk = 16;       // KV tokens that one wave copies at a time
inline constexpr int kMmaDecodeRows = 16;  // query rows of a decode piece: heads of a group, padded
inline constexpr int kMmaMaxGroup = kMmaDecodeRows;
inline constexpr int kMmaWindow = 32;  // pieces that a block resolves at a time, one per thread

constexpr int MmaAttentionThreads(const DeviceTraits& traits) {
  return kMmaWaves * traits.wave_size;
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
inline constexpr int kMmaHeadSizes[] = {32, 64, 128, 256};

// Index in kMmaHeadSizes of the smallest that holds head_dim, 4 when none does.
constexpr int MmaHeadSizeIndex(int head_dim) {
  int i = 0;
  while (i < 4 && kMmaHeadSizes[i] < head_dim) ++i;
  return i;
}

// A wave's ring in the decode kernel, in slots of kMmaChunk rows of K or of V. With asynchronous
// copies 24 KB, less for small heads, so that two blocks fit a multiprocessor of sm_90 and hold
// well over the 36 KB in flight that its share of the memory's latency asks for. Without: three,
// one being read, one complete, one being written.
constexpr int MmaDecodeSlots(const DeviceTraits& traits, int head_size) {
  if (!traits.async_copy) return 3;
  return head_size == 256 ? 3 : head_size == 128 ? 6 : head_size == 64 ? 10 : 12;
}
// The block's ring in the prefill kernel, in slots of kMmaWaves * kMmaChunk rows.
constexpr int MmaPrefillSlots(const DeviceTraits& traits, int head_size) {
  if (!traits.async_copy) return 2;
  return head_size == 256 ? 3 : 4;
}

// Rows that the waves of a decode block merge at a time: about 8 KB of f32, 4 KB for head size 256.
constexpr int MmaMergeRows(int head_size) { return head_size == 256 ? 1 : 512 / head_size; }
// Floats of one such row; 8 more than needed keeps neighbouring rows in different banks.
constexpr int MmaMergeStride(int head_size) { return head_size + 8; }

// Byte offsets in dynamic shared memory.
struct MmaSharedLayout {
  uint32_t ring = 0;    // slots of K and V, swizzled rows
  uint32_t query = 0;   // query rows, swizzled
  uint32_t merge = 0;   // [kMmaWaves, MmaMergeRows, MmaMergeStride] f32, decode only
  uint32_t stats = 0;   // max and sum, [2, kMmaWaves, kMmaDecodeRows] f32, decode only
  uint32_t pieces = 0;  // [kMmaWindow] AttentionPiece
  uint32_t flag = 0;    // one word, decode only
  uint32_t bytes = 0;
};

constexpr MmaSharedLayout MmaDecodeLayout(const DeviceTraits& traits, int head_size) {
  const uint32_t row = static_cast<uint32_t>(head_size) * 2;
  MmaSharedLayout l;
  l.query = l.ring +
            kMmaWaves * static_cast<uint32_t>(MmaDecodeSlots(traits, head_size)) * kMmaChunk * row;
  l.merge = l.query + kMmaDecodeRows * row;
  l.stats =
      l.merge +
      kMmaWaves * 4 * static_cast<uint32_t>(MmaMergeRows(head_size) * MmaMergeStride(head_size));
  l.pieces = l.stats + 2 * kMmaWaves * kMmaDecodeRows * 4;
  l.flag = l.pieces + kMmaWindow * static_cast<uint32_t>(sizeof(AttentionPiece));
  l.bytes = l.flag + 16;
  return l;
}

constexpr MmaSharedLayout MmaPrefillLayout(const DeviceTraits& traits, int head_size) {
  const uint32_t row = static_cast<uint32_t>(head_size) * 2;
  MmaSharedLayout l;
  l.query = l.ring +
            kMmaWaves * static_cast<uint32_t>(MmaPrefillSlots(traits, head_size)) * kMmaChunk * row;
  l.pieces = l.query + kPrefillRows * row;
  l.bytes = l.pieces + kMmaWindow * static_cast<uint32_t>(sizeof(AttentionPiece));
  return l;
}

// Whether kernels for heads of so many elements are compiled for such a device: head size 256 does
// not fit 64 KB.
constexpr bool HasMmaHeadSize(const DeviceTraits& traits, int head_size) {
  return static_cast<int>(MmaDecodeLayout(traits, head_size).bytes) <= traits.shared_bytes &&
         static_cast<int>(MmaPrefillLayout(traits, head_size).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_MMA_GEOMETRY_H_
