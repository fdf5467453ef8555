// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of rope + KV append. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_ROPE_APPEND_INSTANCES_H_
#define REPRISE_KERNELS_ROPE_APPEND_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_ROPE_APPEND_INSTANCES(X)                                                          \
  X(reprise_rope_append_f32, kRopeAppend, Block, RopeAppendPlainBody<float>, RopeAppendArgs,      \
    ThreadsUpTo(512), 3, F32, None, F32, 0, OnEveryDevice)                                        \
  X(reprise_rope_append_bf16, kRopeAppend, Block, RopeAppendPlainBody<Bf16>, RopeAppendArgs,      \
    ThreadsUpTo(512), 3, Bf16, None, Bf16, 0, OnEveryDevice)                                      \
  X(reprise_rope_append_f16, kRopeAppend, Block, RopeAppendPlainBody<F16>, RopeAppendArgs,        \
    ThreadsUpTo(512), 3, F16, None, F16, 0, OnEveryDevice)                                        \
  X(reprise_rope_append_normed_f32, kRopeAppendNormed, Block, RopeAppendNormedBody<float>,        \
    RopeAppendArgs, ThreadsUpTo(512), 2, F32, F32, F32, 0, OnEveryDevice)                         \
  X(reprise_rope_append_normed_bf16, kRopeAppendNormed, Block, RopeAppendNormedBody<Bf16>,        \
    RopeAppendArgs, ThreadsUpTo(512), 2, Bf16, Bf16, Bf16, 0, OnEveryDevice)                      \
  X(reprise_rope_append_normed_f16, kRopeAppendNormed, Block, RopeAppendNormedBody<F16>,          \
    RopeAppendArgs, ThreadsUpTo(512), 2, F16, F16, F16, 0, OnEveryDevice)                         \
  X(reprise_rope_append_f32_fp8, kRopeAppend, Block, (RopeAppendFp8Body<float, false>),           \
    RopeAppendArgs, ThreadsUpTo(512), 3, F32, None, Fp8, 0, OnEveryDevice)                        \
  X(reprise_rope_append_bf16_fp8, kRopeAppend, Block, (RopeAppendFp8Body<Bf16, false>),           \
    RopeAppendArgs, ThreadsUpTo(512), 3, Bf16, None, Fp8, 0, OnEveryDevice)                       \
  X(reprise_rope_append_f16_fp8, kRopeAppend, Block, (RopeAppendFp8Body<F16, false>),             \
    RopeAppendArgs, ThreadsUpTo(512), 3, F16, None, Fp8, 0, OnEveryDevice)                        \
  X(reprise_rope_append_normed_f32_fp8, kRopeAppendNormed, Block,                                 \
    (RopeAppendFp8Body<float, true>), RopeAppendArgs, ThreadsUpTo(512), 2, F32, F32, Fp8, 0,      \
    OnEveryDevice)                                                                                \
  X(reprise_rope_append_normed_bf16_fp8, kRopeAppendNormed, Block,                                \
    (RopeAppendFp8Body<Bf16, true>), RopeAppendArgs, ThreadsUpTo(512), 2, Bf16, Bf16, Fp8, 0,     \
    OnEveryDevice)                                                                                \
  X(reprise_rope_append_normed_f16_fp8, kRopeAppendNormed, Block, (RopeAppendFp8Body<F16, true>), \
    RopeAppendArgs, ThreadsUpTo(512), 2, F16, F16, Fp8, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kRopeAppend = {"rope_append", "rope_append"};
inline constexpr KernelFamily kRopeAppendNormed = {"rope_append", "rope_append_normed"};

inline constexpr KernelInstance kRopeAppendInstances[] = {
    REPRISE_ROPE_APPEND_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ROPE_APPEND_INSTANCES_H_
