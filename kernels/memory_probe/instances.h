// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of the memory probes. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_MEMORY_PROBE_INSTANCES_H_
#define REPRISE_KERNELS_MEMORY_PROBE_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_MEMORY_PROBE_INSTANCES(X)                                                        \
  X(reprise_memory_read, kMemoryRead, Block, MemoryReadBody, MemoryReadArgs, Threads(256), 0,    \
    None, None, None, 0, OnEveryDevice)                                                          \
  X(reprise_memory_copy, kMemoryCopy, Block, MemoryCopyBody, MemoryCopyArgs, Threads(256), 0,    \
    None, None, None, 0, OnEveryDevice)                                                          \
  X(reprise_memory_read_native, kMemoryReadNative, Host, -, MemoryReadArgs, Threads(1), 0, None, \
    None, None, 0, OnHost)                                                                       \
  X(reprise_memory_copy_native, kMemoryCopyNative, Host, -, MemoryCopyArgs, Threads(1), 0, None, \
    None, None, 0, OnHost)

namespace reprise::kernels {

inline constexpr KernelFamily kMemoryRead = {"memory_probe", "memory_read"};
inline constexpr KernelFamily kMemoryCopy = {"memory_probe", "memory_copy"};
inline constexpr KernelFamily kMemoryReadNative = {"memory_probe", "memory_read_native"};
inline constexpr KernelFamily kMemoryCopyNative = {"memory_probe", "memory_copy_native"};

inline constexpr KernelInstance kMemoryProbeInstances[] = {
    REPRISE_MEMORY_PROBE_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MEMORY_PROBE_INSTANCES_H_
