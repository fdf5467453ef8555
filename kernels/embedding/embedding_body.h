// SPDX-License-Identifier: Apache-2.0
// Body of embedding, block style: one block per token.
#ifndef REPRISE_KERNELS_EMBEDDING_EMBEDDING_BODY_H_
#define REPRISE_KERNELS_EMBEDDING_EMBEDDING_BODY_H_

#include "kernels/device/block.h"
#include "kernels/embedding/embedding_args.h"
#include "kernels/packed_layout.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T, int kWidth>
REPRISE_FN void EmbedRow(Block& b, const EmbeddingArgs& a, uint32_t t) {
  const T* table = static_cast<const T*>(a.table);
  const int64_t id = a.token_id[t];
  const PackedLayout packed{0, a.hidden};
  T* out = static_cast<T*>(a.out) + static_cast<int64_t>(t) * a.hidden;
  b.For(a.hidden / kWidth, [&](int i) {
    const int64_t at = a.packed != 0 ? packed.Offset(id, i * kWidth) : id * a.hidden + i * kWidth;
    Vec<T, kWidth> x = LoadVec<kWidth>(table + at);
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) x.v[j] = FromFloat<T>(ToFloat(x.v[j]) * a.multiplier);
    StoreVec(out + i * kWidth, x);
  });
}

template <typename T>
REPRISE_FN void EmbeddingBody(Block& b, const EmbeddingArgs& a) {
  const uint32_t t = static_cast<uint32_t>(b.x());
  if (t >= *a.num_tokens) return;
  if (a.hidden % 8 == 0) {
    EmbedRow<T, 8>(b, a, t);
  } else {
    EmbedRow<T, 1>(b, a, t);
  }
  const float position = static_cast<float>(a.token_position[t]);
  float* rope = a.rope + static_cast<int64_t>(t) * a.half_dim * 2;
  b.For(a.half_dim, [&](int i) {
    float sine, cosine;
    const float frequency = a.inverse_frequency[i];
    SinCos(position * frequency, &sine, &cosine);
    const float multiplier = frequency == 0.0f ? 1.0f : a.rope_multiplier;
    rope[2 * i] = cosine * multiplier;
    rope[2 * i + 1] = sine * multiplier;
  });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_EMBEDDING_EMBEDDING_BODY_H_
