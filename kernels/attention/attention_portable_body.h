// SPDX-License-Identifier: Apache-2.0
// Paged attention, portable candidate, block style: one (item, KV head) at a time, tiled softmax
// over KV tiles in shared memory. An item whose query rows do not all fit there is done in passes,
// each by whichever block comes to it; no row looks at another, so passes change no bits. Simple on
// purpose: the reference on every device, f32 on GPUs, and shapes that other kernels do not take.
// T: of queries and output; K: of the cache. Scales of 8-bit elements are applied where they cost
// nothing: K's to the queries, V's to the sums.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_PORTABLE_BODY_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_PORTABLE_BODY_H_

#include "kernels/attention/attention_args.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/device/block.h"
#include "kernels/device/fp8.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

constexpr int kPortableLanes = 8;  // head dimensions that one thread accumulates

// Shared memory of one block, PortableAttentionRowBytes per row. rows: of one pass.
struct PortableAttentionShared {
  float* q;        // [rows, head_dim]
  float* acc;      // [rows, head_dim]
  float* scores;   // [rows, kPortableKvTile]
  float* max;      // [rows]
  float* sum;      // [rows]
  float* rescale;  // [rows]

  REPRISE_FN static PortableAttentionShared At(float* base, int rows, int head_dim) {
    PortableAttentionShared s;
    s.q = base;
    s.acc = s.q + rows * head_dim;
    s.scores = s.acc + rows * head_dim;
    s.max = s.scores + rows * kPortableKvTile;
    s.sum = s.max + rows;
    s.rescale = s.sum + rows;
    return s;
  }
};

// One pass over one item, seen from one KV head.
struct AttentionWork {
  AttentionWorkItem item;
  int kv_head;
  int group;      // query heads of the KV head
  int first_row;  // of the item's q_count * group: row r is query token r / group, head r % group
  int rows;       // of the pass; none where the item needs fewer passes
  uint32_t first_q;   // index of the item's first query token in the step
  uint32_t position;  // KV position of that token
  const uint32_t* table;
};

REPRISE_FN AttentionWork WorkOf(const AttentionArgs& a, uint32_t w) {
  AttentionWork work;
  const uint32_t passes = static_cast<uint32_t>(a.num_passes);
  const uint32_t heads = static_cast<uint32_t>(a.kv.num_kv_heads);
  work.first_row = static_cast<int>(w % passes) * a.pass_rows;
  w /= passes;
  work.item = a.items[w / heads];
  work.kv_head = static_cast<int>(w % heads);
  work.group = a.num_heads / a.kv.num_kv_heads;
  const int left = static_cast<int>(work.item.q_count) * work.group - work.first_row;
  work.rows = left < a.pass_rows ? left : a.pass_rows;
  work.first_q = a.query_start[work.item.entry] + work.item.q_begin;
  work.position = a.context_before[work.item.entry] + work.item.q_begin;
  work.table = a.block_table + static_cast<uint64_t>(work.item.row) * a.max_blocks_per_row;
  return work;
}

// Query token of row r of the pass, counted from the item's first.
REPRISE_FN int TokenOfRow(const AttentionWork& w, int r) { return (w.first_row + r) / w.group; }

// The row of a KV position, K or V, in the layer's cache.
template <typename K>
struct KvRow {
  REPRISE_FN KvRow(const AttentionArgs& a, const AttentionWork& w, uint32_t position, KvPart part)
      : layout(a.kv), in_block(position % static_cast<uint32_t>(a.kv.block_size)) {
    const int64_t block = w.table[position / static_cast<uint32_t>(a.kv.block_size)];
    first = static_cast<const K*>(a.kv_cache) + layout.HeadOffset(block, part, w.kv_head) +
            layout.RowOffset(in_block, sizeof(K));
  }
  // Dimension d, a multiple of kPortableLanes, and the kPortableLanes - 1 after it.
  REPRISE_FN const K* At(int d) const { return first + layout.DimOffset(in_block, d, sizeof(K)); }

  const KvLayout& layout;
  uint32_t in_block;
  const K* first;
};

