// SPDX-License-Identifier: Apache-2.0
// The compiled kernels that frame a step. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_STEP_INSTANCES_H_
#define REPRISE_KERNELS_STEP_INSTANCES_H_

#include "kernels/kernel_instance.h"

// Publish is one block: told so, the compiler for sm_80 takes the registers that it would spill.
#define REPRISE_STEP_INSTANCES(X)                                                                  \
  X(reprise_fetch, kFetch, Block, FetchBody, FetchArgs, Threads(256), 0, None, None, None, 0,      \
    OnEveryDevice)                                                                                 \
  X(reprise_publish, kPublish, Block, PublishBody, PublishArgs, Threads(256), 1, None, None, None, \
    0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kFetch = {"step", "fetch"};
inline constexpr KernelFamily kPublish = {"step", "publish"};

inline constexpr KernelInstance kStepInstances[] = {
    REPRISE_STEP_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_INSTANCES_H_
