// SPDX-License-Identifier: Apache-2.0
// KvPart: which part of a KV block's contents is read or written from outside, and how the contents
// lie: the same for every device, whatever order its own kernels want.
//
// contents: [num_layers, 2 (K, V), num_kv_heads, num_tokens, head_dim] elements of the KV cache's
// data type, little-endian, nothing between them. Tokens are the first ones of the block. Elements
// of 8 bits are as stored: a number is one times the scale of its head, which is the model's.
#ifndef REPRISE_ENGINE_KV_PART_H_
#define REPRISE_ENGINE_KV_PART_H_

#include <cstdint>

#include "runtime/dtype.h"

namespace reprise::engine {

// What a row carried beside its KV, in swap space.
struct SwappedState {
  uint32_t place = 0;           // what it is called there
  uint32_t context_length = 0;  // tokens that it is the state of
};

// Parts of one read or write, and blocks of one move to or from swap space, at most: what goes
// ahead of the next step in one piece.
inline constexpr uint32_t kMaxKvBlocksPerCall = 256;

struct KvPart {
  uint32_t block = 0;
  uint32_t first_layer = 0;
  uint32_t num_layers = 0;
  uint32_t num_tokens = 0;
};

// What contents mean. Two engines of one model whose shapes are equal may hand each other parts;
// that it is one model is for their owners to know.
struct KvShape {
  uint32_t num_layers = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_size = 0;  // tokens
  runtime::DType dtype = runtime::DType::kBf16;
  // Of the contents of one layer's token: K and V of all heads.
  uint64_t TokenBytes() const {
    return uint64_t{2} * num_kv_heads * head_dim * runtime::SizeOf(dtype);
  }
  // Of a part's contents.
  uint64_t BytesOf(const KvPart& part) const {
    return TokenBytes() * part.num_tokens * part.num_layers;
  }
  // As which it counts, however many tokens it has.
  uint64_t WholeBytesOf(const KvPart& part) const {
    return TokenBytes() * block_size * part.num_layers;
  }
  bool operator==(const KvShape&) const = default;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_KV_PART_H_
