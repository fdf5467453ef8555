// SPDX-License-Identifier: Apache-2.0
// The catalogue: the lists of kernel_list.h with the host's functions and this build's device code.
// A kernel without a host function runs on GPUs alone.
#include "kernels/catalog.h"

#include "kernels/block_kernels.h"
#include "kernels/device_code.h"
#include "kernels/kernel_list.h"
#include "kernels/linear/host_native.h"

namespace reprise::kernels {
namespace {

using runtime::KernelDef;

#define REPRISE_ON_HOST(name) KernelDef{#name, &on_host::name},
#define REPRISE_ON_GPUS(name) KernelDef{#name, nullptr},

constexpr KernelDef kKernels[] = {
    REPRISE_FOR_EACH_BLOCK_KERNEL(REPRISE_ON_HOST)            //
    REPRISE_FOR_EACH_HOST_KERNEL(REPRISE_ON_HOST)             //
    REPRISE_FOR_EACH_MATRIX_LINEAR(REPRISE_ON_GPUS)           //
    REPRISE_FOR_EACH_MATRIX_ATTENTION(REPRISE_ON_GPUS)        //
    REPRISE_FOR_EACH_LARGE_MATRIX_LINEAR(REPRISE_ON_GPUS)     //
    REPRISE_FOR_EACH_LARGE_MATRIX_ATTENTION(REPRISE_ON_GPUS)  //
};

}  // namespace

const runtime::KernelImage& Catalog() {
  static const runtime::KernelImage image{kKernels, CudaFatbins(), HipCodeObjects()};
  return image;
}

}  // namespace reprise::kernels
