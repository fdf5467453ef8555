// SPDX-License-Identifier: Apache-2.0
// KvLayout: where K and V lie in one layer of the paged cache, for everyone who reads or writes
// there. A layer is [num_blocks, 2 (K, V), num_kv_heads, block_size, head_dim], so that one (block,
// K or V, head) is contiguous and bulk copies have long runs.
//
// Swizzled, those block_size x head_dim elements lie as [head_dim / P, block_size, P], in panels of
// P elements, 128 bytes, and 16-byte chunk c of a position's row in a panel at c ^ (position % 8).
// A bulk copy then brings rows into shared memory as fragment loads want them, eight neighbouring
// rows of one chunk in eight different groups of banks.
#ifndef REPRISE_KERNELS_ATTENTION_KV_LAYOUT_H_
#define REPRISE_KERNELS_ATTENTION_KV_LAYOUT_H_

#include <cstdint>

#include "runtime/dtype.h"

namespace reprise::kernels {

enum KvPart : int32_t { kKeys = 0, kValues = 1 };

// What elements of 8 bits stand for: a number is a stored element times the scale of its KV head,
// the same for all tokens. A model with one scale for a layer repeats it.
struct KvScales {
  const float* k = nullptr;  // [num_kv_heads] f32, finite and above 0; nullptr: all 1
  const float* v = nullptr;  // the same for V

  constexpr bool any() const { return k != nullptr || v != nullptr; }
  // Of a part of a head.
  constexpr float Of(int part, int kv_head) const {
    const float* const scales = part == kKeys ? k : v;
    return scales != nullptr ? scales[kv_head] : 1.0f;
  }
};

inline constexpr int32_t kKvChunkBytes = 16;
inline constexpr int32_t kKvPanelBytes = 128;

struct KvLayout {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;  // tokens of a block, any number
  runtime::DType dtype = runtime::DType::kBf16;
  bool swizzled = false;  // only where CanSwizzle

  // Elements of 16 or 8 bits in rows of whole panels.
  constexpr bool CanSwizzle() const {
    return ElementBytes() <= 2 && head_dim % PanelElements() == 0;
  }

  // The element at which dimension `dim` of the token at `position` in the block lies, counted from
  // the layer's first. On host and device.
  constexpr int64_t Offset(int64_t block, int part, int head, int64_t position, int dim) const {
    return HeadOffset(block, part, head) + RowOffset(position) + DimOffset(position, dim);
  }
  // The first element of a (block, K or V, head). Linear in each of its arguments.
  constexpr int64_t HeadOffset(int64_t block, int part, int head) const {
    return ((block * 2 + part) * num_kv_heads + head) * block_size * head_dim;
  }
  // Where a position's row begins, from there. Who knows the bytes of an element says so: a kernel
  // then divides by constants.
  constexpr int64_t RowOffset(int64_t position, int32_t element_bytes) const {
    return position * (swizzled ? kKvPanelBytes / element_bytes : head_dim);
  }
  constexpr int64_t RowOffset(int64_t position) const {
    return RowOffset(position, ElementBytes());
  }
  // A dimension, from there. Chunks stay whole.
  constexpr int64_t DimOffset(int64_t position, int dim, int32_t element_bytes) const {
    if (!swizzled) return dim;
    const int of_panel = kKvPanelBytes / element_bytes, of_chunk = kKvChunkBytes / element_bytes;
    const int panel = dim / of_panel, in_panel = dim % of_panel;
    const int chunk = in_panel / of_chunk ^ static_cast<int>(position % 8);
    return static_cast<int64_t>(panel) * block_size * of_panel + chunk * of_chunk +
           in_panel % of_chunk;
  }
  constexpr int64_t DimOffset(int64_t position, int dim) const {
    return DimOffset(position, dim, ElementBytes());
  }
  // Elements of one block, K and V.
  constexpr int64_t BlockElements() const { return HeadOffset(1, kKeys, 0); }

  constexpr int32_t ChunkElements() const { return kKvChunkBytes / ElementBytes(); }
  constexpr int32_t PanelElements() const { return kKvPanelBytes / ElementBytes(); }
  constexpr int32_t ElementBytes() const { return static_cast<int32_t>(runtime::SizeOf(dtype)); }
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_KV_LAYOUT_H_
