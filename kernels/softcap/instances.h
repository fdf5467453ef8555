// SPDX-License-Identifier: Apache-2.0
// The compiled kernel of the soft cap. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_SOFTCAP_INSTANCES_H_
#define REPRISE_KERNELS_SOFTCAP_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_SOFTCAP_INSTANCES(X)                                                               \
  X(reprise_softcap, kSoftcap, Block, SoftcapBody, SoftcapArgs, Threads(256), 0, None, None, None, \
    0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kSoftcap = {"softcap", "softcap"};

inline constexpr KernelInstance kSoftcapInstances[] = {
    REPRISE_SOFTCAP_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SOFTCAP_INSTANCES_H_
