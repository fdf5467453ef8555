// SPDX-License-Identifier: Apache-2.0
// The compiled kernels that gather columns. Columns of the list: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_GATHER_COLUMNS_INSTANCES_H_
#define REPRISE_KERNELS_GATHER_COLUMNS_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_GATHER_COLUMNS_INSTANCES(X)                                                       \
  X(reprise_gather_columns_f32, kGatherColumns, Block, GatherColumnsBody<float>,                  \
    GatherColumnsArgs, Threads(256), 0, F32, None, None, 0, OnEveryDevice)                        \
  X(reprise_gather_columns_bf16, kGatherColumns, Block, GatherColumnsBody<Bf16>,                  \
    GatherColumnsArgs, Threads(256), 0, Bf16, None, None, 0, OnEveryDevice)                       \
  X(reprise_gather_columns_f16, kGatherColumns, Block, GatherColumnsBody<F16>, GatherColumnsArgs, \
    Threads(256), 0, F16, None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kGatherColumns = {"gather_columns", "gather_columns"};

inline constexpr KernelInstance kGatherColumnsInstances[] = {
    REPRISE_GATHER_COLUMNS_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_GATHER_COLUMNS_INSTANCES_H_
