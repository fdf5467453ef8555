// SPDX-License-Identifier: Apache-2.0
// The compiled kernels that round rows. Columns of the list: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_ROUND_ROWS_INSTANCES_H_
#define REPRISE_KERNELS_ROUND_ROWS_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_ROUND_ROWS_INSTANCES(X)                                             \
  X(reprise_round_rows_f32, kRoundRows, Block, RoundRowsBody<float>, RoundRowsArgs, \
    ThreadsUpTo(1024), 0, F32, None, None, 0, OnEveryDevice)                        \
  X(reprise_round_rows_bf16, kRoundRows, Block, RoundRowsBody<Bf16>, RoundRowsArgs, \
    ThreadsUpTo(1024), 0, Bf16, None, None, 0, OnEveryDevice)                       \
  X(reprise_round_rows_f16, kRoundRows, Block, RoundRowsBody<F16>, RoundRowsArgs,   \
    ThreadsUpTo(1024), 0, F16, None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kRoundRows = {"round_rows", "round_rows"};

inline constexpr KernelInstance kRoundRowsInstances[] = {
    REPRISE_ROUND_ROWS_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ROUND_ROWS_INSTANCES_H_
