// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of RMSNorm. That which rounds has room for fewer blocks: it needs more
// registers. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_RMS_NORM_INSTANCES_H_
#define REPRISE_KERNELS_RMS_NORM_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_RMS_NORM_INSTANCES(X)                                                              \
  X(reprise_rms_norm_f32, kRmsNorm, Block, RmsNormBody<float>, RmsNormArgs, ThreadsUpTo(512), 3,   \
    F32, F32, None, 0, OnEveryDevice)                                                              \
  X(reprise_rms_norm_bf16, kRmsNorm, Block, RmsNormBody<Bf16>, RmsNormArgs, ThreadsUpTo(512), 3,   \
    Bf16, Bf16, None, 0, OnEveryDevice)                                                            \
  X(reprise_rms_norm_f16, kRmsNorm, Block, RmsNormBody<F16>, RmsNormArgs, ThreadsUpTo(512), 3,     \
    F16, F16, None, 0, OnEveryDevice)                                                              \
  X(reprise_rms_norm_rounded_f32, kRmsNormRounded, Block, (RmsNormBody<float, true>), RmsNormArgs, \
    ThreadsUpTo(512), 2, F32, F32, None, 0, OnEveryDevice)                                         \
  X(reprise_rms_norm_rounded_bf16, kRmsNormRounded, Block, (RmsNormBody<Bf16, true>), RmsNormArgs, \
    ThreadsUpTo(512), 2, Bf16, Bf16, None, 0, OnEveryDevice)                                       \
  X(reprise_rms_norm_rounded_f16, kRmsNormRounded, Block, (RmsNormBody<F16, true>), RmsNormArgs,   \
    ThreadsUpTo(512), 2, F16, F16, None, 0, OnEveryDevice)                                         \
  X(reprise_rms_norm_add_f32, kRmsNormAdd, Block, RmsNormAddBody<float>, RmsNormArgs,              \
    ThreadsUpTo(512), 3, F32, F32, None, 0, OnEveryDevice)                                         \
  X(reprise_rms_norm_add_bf16, kRmsNormAdd, Block, RmsNormAddBody<Bf16>, RmsNormArgs,              \
    ThreadsUpTo(512), 3, Bf16, Bf16, None, 0, OnEveryDevice)                                       \
  X(reprise_rms_norm_add_f16, kRmsNormAdd, Block, RmsNormAddBody<F16>, RmsNormArgs,                \
    ThreadsUpTo(512), 3, F16, F16, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kRmsNorm = {"rms_norm", "rms_norm"};
inline constexpr KernelFamily kRmsNormRounded = {"rms_norm", "rms_norm_rounded"};
inline constexpr KernelFamily kRmsNormAdd = {"rms_norm", "rms_norm_add"};

inline constexpr KernelInstance kRmsNormInstances[] = {
    REPRISE_RMS_NORM_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_RMS_NORM_INSTANCES_H_