// The KV positions [first, last] that a query token at `position` sees.
struct SeenRange {
  uint32_t first, last;
};
REPRISE_FN SeenRange SeenFrom(const AttentionArgs& a, uint32_t position) {
  return {FirstSeen(a.window, position), position};
}

template <typename K>
REPRISE_FN float ScaledDot(const float* q, const KvRow<K>& row, int head_dim) {
  float lanes[kPortableLanes] = {};
  for (int d = 0; d + kPortableLanes <= head_dim; d += kPortableLanes) {
    const K* k = row.At(d);
    for (int l = 0; l < kPortableLanes; ++l) lanes[l] += q[d + l] * ToFloat(k[l]);
  }
  float sum = 0.0f;
  for (int l = 0; l < kPortableLanes; ++l) sum += lanes[l];
  const int whole = head_dim - head_dim % kPortableLanes;
  for (int d = whole; d < head_dim; ++d) sum += q[d] * ToFloat(row.At(whole)[d - whole]);
  return sum;
}

// The query head of row r of the pass.
REPRISE_FN int HeadOfRow(const AttentionWork& w, int r) {
  return w.kv_head * w.group + (w.first_row + r) % w.group;
}

// The score of row r with the key at `key`, from scale * q . k.
REPRISE_FN float ScoreOf(const AttentionArgs& a, const AttentionWork& w, int r, uint32_t key,
                         uint32_t query, float product) {
  float s = product;
  if (a.softcap != 0.0f) s = a.softcap * Tanh(s / a.softcap);
  if (a.alibi_slopes != nullptr)
    s += a.alibi_slopes[HeadOfRow(w, r)] * static_cast<float>(static_cast<int32_t>(key - query));
  return s;
}

// What an element of K or V of a query head is worth, as stored.
template <typename K>
REPRISE_FN float ElementScale(const AttentionArgs& a, int part, int head) {
  if constexpr (kIsFp8<K>) return a.scales.Of(part, head / (a.num_heads / a.kv.num_kv_heads));
  return 1.0f;
}

// What a row's weighted sum of V is divided by in the end, and the factor that goes before it: the
// sum of its weights, which are relative to `max`, and what V's elements are worth; with a sink,
// which joins here and nowhere else, both relative to the larger of the two, so that nothing
// overflows.
struct Normalization {
  float factor, sum;
};
template <typename K>
REPRISE_FN Normalization NormalizationOf(const AttentionArgs& a, int head, float max, float sum) {
  const float worth = ElementScale<K>(a, kValues, head);
  if (a.sinks == nullptr) return {worth, sum};
  const float sink = a.sinks[head];
  const float base = sink > max ? sink : max;
  const float factor = Exp(max - base);
  return {factor * worth, sum * factor + Exp(sink - base)};
}

