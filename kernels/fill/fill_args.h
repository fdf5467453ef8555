// SPDX-License-Identifier: Apache-2.0
// Arguments of the fill kernels. See fill.h.
#ifndef REPRISE_KERNELS_FILL_FILL_ARGS_H_
#define REPRISE_KERNELS_FILL_FILL_ARGS_H_

#include <cstdint>

#include "runtime/dtype.h"

namespace reprise::kernels {

// Elements that a block fills at a time.
constexpr int32_t kFillPiece = 4096;

// Args name the type of what they fill: the compute dtype, or one of 8 bits.

struct RandomFillArgs {
  void* out = nullptr;  // [count] of `dtype`
  runtime::DType dtype = runtime::DType::kF32;
  int64_t count = 0;
  uint64_t seed = 0;
  float stddev = 1.0f;
  bool packed = false;  // kE4m3 in words of four (packed_layout.h)
};

struct NanFillArgs {
  void* out = nullptr;  // [count] of `dtype`
  runtime::DType dtype = runtime::DType::kF32;
  int64_t count = 0;
};

// Blocks that one launch fills: their ids travel with its arguments.
constexpr int32_t kMaxFillBlocks = 256;

struct BlockFillArgs {
  void* out = nullptr;  // [layers, layer_elements] of `dtype`, a layer in blocks of block_elements
  runtime::DType dtype = runtime::DType::kF32;
  int64_t layer_elements = 0;
  int64_t block_elements = 0;
  int32_t layers = 0;
  int32_t count = 0;  // of `block`
  float value = 0.0f;
  uint32_t block[kMaxFillBlocks] = {};
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_FILL_FILL_ARGS_H_
