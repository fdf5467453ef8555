// SPDX-License-Identifier: Apache-2.0
// The visible list of kernels. A kernel that is missing here does not exist; a kernel without a
// host function is vendor-only.
#include "kernels/catalog.h"

#include "kernels/block_kernels.h"
#include "kernels/cuda_fatbins.h"
#include "kernels/linear/host_native.h"

namespace reprise::kernels {
namespace {

using runtime::KernelDef;

#define REPRISE_HOST(name) \
  KernelDef { #name, &on_host::name }
#define REPRISE_HOST_OF_DTYPES(name) \
  REPRISE_HOST(name##_f32), REPRISE_HOST(name##_bf16), REPRISE_HOST(name##_f16)
#define REPRISE_VENDOR_ONLY(name) \
  KernelDef { #name, nullptr }

constexpr KernelDef kKernels[] = {
    REPRISE_HOST(reprise_fetch),
    REPRISE_HOST(reprise_plan),
    REPRISE_HOST(reprise_publish),
    REPRISE_HOST(reprise_sample_partial),
    REPRISE_HOST(reprise_sample_final),
    REPRISE_HOST_OF_DTYPES(reprise_embedding),
    REPRISE_HOST_OF_DTYPES(reprise_rms_norm),
    REPRISE_HOST_OF_DTYPES(reprise_rope_append),
    REPRISE_HOST_OF_DTYPES(reprise_silu_mul),
    REPRISE_HOST_OF_DTYPES(reprise_random_fill),
    REPRISE_HOST_OF_DTYPES(reprise_nan_fill),
    REPRISE_HOST_OF_DTYPES(reprise_linear_portable),
    REPRISE_HOST_OF_DTYPES(reprise_attention_portable),
    // Native to the host: streams weights with the CPU's vector units.
    REPRISE_HOST_OF_DTYPES(reprise_linear_native),
    // Tensor cores (mma.sync): CUDA only until the matrix fragments have an emulation for the host.
    REPRISE_VENDOR_ONLY(reprise_linear_mma_bf16_8),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_bf16_16),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_bf16_32),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_bf16_64),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_bf16_128),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_bf16_whole),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_f16_8),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_f16_16),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_f16_32),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_f16_64),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_f16_128),
    REPRISE_VENDOR_ONLY(reprise_linear_mma_f16_whole),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_bf16_32),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_bf16_64),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_bf16_128),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_bf16_256),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_f16_32),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_f16_64),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_f16_128),
    REPRISE_VENDOR_ONLY(reprise_attention_decode_mma_f16_256),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_bf16_32),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_bf16_64),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_bf16_128),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_bf16_256),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_f16_32),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_f16_64),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_f16_128),
    REPRISE_VENDOR_ONLY(reprise_attention_prefill_mma_f16_256),
};

}  // namespace

const runtime::KernelImage& Catalog() {
  static const runtime::KernelImage image{kKernels, CudaFatbins()};
  return image;
}

}  // namespace reprise::kernels