// One KV tile: scores, tiled softmax, weighted sum of V.
template <typename K>
REPRISE_FN void AttendTile(Block& b, const AttentionArgs& a, const AttentionWork& w,
                           const PortableAttentionShared& s, uint32_t kv0, int n) {
  b.For(w.rows * n, [&](int i) {
    const int r = i / n, j = i - r * n;
    const SeenRange seen = SeenFrom(a, w.position + static_cast<uint32_t>(TokenOfRow(w, r)));
    const uint32_t p = kv0 + static_cast<uint32_t>(j);
    s.scores[r * kPortableKvTile + j] =
        p >= seen.first && p <= seen.last
            ? ScoreOf(a, w, r, p, seen.last,
                      ScaledDot(s.q + r * a.kv.head_dim, KvRow<K>(a, w, p, kKeys), a.kv.head_dim))
            : -Infinity();
  });
  b.Sync();
  b.For(w.rows, [&](int r) {
    float* scores = s.scores + r * kPortableKvTile;
    float top = s.max[r];
    for (int j = 0; j < n; ++j) top = scores[j] > top ? scores[j] : top;
    // A row whose tokens all lie behind the mask so far keeps max = -inf; nothing to rescale.
    const float base = top == -Infinity() ? 0.0f : top;
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) {
      scores[j] = Exp(scores[j] - base);
      sum += scores[j];
    }
    s.rescale[r] = Exp(s.max[r] - base);
    s.sum[r] = s.sum[r] * s.rescale[r] + sum;
    s.max[r] = top;
  });
  b.Sync();
  const int packs = (a.kv.head_dim + kPortableLanes - 1) / kPortableLanes;
  b.For(w.rows * packs, [&](int i) {
    const int r = i / packs, d0 = (i - r * packs) * kPortableLanes;
    const int lanes = a.kv.head_dim - d0 < kPortableLanes ? a.kv.head_dim - d0 : kPortableLanes;
    float* acc = s.acc + r * a.kv.head_dim + d0;
    const float* p = s.scores + r * kPortableKvTile;
    const SeenRange seen = SeenFrom(a, w.position + static_cast<uint32_t>(TokenOfRow(w, r)));
    float sum[kPortableLanes];
    for (int l = 0; l < kPortableLanes; ++l) sum[l] = l < lanes ? acc[l] * s.rescale[r] : 0.0f;
    // Only tokens that the row sees: a weight of zero does not undo a NaN.
    const int first = seen.first > kv0 ? static_cast<int>(seen.first - kv0) : 0;
    for (int j = first; j < n && kv0 + static_cast<uint32_t>(j) <= seen.last; ++j) {
      const K* v = KvRow<K>(a, w, kv0 + static_cast<uint32_t>(j), kValues).At(d0);
      if (lanes == kPortableLanes) {
        for (int l = 0; l < kPortableLanes; ++l) sum[l] += p[j] * ToFloat(v[l]);
      } else {
        for (int l = 0; l < lanes; ++l) sum[l] += p[j] * ToFloat(v[l]);
      }
    }
    for (int l = 0; l < lanes; ++l) acc[l] = sum[l];
  });
  b.Sync();
}

// Merges all splits of a row's query tokens for one group of heads, in split order. unit: as
// AttentionMergeArgs.max_unit.
template <typename T, typename K>
REPRISE_FN void MergeSplits(Block& b, const AttentionArgs& a, const AttentionWork& w,
                            float unit = 1.0f) {
  const int first_head = w.kv_head * w.group;
  const uint32_t splits = w.item.num_splits, tokens = w.item.q_count;
  b.For(static_cast<int>(tokens) * w.group * a.kv.head_dim, [&](int i) {
    const int row = i / a.kv.head_dim, d = i % a.kv.head_dim;
    const int head = first_head + row % w.group;
    const auto token = static_cast<uint32_t>(row / w.group);
    float top = -Infinity();
    for (uint32_t s = 0; s < splits; ++s) {
      const float m = a.partial_max[PartialIndex(a, w.item.entry, s, tokens, token, head)];
      top = m > top ? m : top;
    }
    float acc = 0.0f, sum = 0.0f;
    for (uint32_t s = 0; s < splits; ++s) {
      const int64_t at = PartialIndex(a, w.item.entry, s, tokens, token, head);
      const float weight = Exp((a.partial_max[at] - top) * unit);
      acc += a.partial_out[at * a.kv.head_dim + d] * weight;
      sum += a.partial_sum[at] * weight;
    }
    const Normalization of = NormalizationOf<K>(a, head, top * unit, sum);
    static_cast<T*>(
        a.out)[(static_cast<int64_t>(w.first_q + token) * a.num_heads + head) * a.kv.head_dim + d] =
        FromFloat<T>(acc * of.factor / of.sum);
  });
}

// Element d of row r in q and out.
REPRISE_FN int64_t RowElement(const AttentionArgs& a, const AttentionWork& w, int r, int d) {
  const int row = w.first_row + r;
  const int64_t t = w.first_q + static_cast<uint32_t>(row / w.group);
  return (t * a.num_heads + HeadOfRow(w, r)) * a.kv.head_dim + d;
}

