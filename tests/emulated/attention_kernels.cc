// SPDX-License-Identifier: Apache-2.0
// The attention kernels under emulation; compiled once per kind of matrix unit, see
// emulated_kernels.h.
#include "kernels/attention/matrix_kernels.h"
#include "kernels/kernel_list.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

std::span<const runtime::KernelDef> AttentionKernels() {
#define REPRISE_EMULATED_KERNEL(name) runtime::KernelDef{#name, &name},
  static constexpr runtime::KernelDef kKernels[] = {
    REPRISE_FOR_EACH_MATRIX_ATTENTION(REPRISE_EMULATED_KERNEL)  //
#if defined(REPRISE_EMULATE_MMA)
    REPRISE_FOR_EACH_LARGE_MATRIX_ATTENTION(REPRISE_EMULATED_KERNEL)  //
#endif
  };
  return kKernels;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
