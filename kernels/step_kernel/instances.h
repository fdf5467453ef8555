// SPDX-License-Identifier: Apache-2.0
// The compiled step kernels: one for each size of heads. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_STEP_KERNEL_INSTANCES_H_
#define REPRISE_KERNELS_STEP_KERNEL_INSTANCES_H_

#include "kernels/kernel_instance.h"
#include "kernels/step_kernel/step_kernel_geometry.h"

#define REPRISE_STEP_KERNEL_INSTANCES(X)                                                          \
  X(reprise_step_kernel_bf16_64, kStepKernel, Thread, (StepKernelBody<Bf16, 64>), StepKernelArgs, \
    Threads(kStepThreads), 1, Bf16, Bf16, Bf16, 64, HasStepKernel)                                \
  X(reprise_step_kernel_bf16_128, kStepKernel, Thread, (StepKernelBody<Bf16, 128>),               \
    StepKernelArgs, Threads(kStepThreads), 1, Bf16, Bf16, Bf16, 128, HasStepKernel)               \
  X(reprise_step_kernel_f16_64, kStepKernel, Thread, (StepKernelBody<F16, 64>), StepKernelArgs,   \
    Threads(kStepThreads), 1, F16, F16, F16, 64, HasStepKernel)                                   \
  X(reprise_step_kernel_f16_128, kStepKernel, Thread, (StepKernelBody<F16, 128>), StepKernelArgs, \
    Threads(kStepThreads), 1, F16, F16, F16, 128, HasStepKernel)

namespace reprise::kernels {

inline constexpr KernelFamily kStepKernel = {"step_kernel", "step_kernel"};

inline constexpr KernelInstance kStepKernelInstances[] = {
    REPRISE_STEP_KERNEL_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_KERNEL_INSTANCES_H_
