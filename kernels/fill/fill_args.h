// SPDX-License-Identifier: Apache-2.0
// Arguments of the fill kernels. See fill.h.
#ifndef REPRISE_KERNELS_FILL_FILL_ARGS_H_
#define REPRISE_KERNELS_FILL_FILL_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

// Elements that a block fills at a time.
constexpr int32_t kFillPiece = 4096;

struct RandomFillArgs {
  void* out = nullptr;  // [count] T
  int64_t count = 0;
  uint64_t seed = 0;
  float stddev = 1.0f;
};

struct NanFillArgs {
  void* out = nullptr;  // [count] T
  int64_t count = 0;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_FILL_FILL_ARGS_H_
