// SPDX-License-Identifier: Apache-2.0
// The compiled kernel of the stamp. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_STAMP_INSTANCES_H_
#define REPRISE_KERNELS_STAMP_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_STAMP_INSTANCES(X)                                                           \
  X(reprise_stamp, kStamp, Block, StampBody, StampArgs, Threads(64), 0, None, None, None, 0, \
    OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kStamp = {"stamp", "stamp"};

inline constexpr KernelInstance kStampInstances[] = {
    REPRISE_STAMP_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STAMP_INSTANCES_H_
