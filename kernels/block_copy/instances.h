// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of the block copies. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_BLOCK_COPY_INSTANCES_H_
#define REPRISE_KERNELS_BLOCK_COPY_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_BLOCK_COPY_INSTANCES(X)                                                            \
  X(reprise_block_copy, kBlockCopy, Block, BlockCopyBody, BlockCopyArgs, Threads(256), 0, None,    \
    None, None, 0, OnEveryDevice)                                                                  \
  X(reprise_notify_host, kNotifyHost, Block, NotifyHostBody, NotifyHostArgs, Threads(64), 0, None, \
    None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kBlockCopy = {"block_copy", "block_copy"};
inline constexpr KernelFamily kNotifyHost = {"block_copy", "notify_host"};

inline constexpr KernelInstance kBlockCopyInstances[] = {
    REPRISE_BLOCK_COPY_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_BLOCK_COPY_INSTANCES_H_
