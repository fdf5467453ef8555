// SPDX-License-Identifier: Apache-2.0
// Arguments of the block copies. See block_copy.h.
#ifndef REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_ARGS_H_
#define REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

// Bytes that a thread block copies at a time.
constexpr int64_t kBlockCopyPiece = 16384;

// Pairs that one launch copies: they travel with its arguments.
constexpr int32_t kMaxCopyPairs = 256;

// Numbers of KV blocks, counted from where `from` and `to` of the arguments begin.
struct BlockPair {
  uint32_t from = 0;
  uint32_t to = 0;
};

// Layers of blocks of block_bytes each; the next layer begins so many bytes further on.
struct BlockCopyArgs {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t from_layer_bytes = 0;
  int64_t to_layer_bytes = 0;
  int64_t block_bytes = 0;  // of one block in one layer
  int32_t layers = 0;
  int32_t count = 0;  // of `pair`
  BlockPair pair[kMaxCopyPairs] = {};
};

struct NotifyHostArgs {
  uint64_t* word = nullptr;  // in mapped memory
  uint64_t value = 0;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_ARGS_H_
