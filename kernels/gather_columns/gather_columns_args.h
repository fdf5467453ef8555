// SPDX-License-Identifier: Apache-2.0
// Arguments of the gather of columns. See gather_columns.h.
#ifndef REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_ARGS_H_
#define REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct GatherColumnsArgs {
  // The linear layer behind it reads weights, and counts that the plan wrote (thread.h): the plan
  // is older than any kernel before this one that may still run, a norm or SiLU*up among them.
  static constexpr bool kLetsNextBeginFirst = true;
  const void* x = nullptr;             // [rows, columns] T
  void* out = nullptr;                 // [rows, columns] T, not x
  const uint32_t* order = nullptr;     // [columns] the column of x that each of `out` is
  const uint32_t* num_rows = nullptr;  // live count
  int32_t columns = 0;
};

// Elements that a thread takes at a time, where a row is a multiple of them.
constexpr int32_t kGatherPack = 4;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_ARGS_H_
