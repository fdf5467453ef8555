// SPDX-License-Identifier: Apache-2.0
// Paged attention, naive candidate, block style: one query token and one query head at a time, over
// all KV tokens that it sees, in tiles with a running softmax. Heads of a group read the same K and
// V each for themselves, and no row is split. No engine runs it: it is what benchmarks measure the
// others against. Source: the baseline kernel of "The Anatomy of a Triton Attention Kernel",
// section 4.3, after Kwon et al. 2023.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_NAIVE_BODY_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_NAIVE_BODY_H_

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/attention_portable_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Shared memory of one block, NaiveAttentionBytes. A pack is kPortableLanes dimensions.
struct NaiveShared {
  int packs;
  float* q;         // [packs, kPortableLanes], zeros beyond head_dim
  float* products;  // [kNaiveKvTile, packs + 1]: one more, so that tokens differ in banks
  float* scores;    // [kNaiveKvTile]
  float* acc;       // [kPortableLanes, kNaiveSlices * packs]

  REPRISE_FN static NaiveShared At(float* base, int head_dim) {
    NaiveShared s;
    s.packs = (head_dim + kPortableLanes - 1) / kPortableLanes;
    s.q = base;
    s.products = s.q + s.packs * kPortableLanes;
    s.scores = s.products + kNaiveKvTile * (s.packs + 1);
    s.acc = s.scores + kNaiveKvTile;
    return s;
  }
  REPRISE_FN int units() const { return kNaiveSlices * packs; }
};

// A pack of a row of K or V as floats, zeros beyond head_dim. Rows of whole packs are 16-byte
// aligned, as the caches' allocations are.
struct NaivePack {
  float v[kPortableLanes];
};
template <typename T>
REPRISE_FN NaivePack LoadPack(const KvRow<T>& row, int pack, int head_dim) {
  const int first = pack * kPortableLanes;
  const T* const from = row.At(first);
  NaivePack x;
  if (head_dim % kPortableLanes == 0) {
    const auto raw = LoadVec<kPortableLanes>(from);
    for (int l = 0; l < kPortableLanes; ++l) x.v[l] = ToFloat(raw.v[l]);
  } else {
    for (int l = 0; l < kPortableLanes; ++l)
      x.v[l] = first + l < head_dim ? ToFloat(from[l]) : 0.0f;
  }
  return x;
}

// The running softmax of the one row.
struct NaiveSoftmax {
  float max, sum;
};

// One tile of n tokens from kv0 on, all of which the row sees.
template <typename T>
REPRISE_FN void TakeNaiveTile(Block& b, const AttentionArgs& a, const AttentionWork& w,
                              const NaiveShared& s, uint32_t kv0, int n, uint32_t query,
                              NaiveSoftmax& softmax) {
  const int packs = s.packs;
  b.For(n * packs, [&](int i) {
    const int j = i / packs, c = i - j * packs;
    const KvRow<T> row(a, w, kv0 + static_cast<uint32_t>(j), kKeys);
    const NaivePack k = LoadPack<T>(row, c, a.kv.head_dim);
    float sum = 0.0f;
    for (int l = 0; l < kPortableLanes; ++l) sum += s.q[c * kPortableLanes + l] * k.v[l];
    s.products[j * (packs + 1) + c] = sum;
  });
  b.Sync();
  const float tile_max = b.Max(n, [&](int j) {
    float product = 0.0f;
    for (int c = 0; c < packs; ++c) product += s.products[j * (packs + 1) + c];
    return s.scores[j] = ScoreOf(a, w, 0, kv0 + static_cast<uint32_t>(j), query, product);
  });
  const float top = tile_max > softmax.max ? tile_max : softmax.max;
  const float rescale = Exp(softmax.max - top);
  softmax.max = top;
  softmax.sum =
      softmax.sum * rescale + b.Sum(n, [&](int j) { return s.scores[j] = Exp(s.scores[j] - top); });
  b.Sync();
  b.For(s.units(), [&](int i) {
    const int slice = i / packs, c = i - slice * packs;
    float sum[kPortableLanes];
    for (int l = 0; l < kPortableLanes; ++l) sum[l] = s.acc[l * s.units() + i] * rescale;
    for (int j = slice; j < n; j += kNaiveSlices) {
      const KvRow<T> row(a, w, kv0 + static_cast<uint32_t>(j), kValues);
      const NaivePack v = LoadPack<T>(row, c, a.kv.head_dim);
      for (int l = 0; l < kPortableLanes; ++l) sum[l] += s.scores[j] * v.v[l];
    }
    for (int l = 0; l < kPortableLanes; ++l) s.acc[l * s.units() + i] = sum[l];
  });
  b.Sync();
}

// One row, that is one query token of one query head.
template <typename T>
REPRISE_FN void AttendNaively(Block& b, const AttentionArgs& a, const AttentionWork& w,
                              const NaiveShared& s) {
  const int head_dim = a.kv.head_dim;
  b.For(s.packs * kPortableLanes, [&](int d) {
    s.q[d] =
        d < head_dim ? a.scale * ToFloat(static_cast<const T*>(a.q)[RowElement(a, w, 0, d)]) : 0.0f;
  });
  b.For(s.units() * kPortableLanes, [&](int i) { s.acc[i] = 0.0f; });
  b.Sync();
  const SeenRange seen = SeenFrom(a, w.position + static_cast<uint32_t>(TokenOfRow(w, 0)));
  NaiveSoftmax softmax{-Infinity(), 0.0f};
  for (uint32_t kv0 = seen.first; kv0 <= seen.last; kv0 += kNaiveKvTile) {
    const uint32_t left = seen.last - kv0 + 1;
    TakeNaiveTile<T>(b, a, w, s, kv0, left < kNaiveKvTile ? static_cast<int>(left) : kNaiveKvTile,
                     seen.last, softmax);
  }
  const Normalization of = NormalizationOf<T>(a, HeadOfRow(w, 0), softmax.max, softmax.sum);
  b.For(head_dim, [&](int d) {
    const int c = d / kPortableLanes, l = d - c * kPortableLanes;
    float sum = 0.0f;
    for (int slice = 0; slice < kNaiveSlices; ++slice)
      sum += s.acc[l * s.units() + slice * s.packs + c];
    static_cast<T*>(a.out)[RowElement(a, w, 0, d)] = FromFloat<T>(sum * of.factor / of.sum);
  });
  b.Sync();
}

// A pass is one row (AttentionArgs.pass_rows is 1). Of a row that the plan has cut, the item of the
// first split does all.
template <typename T>
REPRISE_FN void AttentionNaiveBody(Block& b, const AttentionArgs& a) {
  const NaiveShared s = NaiveShared::At(b.Shared<float>(), a.kv.head_dim);
  const uint32_t total = *a.num_items * static_cast<uint32_t>(a.kv.num_kv_heads * a.num_passes);
  for (uint32_t index = static_cast<uint32_t>(b.x()); index < total;
       index += static_cast<uint32_t>(b.grid_x())) {
    const AttentionWork w = WorkOf(a, index);
    if (w.rows <= 0 || w.item.split != 0) continue;
    AttendNaively<T>(b, a, w, s);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_NAIVE_BODY_H_
