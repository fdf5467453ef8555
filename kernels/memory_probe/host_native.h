// SPDX-License-Identifier: Apache-2.0
// The memory probes, native candidates of the host device: the entry points of the instances in
// style Host. See memory_probe.h for the contract and host_native.cc for how.
#ifndef REPRISE_KERNELS_MEMORY_PROBE_HOST_NATIVE_H_
#define REPRISE_KERNELS_MEMORY_PROBE_HOST_NATIVE_H_

#include "runtime/device.h"

namespace reprise::kernels::on_host {

// `args`: MemoryReadArgs and MemoryCopyArgs. Grid x: pieces of kMemoryProbePiece bytes.
void reprise_memory_read_native(const runtime::HostBlockContext& context, const void* args);
void reprise_memory_copy_native(const runtime::HostBlockContext& context, const void* args);

}  // namespace reprise::kernels::on_host

#endif  // REPRISE_KERNELS_MEMORY_PROBE_HOST_NATIVE_H_
