// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of SiLU*up. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_SILU_MUL_INSTANCES_H_
#define REPRISE_KERNELS_SILU_MUL_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_SILU_MUL_INSTANCES(X)                                                              \
  X(reprise_silu_mul_f32, kSiluMul, Block, SiluMulBody<float>, SiluMulArgs, Threads(256), 0, F32,  \
    None, None, 0, OnEveryDevice)                                                                  \
  X(reprise_silu_mul_bf16, kSiluMul, Block, SiluMulBody<Bf16>, SiluMulArgs, Threads(256), 0, Bf16, \
    None, None, 0, OnEveryDevice)                                                                  \
  X(reprise_silu_mul_f16, kSiluMul, Block, SiluMulBody<F16>, SiluMulArgs, Threads(256), 0, F16,    \
    None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kSiluMul = {"silu_mul", "silu_mul"};

inline constexpr KernelInstance kSiluMulInstances[] = {
    REPRISE_SILU_MUL_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SILU_MUL_INSTANCES_H_
