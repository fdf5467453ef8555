// SPDX-License-Identifier: Apache-2.0
// The block kernels under emulation; compiled once per kind of matrix unit, see emulated_kernels.h.
#include "kernels/block_kernels.h"

#include "kernels/kernel_list.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

std::span<const runtime::KernelDef> BlockKernels() {
#define REPRISE_EMULATED_KERNEL(name) runtime::KernelDef{#name, &name},
  static constexpr runtime::KernelDef kKernels[] = {
      REPRISE_FOR_EACH_BLOCK_KERNEL(REPRISE_EMULATED_KERNEL)  //
  };
  return kKernels;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
