// SPDX-License-Identifier: Apache-2.0
// Body of rope + KV append, block style: one block per token. T: of qkv and q; K: of the cache.
#ifndef REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_BODY_H_
#define REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_BODY_H_

#include <type_traits>

#include "kernels/device/block.h"
#include "kernels/device/fp8.h"
#include "kernels/rope_append/rope_append_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The sums of squares of every head of q and k, in kHeadNormLanes parts each. What is added in
// which order follows from head_dim alone.
template <typename T, int kWidth, typename AnyBlock>
REPRISE_FN void HeadSquares(AnyBlock& b, const RopeAppendArgs& a, const T* in, float* parts) {
  const int packs = a.kv.head_dim / kWidth;
  b.For((a.num_heads + a.kv.num_kv_heads) * kHeadNormLanes, [&](int i) {
    const int head = i / kHeadNormLanes, lane = i - head * kHeadNormLanes;
    const T* x = in + static_cast<int64_t>(head) * a.kv.head_dim;
    float squares = 0.0f;
    for (int pack = lane; pack < packs; pack += kHeadNormLanes) {
      const Vec<T, kWidth> v = LoadVec<kWidth>(x + pack * kWidth);
      REPRISE_UNROLL
      for (int j = 0; j < kWidth; ++j) squares += ToFloat(v.v[j]) * ToFloat(v.v[j]);
    }
    parts[i] = squares;
  });
  b.Sync();
}

// Behind the parts of heads those of q and of k, added head by head.
template <typename AnyBlock>
REPRISE_FN void WholeSquares(AnyBlock& b, const RopeAppendArgs& a, float* parts) {
  const int rotated = a.num_heads + a.kv.num_kv_heads;
  b.For(2 * kHeadNormLanes, [&](int i) {
    const int lane = i % kHeadNormLanes;
    const int first = i < kHeadNormLanes ? 0 : a.num_heads;
    const int last = i < kHeadNormLanes ? a.num_heads : rotated;
    float squares = 0.0f;
    for (int head = first; head < last; ++head) squares += parts[head * kHeadNormLanes + lane];
    parts[rotated * kHeadNormLanes + i] = squares;
  });
  b.Sync();
}

// 1 / sqrt(mean(x^2) + eps) of a head, or of all of its kind.
REPRISE_FN float HeadScale(const RopeAppendArgs& a, const float* parts, int head) {
  int index = head, width = a.kv.head_dim;
  if (a.whole_norm != 0) {
    const bool of_q = head < a.num_heads;
    index = a.num_heads + a.kv.num_kv_heads + (of_q ? 0 : 1);
    width *= of_q ? a.num_heads : a.kv.num_kv_heads;
  }
  const auto part = LoadVec<kHeadNormLanes>(parts + index * kHeadNormLanes);
  float squares = 0.0f;
  REPRISE_UNROLL
  for (int lane = 0; lane < kHeadNormLanes; ++lane) squares += part.v[lane];
  return Rsqrt(squares / static_cast<float>(width) + a.norm_eps);
}

// The norm's weights for a head.
template <typename T>
REPRISE_FN const T* HeadWeight(const RopeAppendArgs& a, int head) {
  const bool of_q = head < a.num_heads;
  const T* const w = static_cast<const T*>(of_q ? a.q_norm : a.k_norm);
  return a.whole_norm != 0 ? w + (of_q ? head : head - a.num_heads) * a.kv.head_dim : w;
}

template <typename T, int kWidth>
REPRISE_FN void ScaleBy(float (&x)[kWidth], float scale, float offset,
                        const Vec<T, kWidth>& weight) {
  REPRISE_UNROLL
  for (int j = 0; j < kWidth; ++j) x[j] *= scale * (offset + ToFloat(weight.v[j]));
}

// A pack of K or V as 8-bit elements: x / scale, rounded once.
template <typename K, int kWidth>
REPRISE_FN void StoreStored(K* to, const float (&x)[kWidth], float scale) {
  if constexpr (kWidth == 1) {
    *to = FromFloat<K>(x[0] / scale);
  } else {
    Vec<float, kWidth> y;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) y.v[j] = x[j] / scale;
    StoreVec(to, FromFloats<K>(y));
  }
}

