// SPDX-License-Identifier: Apache-2.0
// KvLayout: where K and V lie in one layer of the paged cache, for everyone who reads or writes
// there. A layer is [num_blocks, 2 (K, V), num_kv_heads, block_size, head_dim], so that one (block,
// K or V, head) is contiguous and bulk copies have long runs.
#ifndef REPRISE_KERNELS_ATTENTION_KV_LAYOUT_H_
#define REPRISE_KERNELS_ATTENTION_KV_LAYOUT_H_

#include <cstdint>

#include "runtime/dtype.h"

namespace reprise::kernels {

enum KvPart : int32_t { kKeys = 0, kValues = 1 };

struct KvLayout {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;  // tokens of a block, any number
  runtime::DType dtype = runtime::DType::kBf16;

  // The element at which dimension `dim` of the token at `position` in the block lies, counted from
  // the layer's first. On host and device. Linear in each of its arguments: whoever walks the cache
  // may add up the offsets of steps.
  constexpr int64_t Offset(int64_t block, int part, int head, int64_t position, int dim) const {
    return Row(block, part, head, position) * head_dim + dim;
  }
  // The same in rows of head_dim elements. Those of one block are fewer than 2^32.
  constexpr int64_t Row(int64_t block, int part, int head, int64_t position) const {
    return ((block * 2 + part) * num_kv_heads + head) * block_size + position;
  }
  // Elements of one block, K and V.
  constexpr int64_t BlockElements() const { return Offset(1, kKeys, 0, 0, 0); }
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_KV_LAYOUT_H_
