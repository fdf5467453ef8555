// SPDX-License-Identifier: Apache-2.0
// The matrix-unit attention kernels, one per phase, dtype and padded head size. Included once per
// target.
#ifndef REPRISE_KERNELS_ATTENTION_MATRIX_KERNELS_H_
#define REPRISE_KERNELS_ATTENTION_MATRIX_KERNELS_H_

#include "kernels/attention/attention_matrix_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

#define REPRISE_MATRIX_ATTENTION(name, body, T, head_size, min_blocks)                   \
  static_assert(HasMatrixHeadSize(kTraits, head_size));                                  \
  REPRISE_THREAD_KERNEL(name##_##head_size, MatrixAttentionThreads(kTraits), min_blocks, \
                        (body<T, head_size>), AttentionArgs)

// Preprocessor, because extern "C" kernels cannot be discarded by `if constexpr`.
#if defined(__CUDACC__) || defined(REPRISE_EMULATE_MMA)
#define REPRISE_MATRIX_ATTENTION_256(suffix, T)                                                    \
  REPRISE_MATRIX_ATTENTION(reprise_attention_decode_matrix_##suffix, AttentionDecodeMatrixBody, T, \
                           256, 2)                                                                 \
  REPRISE_MATRIX_ATTENTION(reprise_attention_prefill_matrix_##suffix, AttentionPrefillMatrixBody,  \
                           T, 256, 1)
#else
static_assert(!HasMatrixHeadSize(kTraits, 256));
#define REPRISE_MATRIX_ATTENTION_256(suffix, T)
#endif

#define REPRISE_MATRIX_ATTENTION_OF_SIZE(suffix, T, head_size)                                     \
  REPRISE_MATRIX_ATTENTION(reprise_attention_decode_matrix_##suffix, AttentionDecodeMatrixBody, T, \
                           head_size, 2)                                                           \
  REPRISE_MATRIX_ATTENTION(reprise_attention_prefill_matrix_##suffix, AttentionPrefillMatrixBody,  \
                           T, head_size, 2)
#define REPRISE_MATRIX_ATTENTION_OF_DTYPE(suffix, T) \
  REPRISE_MATRIX_ATTENTION_OF_SIZE(suffix, T, 32)    \
  REPRISE_MATRIX_ATTENTION_OF_SIZE(suffix, T, 64)    \
  REPRISE_MATRIX_ATTENTION_OF_SIZE(suffix, T, 128)   \
  REPRISE_MATRIX_ATTENTION_256(suffix, T)

REPRISE_MATRIX_ATTENTION_OF_DTYPE(bf16, Bf16)
REPRISE_MATRIX_ATTENTION_OF_DTYPE(f16, F16)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_MATRIX_KERNELS_H_