// AnyBlock: Block, or what has its For, Shared and Sync.
template <typename T, typename K, int kWidth, bool kNorm, typename AnyBlock>
REPRISE_FN void RopeAppendToken(AnyBlock& b, const RopeAppendArgs& a, int64_t t) {
  const int half = a.kv.head_dim / 2;
  const int packs = half / kWidth;  // of half a head
  const int64_t qkv_size =
      static_cast<int64_t>(a.num_heads + 2 * a.kv.num_kv_heads) * a.kv.head_dim;
  const T* in = static_cast<const T*>(a.qkv) + t * qkv_size;
  T* q_out = static_cast<T*>(a.q_out) + t * a.num_heads * a.kv.head_dim;
  K* cache = static_cast<K*>(a.kv_cache);
  const float* rope = a.rope + t * a.rope_tables * half * 2;
  const int64_t block = a.token_block[t], offset = a.token_offset[t];
  float* parts = b.template Shared<float>();
  if constexpr (kNorm) {
    HeadSquares<T, kWidth>(b, a, in, parts);
    if (a.whole_norm != 0) WholeSquares(b, a, parts);
  }

  // Two packs of one head per turn, half a head apart: what rope mixes.
  const int rotated = a.num_heads + a.kv.num_kv_heads;
  b.For((rotated + a.kv.num_kv_heads) * packs, [&](int i) {
    const int head = i / packs, d = (i - head * packs) * kWidth;
    const T* x = in + static_cast<int64_t>(head) * a.kv.head_dim + d;
    Vec<T, kWidth> x0 = LoadVec<kWidth>(x), x1 = LoadVec<kWidth>(x + half);
    float f0[kWidth], f1[kWidth];
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      f0[j] = ToFloat(x0.v[j]);
      f1[j] = ToFloat(x1.v[j]);
    }
    if (head < rotated) {
      if constexpr (kNorm) {
        const T* w = HeadWeight<T>(a, head) + d;
        const float scale = HeadScale(a, parts, head);
        ScaleBy(f0, scale, a.norm_offset, LoadVec<kWidth>(w));
        ScaleBy(f1, scale, a.norm_offset, LoadVec<kWidth>(w + half));
      }
      const Vec<float, 2 * kWidth> cs = LoadVec<2 * kWidth>(rope + 2 * d);
      REPRISE_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const float c = cs.v[2 * j], s = cs.v[2 * j + 1];
        const float y0 = f0[j] * c - f1[j] * s, y1 = f1[j] * c + f0[j] * s;
        x0.v[j] = FromFloat<T>(f0[j] = y0);
        x1.v[j] = FromFloat<T>(f1[j] = y1);
      }
    }
    if (head < a.num_heads) {
      T* y = q_out + static_cast<int64_t>(head) * a.kv.head_dim + d;
      StoreVec(y, x0);
      StoreVec(y + half, x1);
    } else {
      const int part = head < rotated ? kKeys : kValues;
      const int kv_head = head - a.num_heads - part * a.kv.num_kv_heads;
      K* y = cache + a.kv.HeadOffset(block, part, kv_head) + a.kv.RowOffset(offset, sizeof(K));
      if constexpr (kIsFp8<K>) {
        const float scale = a.scales.Of(part, kv_head);
        StoreStored(y + a.kv.DimOffset(offset, d, sizeof(K)), f0, scale);
        StoreStored(y + a.kv.DimOffset(offset, d + half, sizeof(K)), f1, scale);
      } else {
        static_assert(std::is_same_v<K, T>);
        StoreVec(y + a.kv.DimOffset(offset, d, sizeof(K)), x0);
        StoreVec(y + a.kv.DimOffset(offset, d + half, sizeof(K)), x1);
      }
    }
  });
}

template <typename T, typename K, bool kNorm>
REPRISE_FN void RopeAppendBody(Block& b, const RopeAppendArgs& a) {
  constexpr int kPack = 16 / sizeof(T);
  const uint32_t t = static_cast<uint32_t>(b.x());
  if (t >= *a.num_tokens) return;
  if (a.kv.head_dim % (2 * kPack) == 0) {
    RopeAppendToken<T, K, kPack, kNorm>(b, a, t);
  } else {
    RopeAppendToken<T, K, 1, kNorm>(b, a, t);
  }
}

template <typename T>
REPRISE_FN void RopeAppendPlainBody(Block& b, const RopeAppendArgs& a) {
  RopeAppendBody<T, T, false>(b, a);
}
template <typename T>
REPRISE_FN void RopeAppendNormedBody(Block& b, const RopeAppendArgs& a) {
  RopeAppendBody<T, T, true>(b, a);
}
template <typename T, bool kNorm>
REPRISE_FN void RopeAppendFp8Body(Block& b, const RopeAppendArgs& a) {
  if (a.kv.dtype == runtime::DType::kE4m3) {
    RopeAppendBody<T, E4m3, kNorm>(b, a);
  } else {
    RopeAppendBody<T, E5m2, kNorm>(b, a);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_BODY_H_
