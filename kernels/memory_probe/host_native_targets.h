// SPDX-License-Identifier: Apache-2.0
// The instruction sets that the host's native memory probes are compiled for. The catalogue's entry
// points (host_native.h) take the best one that the CPU runs; tests walk them all.
#ifndef REPRISE_KERNELS_MEMORY_PROBE_HOST_NATIVE_TARGETS_H_
#define REPRISE_KERNELS_MEMORY_PROBE_HOST_NATIVE_TARGETS_H_

#include <span>

#include "runtime/device.h"

namespace reprise::kernels::on_host {

// One instruction set. Entry points as in host_native.h.
struct NativeMemoryProbeTarget {
  const char* name = nullptr;  // "avx512", "avx2", "sse4", "baseline"
  runtime::HostKernelFn read = nullptr;
  runtime::HostKernelFn copy = nullptr;
};

// Those that this CPU and its operating system run, best first; never empty. Static storage.
// Thread: any.
std::span<const NativeMemoryProbeTarget> NativeMemoryProbeTargets();

}  // namespace reprise::kernels::on_host

#endif  // REPRISE_KERNELS_MEMORY_PROBE_HOST_NATIVE_TARGETS_H_
