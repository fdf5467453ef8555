// SPDX-License-Identifier: Apache-2.0
// The compiled kernel of the page walk. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_PAGE_WALK_INSTANCES_H_
#define REPRISE_KERNELS_PAGE_WALK_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_PAGE_WALK_INSTANCES(X)                                                            \
  X(reprise_page_walk, kPageWalk, Block, PageWalkBody, PageWalkArgs, Threads(256), 4, None, None, \
    None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kPageWalk = {"page_walk", "page_walk"};

inline constexpr KernelInstance kPageWalkInstances[] = {
    REPRISE_PAGE_WALK_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PAGE_WALK_INSTANCES_H_
