// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of sampling. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_SAMPLE_INSTANCES_H_
#define REPRISE_KERNELS_SAMPLE_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_SAMPLE_INSTANCES(X)                                                                \
  X(reprise_sample_partial, kSamplePartial, Block, SamplePartialBody, SampleArgs, Threads(256), 0, \
    None, None, None, 0, OnEveryDevice)                                                            \
  X(reprise_sample_final, kSampleFinal, Block, SampleFinalBody, SampleArgs, Threads(1024), 0,      \
    None, None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kSamplePartial = {"sample", "sample_partial"};
inline constexpr KernelFamily kSampleFinal = {"sample", "sample_final"};

inline constexpr KernelInstance kSampleInstances[] = {
    REPRISE_SAMPLE_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SAMPLE_INSTANCES_H_
