// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of embedding. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_EMBEDDING_INSTANCES_H_
#define REPRISE_KERNELS_EMBEDDING_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_EMBEDDING_INSTANCES(X)                                                            \
  X(reprise_embedding_f32, kEmbedding, Block, EmbeddingBody<float>, EmbeddingArgs, Threads(256),  \
    0, F32, F32, None, 0, OnEveryDevice)                                                          \
  X(reprise_embedding_bf16, kEmbedding, Block, EmbeddingBody<Bf16>, EmbeddingArgs, Threads(256),  \
    0, Bf16, Bf16, None, 0, OnEveryDevice)                                                        \
  X(reprise_embedding_f16, kEmbedding, Block, EmbeddingBody<F16>, EmbeddingArgs, Threads(256), 0, \
    F16, F16, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kEmbedding = {"embedding", "embedding"};

inline constexpr KernelInstance kEmbeddingInstances[] = {
    REPRISE_EMBEDDING_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EMBEDDING_INSTANCES_H_
