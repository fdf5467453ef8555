// SPDX-License-Identifier: Apache-2.0
// Arguments of rounding rows. See round_rows.h.
#ifndef REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_ARGS_H_
#define REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct RoundRowsArgs {
  // The linear layer behind it reads weights, and counts that the plan wrote (thread.h): the plan
  // is older than any kernel before this one that may still run, a norm or SiLU*up among them.
  static constexpr bool kLetsNextBeginFirst = true;
  const void* x = nullptr;             // [rows, columns] T
  void* out = nullptr;                 // [rows, columns] E4M3
  float* scales = nullptr;             // [rows]
  const uint32_t* num_rows = nullptr;  // live count
  int32_t columns = 0;
};

// Packs of 16 bytes of a row that one thread keeps; longer rows are read twice.
constexpr int32_t kRoundPacksPerThread = 2;
// The least scale, far below that of any activation, so that its inverse is a number.
constexpr float kLeastRowScale = 0x1p-100f;
constexpr float kMostE4m3 = 448.0f;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_ARGS_H_