template <typename T, typename K>
REPRISE_FN void StoreWork(Block& b, const AttentionArgs& a, const AttentionWork& w,
                          const PortableAttentionShared& s) {
  if (w.item.num_splits == 1) {
    b.For(w.rows * a.kv.head_dim, [&](int i) {
      const int r = i / a.kv.head_dim, d = i - r * a.kv.head_dim;
      const Normalization of = NormalizationOf<K>(a, HeadOfRow(w, r), s.max[r], s.sum[r]);
      static_cast<T*>(a.out)[RowElement(a, w, r, d)] = FromFloat<T>(s.acc[i] * of.factor / of.sum);
    });
    return;
  }
  b.For(w.rows * a.kv.head_dim, [&](int i) {
    const int r = i / a.kv.head_dim, d = i - r * a.kv.head_dim;
    const int64_t at = PartialIndex(a, w.item.entry, w.item.split, w.item.q_count,
                                    static_cast<uint32_t>(TokenOfRow(w, r)), HeadOfRow(w, r));
    a.partial_out[at * a.kv.head_dim + d] = s.acc[i];
    if (d == 0) {
      a.partial_max[at] = s.max[r];
      a.partial_sum[at] = s.sum[r];
    }
  });
  if (a.arrivals == nullptr) return;
  const uint32_t rows = w.item.q_count * static_cast<uint32_t>(w.group);
  const auto pass_rows = static_cast<uint32_t>(a.pass_rows);
  uint32_t* arrivals =
      a.arrivals + static_cast<int64_t>(w.item.entry) * a.kv.num_kv_heads + w.kv_head;
  if (b.ArriveIsLast(arrivals, w.item.num_splits * ((rows + pass_rows - 1) / pass_rows)))
    MergeSplits<T, K>(b, a, w);
}

template <typename T, typename K>
REPRISE_FN void AttentionPortableOver(Block& b, const AttentionArgs& a) {
  const uint32_t total = *a.num_items * static_cast<uint32_t>(a.kv.num_kv_heads * a.num_passes);
  for (uint32_t index = static_cast<uint32_t>(b.x()); index < total;
       index += static_cast<uint32_t>(b.grid_x())) {
    const AttentionWork w = WorkOf(a, index);
    if (w.rows <= 0) continue;
    const PortableAttentionShared s =
        PortableAttentionShared::At(b.Shared<float>(), w.rows, a.kv.head_dim);
    b.For(w.rows * a.kv.head_dim, [&](int i) {
      const int r = i / a.kv.head_dim, d = i - r * a.kv.head_dim;
      s.q[i] = a.scale * ElementScale<K>(a, kKeys, HeadOfRow(w, r)) *
               ToFloat(static_cast<const T*>(a.q)[RowElement(a, w, r, d)]);
      s.acc[i] = 0.0f;
    });
    b.For(w.rows, [&](int r) {
      s.max[r] = -Infinity();
      s.sum[r] = 0.0f;
    });
    b.Sync();
    // Where tiles begin decides how sums round. A split's begin with the split; otherwise they must
    // not follow from where a window lets a chunk of a prompt begin, so that a whole one is laid
    // around it. Tokens that a query does not see are never read.
    const uint32_t begin = w.item.num_splits > 1
                               ? w.item.kv_begin
                               : w.item.kv_begin / kPortableKvTile * kPortableKvTile;
    for (uint32_t kv0 = begin; kv0 < w.item.kv_end; kv0 += kPortableKvTile) {
      const uint32_t left = w.item.kv_end - kv0;
      AttendTile<K>(b, a, w, s, kv0,
                    left < kPortableKvTile ? static_cast<int>(left) : kPortableKvTile);
    }
    StoreWork<T, K>(b, a, w, s);
    b.Sync();
  }
}

template <typename T>
REPRISE_FN void AttentionPortableBody(Block& b, const AttentionArgs& a) {
  AttentionPortableOver<T, T>(b, a);
}
template <typename T>
REPRISE_FN void AttentionPortableFp8Body(Block& b, const AttentionArgs& a) {
  if (a.kv.dtype == runtime::DType::kE4m3) {
    AttentionPortableOver<T, E4m3>(b, a);
  } else {
    AttentionPortableOver<T, E5m2>(b, a);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_PORTABLE_BODY_H_
