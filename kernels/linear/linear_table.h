// SPDX-License-Identifier: Apache-2.0
// A linear table: for some shapes of weights and numbers of rows, which kernel Linear takes in
// place of its own choice. Data alone; linear_choice.h says what may stand there, and follows it.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_TABLE_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_TABLE_H_

#include <cstdint>
#include <vector>

#include "kernels/kernel_instance.h"

namespace reprise::kernels {

// The kernel says which format of weights it is for, and whether they are packed.
struct LinearTableEntry {
  int64_t out_features = 0;
  int64_t in_features = 0;
  int32_t group_size = 0;  // LinearWeights::group_size
  // Of launches with so many rows: both ends are among them.
  uint32_t first_rows = 1;
  uint32_t last_rows = 1;
  const KernelInstance* kernel = nullptr;  // of kLinearInstances

  bool operator==(const LinearTableEntry&) const = default;
};
using LinearTable = std::vector<LinearTableEntry>;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_TABLE_H_
