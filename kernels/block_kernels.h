// SPDX-License-Identifier: Apache-2.0
// Every block-style kernel by name. Included once per device: by block_kernels.cu for CUDA, by
// catalog.cc for the host.
#ifndef REPRISE_KERNELS_BLOCK_KERNELS_H_
#define REPRISE_KERNELS_BLOCK_KERNELS_H_

#include "kernels/attention/attention_portable_body.h"
#include "kernels/embedding/embedding_body.h"
#include "kernels/fill/fill_body.h"
#include "kernels/linear/linear_portable_body.h"
#include "kernels/memory_probe/memory_probe_body.h"
#include "kernels/rms_norm/rms_norm_body.h"
#include "kernels/rope_append/rope_append_body.h"
#include "kernels/sample/sample_body.h"
#include "kernels/silu_mul/silu_mul_body.h"
#include "kernels/stamp/stamp_body.h"
#include "kernels/step/body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_BLOCK_KERNEL(reprise_fetch, 256, FetchBody, FetchArgs)
REPRISE_BLOCK_KERNEL(reprise_plan, 512, PlanBody, PlanArgs)
REPRISE_BLOCK_KERNEL(reprise_publish, 256, PublishBody, PublishArgs)
REPRISE_BLOCK_KERNEL(reprise_sample_partial, 256, SamplePartialBody, SampleArgs)
REPRISE_BLOCK_KERNEL(reprise_sample_final, 1024, SampleFinalBody, SampleArgs)
REPRISE_BLOCK_KERNEL(reprise_stamp, 64, StampBody, StampArgs)
REPRISE_BLOCK_KERNEL(reprise_memory_read, 256, MemoryReadBody, MemoryReadArgs)
REPRISE_BLOCK_KERNEL(reprise_memory_copy, 256, MemoryCopyBody, MemoryCopyArgs)

#define REPRISE_BLOCK_KERNELS_OF_DTYPE(suffix, T)                                                  \
  REPRISE_BLOCK_KERNEL(reprise_embedding_##suffix, 256, EmbeddingBody<T>, EmbeddingArgs)           \
  REPRISE_BLOCK_KERNEL_UP_TO(reprise_rms_norm_##suffix, 512, 3, RmsNormBody<T>, RmsNormArgs)       \
  REPRISE_BLOCK_KERNEL_UP_TO(reprise_rope_append_##suffix, 512, 3, RopeAppendPlainBody<T>,         \
                             RopeAppendArgs)                                                       \
  REPRISE_BLOCK_KERNEL_UP_TO(reprise_rope_append_normed_##suffix, 512, 2, RopeAppendNormedBody<T>, \
                             RopeAppendArgs)                                                       \
  REPRISE_BLOCK_KERNEL(reprise_silu_mul_##suffix, 256, SiluMulBody<T>, SiluMulArgs)                \
  REPRISE_BLOCK_KERNEL(reprise_random_fill_##suffix, 256, RandomFillBody<T>, RandomFillArgs)       \
  REPRISE_BLOCK_KERNEL(reprise_nan_fill_##suffix, 256, NanFillBody<T>, NanFillArgs)                \
  REPRISE_BLOCK_KERNEL(reprise_linear_portable_##suffix, 256, LinearPortableBody<T>, LinearArgs)   \
  REPRISE_BLOCK_KERNEL(reprise_attention_portable_##suffix, 256, AttentionPortableBody<T>,         \
                       AttentionArgs)

REPRISE_BLOCK_KERNELS_OF_DTYPE(f32, float)
REPRISE_BLOCK_KERNELS_OF_DTYPE(bf16, Bf16)
REPRISE_BLOCK_KERNELS_OF_DTYPE(f16, F16)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_BLOCK_KERNELS_H_
