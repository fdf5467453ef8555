// SPDX-License-Identifier: Apache-2.0
// Body of rope + KV append, block style: one block per token.
#ifndef REPRISE_KERNELS_ROPE_APPEND_BODY_H_
#define REPRISE_KERNELS_ROPE_APPEND_BODY_H_

#include "kernels/device/block.h"
#include "kernels/rope_append/rope_append_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Element offset of (block, K|V, head, place in block) in one layer's cache.
REPRISE_FN int64_t KvOffset(int64_t block, int kv, int head, int64_t offset, int num_kv_heads,
                            int block_size, int head_dim) {
  return (((block * 2 + kv) * num_kv_heads + head) * block_size + offset) * head_dim;
}

// scale[head] = 1 / sqrt(mean(x^2) + eps) for every head of q and k. The order of the sum follows
// from head_dim alone.
template <typename T, int kWidth>
REPRISE_FN void HeadScales(Block& b, const RopeAppendArgs& a, const T* in, float* scale) {
  const int heads = a.num_heads + a.num_kv_heads;
  const int packs = a.head_dim / kWidth;
  float* partial = scale + heads;
  b.For(heads * kHeadNormLanes, [&](int i) {
    const int head = i / kHeadNormLanes, lane = i - head * kHeadNormLanes;
    const T* x = in + static_cast<int64_t>(head) * a.head_dim;
    float squares = 0.0f;
    for (int pack = lane; pack < packs; pack += kHeadNormLanes) {
      const Vec<T, kWidth> v = LoadVec<kWidth>(x + pack * kWidth);
      REPRISE_UNROLL
      for (int j = 0; j < kWidth; ++j) squares += ToFloat(v.v[j]) * ToFloat(v.v[j]);
    }
    partial[i] = squares;
  });
  b.Sync();
  b.For(heads, [&](int head) {
    float squares = 0.0f;
    for (int lane = 0; lane < kHeadNormLanes; ++lane)
      squares += partial[head * kHeadNormLanes + lane];
    scale[head] = Rsqrt(squares / static_cast<float>(a.head_dim) + a.norm_eps);
  });
  b.Sync();
}

template <typename T, int kWidth, bool kNorm>
REPRISE_FN void RopeAppendToken(Block& b, const RopeAppendArgs& a, int64_t t) {
  const int half = a.head_dim / 2;
  const int packs = half / kWidth;  // of half a head
  const int64_t qkv_size = static_cast<int64_t>(a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
  const T* in = static_cast<const T*>(a.qkv) + t * qkv_size;
  T* q_out = static_cast<T*>(a.q_out) + t * a.num_heads * a.head_dim;
  T* cache = static_cast<T*>(a.kv_cache);
  const float* rope = a.rope + t * half * 2;
  const int64_t block = a.token_block[t], offset = a.token_offset[t];
  float* scale = b.Shared<float>();
  if constexpr (kNorm) HeadScales<T, kWidth>(b, a, in, scale);

  b.For((a.num_heads + a.num_kv_heads) * packs, [&](int i) {
    const int head = i / packs, d = (i - head * packs) * kWidth;
    const T* x = in + static_cast<int64_t>(head) * a.head_dim + d;
    T* y = head < a.num_heads ? q_out + static_cast<int64_t>(head) * a.head_dim + d
                              : cache + d +
                                    KvOffset(block, 0, head - a.num_heads, offset, a.num_kv_heads,
                                             a.block_size, a.head_dim);
    const Vec<T, kWidth> x0 = LoadVec<kWidth>(x), x1 = LoadVec<kWidth>(x + half);
    Vec<T, kWidth> y0, y1;
    [[maybe_unused]] Vec<T, kWidth> w0, w1;
    if constexpr (kNorm) {
      const T* w = static_cast<const T*>(head < a.num_heads ? a.q_norm : a.k_norm) + d;
      w0 = LoadVec<kWidth>(w);
      w1 = LoadVec<kWidth>(w + half);
    }
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const float c = rope[2 * (d + j)], s = rope[2 * (d + j) + 1];
      float f0 = ToFloat(x0.v[j]), f1 = ToFloat(x1.v[j]);
      if constexpr (kNorm) {
        f0 *= scale[head] * ToFloat(w0.v[j]);
        f1 *= scale[head] * ToFloat(w1.v[j]);
      }
      y0.v[j] = FromFloat<T>(f0 * c - f1 * s);
      y1.v[j] = FromFloat<T>(f1 * c + f0 * s);
    }
    StoreVec(y, y0);
    StoreVec(y + half, y1);
  });
  const T* v = in + static_cast<int64_t>(a.num_heads + a.num_kv_heads) * a.head_dim;
  const int v_packs = a.head_dim / kWidth;
  b.For(a.num_kv_heads * v_packs, [&](int i) {
    const int head = i / v_packs, d = (i - head * v_packs) * kWidth;
    StoreVec(cache + d + KvOffset(block, 1, head, offset, a.num_kv_heads, a.block_size, a.head_dim),
             LoadVec<kWidth>(v + static_cast<int64_t>(i) * kWidth));
  });
}

template <typename T, bool kNorm>
REPRISE_FN void RopeAppendRow(Block& b, const RopeAppendArgs& a, int64_t t) {
  if (a.head_dim % 16 == 0) {
    RopeAppendToken<T, 8, kNorm>(b, a, t);
  } else {
    RopeAppendToken<T, 1, kNorm>(b, a, t);
  }
}

template <typename T>
REPRISE_FN void RopeAppendBody(Block& b, const RopeAppendArgs& a) {
  const uint32_t t = static_cast<uint32_t>(b.x());
  if (t >= *a.num_tokens) return;
  if (a.q_norm != nullptr) {
    RopeAppendRow<T, true>(b, a, t);
  } else {
    RopeAppendRow<T, false>(b, a, t);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ROPE_APPEND_BODY_H_
