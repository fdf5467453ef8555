// SPDX-License-Identifier: Apache-2.0
// The tensor-core attention kernels, one per phase, dtype and padded head size.
#include "kernels/attention/mma_body.cuh"

namespace reprise::kernels::on_cuda {

// min_blocks: of a multiprocessor; caps the registers.
#define REPRISE_MMA_ATTENTION_KERNEL(name, body, T, head_size, min_blocks) \
  extern "C" __global__ void __launch_bounds__(kMmaThreads, min_blocks)    \
      name##_##head_size(const __grid_constant__ AttentionArgs a) {        \
    extern __shared__ __align__(512) unsigned char reprise_shared[];       \
    body<T, head_size>(a, reprise_shared);                                 \
  }

#define REPRISE_MMA_ATTENTION_KERNELS(decode, prefill, T)                   \
  REPRISE_MMA_ATTENTION_KERNEL(decode, AttentionDecodeMmaBody, T, 32, 2)    \
  REPRISE_MMA_ATTENTION_KERNEL(decode, AttentionDecodeMmaBody, T, 64, 2)    \
  REPRISE_MMA_ATTENTION_KERNEL(decode, AttentionDecodeMmaBody, T, 128, 2)   \
  REPRISE_MMA_ATTENTION_KERNEL(decode, AttentionDecodeMmaBody, T, 256, 2)   \
  REPRISE_MMA_ATTENTION_KERNEL(prefill, AttentionPrefillMmaBody, T, 32, 2)  \
  REPRISE_MMA_ATTENTION_KERNEL(prefill, AttentionPrefillMmaBody, T, 64, 2)  \
  REPRISE_MMA_ATTENTION_KERNEL(prefill, AttentionPrefillMmaBody, T, 128, 2) \
  REPRISE_MMA_ATTENTION_KERNEL(prefill, AttentionPrefillMmaBody, T, 256, 1)

REPRISE_MMA_ATTENTION_KERNELS(reprise_attention_decode_mma_bf16, reprise_attention_prefill_mma_bf16,
                              Bf16)
REPRISE_MMA_ATTENTION_KERNELS(reprise_attention_decode_mma_f16, reprise_attention_prefill_mma_f16,
                              F16)

}  // namespace reprise::kernels::on_cuda
