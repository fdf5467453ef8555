// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of the fills. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_FILL_INSTANCES_H_
#define REPRISE_KERNELS_FILL_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_FILL_INSTANCES(X)                                                                  \
  X(reprise_random_fill_f32, kRandomFill, Block, RandomFillBody<float>, RandomFillArgs,            \
    Threads(256), 0, F32, None, None, 0, OnEveryDevice)                                            \
  X(reprise_random_fill_bf16, kRandomFill, Block, RandomFillBody<Bf16>, RandomFillArgs,            \
    Threads(256), 0, Bf16, None, None, 0, OnEveryDevice)                                           \
  X(reprise_random_fill_f16, kRandomFill, Block, RandomFillBody<F16>, RandomFillArgs,              \
    Threads(256), 0, F16, None, None, 0, OnEveryDevice)                                            \
  X(reprise_nan_fill_f32, kNanFill, Block, NanFillBody<float>, NanFillArgs, Threads(256), 0, F32,  \
    None, None, 0, OnEveryDevice)                                                                  \
  X(reprise_nan_fill_bf16, kNanFill, Block, NanFillBody<Bf16>, NanFillArgs, Threads(256), 0, Bf16, \
    None, None, 0, OnEveryDevice)                                                                  \
  X(reprise_nan_fill_f16, kNanFill, Block, NanFillBody<F16>, NanFillArgs, Threads(256), 0, F16,    \
    None, None, 0, OnEveryDevice)                                                                  \
  X(reprise_block_fill_f32, kBlockFill, Block, BlockFillBody<float>, BlockFillArgs, Threads(256),  \
    0, F32, None, None, 0, OnEveryDevice)                                                          \
  X(reprise_block_fill_bf16, kBlockFill, Block, BlockFillBody<Bf16>, BlockFillArgs, Threads(256),  \
    0, Bf16, None, None, 0, OnEveryDevice)                                                         \
  X(reprise_block_fill_f16, kBlockFill, Block, BlockFillBody<F16>, BlockFillArgs, Threads(256), 0, \
    F16, None, None, 0, OnEveryDevice)                                                             \
  X(reprise_random_fill_fp8, kRandomFill, Block, RandomFillFp8Body, RandomFillArgs, Threads(256),  \
    0, None, None, Fp8, 0, OnEveryDevice)                                                          \
  X(reprise_nan_fill_fp8, kNanFill, Block, NanFillFp8Body, NanFillArgs, Threads(256), 0, None,     \
    None, Fp8, 0, OnEveryDevice)                                                                   \
  X(reprise_block_fill_fp8, kBlockFill, Block, BlockFillFp8Body, BlockFillArgs, Threads(256), 0,   \
    None, None, Fp8, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kRandomFill = {"fill", "random_fill"};
inline constexpr KernelFamily kNanFill = {"fill", "nan_fill"};
inline constexpr KernelFamily kBlockFill = {"fill", "block_fill"};

inline constexpr KernelInstance kFillInstances[] = {
    REPRISE_FILL_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_FILL_INSTANCES_H_
