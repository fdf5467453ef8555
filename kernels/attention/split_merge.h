// SPDX-License-Identifier: Apache-2.0
// How decode results come together, in two steps of fixed order: the warps of a block (each saw its
// own KV chunks), then the splits of a row (each was a work item of some block). Partial maxima in
// memory are in units of log2, as in warp_softmax.h.
#ifndef REPRISE_KERNELS_ATTENTION_SPLIT_MERGE_H_
#define REPRISE_KERNELS_ATTENTION_SPLIT_MERGE_H_

#include "kernels/attention/warp_softmax.h"
#include "kernels/device/last_arriver.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Four neighbouring columns of one head's result over all its tokens, from their weighted sum; max,
// sum: what the weights are relative to, and their sum.
template <typename T, typename K = T>
REPRISE_FN void StoreOutput4(const AttentionArgs& a, uint32_t token, int head, int column,
                             const Vec<float, 4>& v, float max, float sum) {
  const float normalizer = NormalizerOf<K>(a, head, max, sum);
  T* out = static_cast<T*>(a.out) +
           (static_cast<int64_t>(token) * a.num_heads + head) * a.kv.head_dim + column;
  *reinterpret_cast<Vec<uint32_t, 2>*>(out) = {
      {Pack2<T>(v.v[0] * normalizer, v.v[1] * normalizer),
       Pack2<T>(v.v[2] * normalizer, v.v[3] * normalizer)}};
}

// Merges all splits of the row's query tokens for one group of heads in split order, a batch of
// independent loads at a time. Called by threads [0, threads) of the block.
template <typename T, typename K = T>
REPRISE_FN void MergeSplitsOf(const AttentionArgs& a, const ResolvedWorkItem& item, int group,
                              int threads) {
  constexpr int kBatch = 8;
  const int columns = a.kv.head_dim / 4, rows = static_cast<int>(item.q_count) * group;
  const int splits = static_cast<int>(item.num_splits);
  const int64_t heads_of_split = static_cast<int64_t>(item.q_count) * a.num_heads;
  for (int i = ThreadX(); i < rows * columns; i += threads) {
    const int row = i / columns, column = (i - row * columns) * 4;
    const auto token = static_cast<uint32_t>(row / group);
    const int head = static_cast<int>(item.kv_head) * group + row % group;
    const int64_t first = PartialIndex(a, item.entry, 0, item.q_count, token, head);
    float top = -Infinity(), sum = 0.0f;
    Vec<float, 4> v{};
    for (int s0 = 0; s0 < splits; s0 += kBatch) {
      float max[kBatch], partial_sum[kBatch];
      Vec<float, 4> partial[kBatch];
      const float before = top;
      REPRISE_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const bool live = s0 + j < splits;
        const int64_t at = first + (live ? s0 + j : s0) * heads_of_split;
        max[j] = live ? LoadFresh(a.partial_max + at) : -Infinity();
        partial_sum[j] = LoadFresh(a.partial_sum + at);
        partial[j] = LoadFresh(
            reinterpret_cast<const Vec<float, 4>*>(a.partial_out + at * a.kv.head_dim + column));
      }
      REPRISE_UNROLL
      for (int j = 0; j < kBatch; ++j) top = Max(top, max[j]);
      const float base = SoftmaxBase(top);
      const float rescale = Exp2(before - base);
      sum *= rescale;
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) v.v[i] *= rescale;
      REPRISE_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const float weight = Exp2(max[j] - base);
        sum += partial_sum[j] * weight;
        REPRISE_UNROLL
        for (int i = 0; i < 4; ++i) v.v[i] += partial[j].v[i] * weight;
      }
    }
    StoreOutput4<T, K>(a, item.first_q + token, head, column, v, top, sum);
  }
}

// The same where few items are split, and the kernel has no registers to spare for it.
template <typename T, typename K = T>
REPRISE_SELDOM_FN void MergeSplitsSeldom(const AttentionArgs& a, const ResolvedWorkItem& item,
                                         int group, int threads) {
  MergeSplitsOf<T, K>(a, item, group, threads);
}

// After a split's partial results are written: whether it is the last of its row's to arrive, whose
// block merges them. Called by every thread of the block; contains barriers. flag: a word of shared
// memory for this alone. REQUIRES: there are arrivals.
REPRISE_FN bool ArriveAsSplit(const AttentionArgs& a, const ResolvedWorkItem& item,
                              uint32_t* flag) {
  uint32_t* arrivals =
      a.arrivals + static_cast<int64_t>(item.entry) * a.kv.num_kv_heads + item.kv_head;
  return ArriveIsLastFencedOnce(arrivals, item.num_splits, flag);
}

// Shared memory of the merge across warps.
struct WarpMergeShared {
  float* rows;     // [kMatrixWarps, MatrixMergeRows, MatrixMergeStride]
  float* max;      // [kMatrixWarps, kMatrixDecodeRows]
  float* sum;      // [kMatrixWarps, kMatrixDecodeRows]
  uint32_t* flag;  // of the last arriver
};

// Four columns of one row over all warps, relative to the largest maximum.
struct MergedColumns {
  Vec<float, 4> v;
  float max, sum;
};
// at: where `row` lies among the rows that are merged at a time.
template <int kHeadSize>
REPRISE_FN MergedColumns MergeWarps(const WarpMergeShared& shared, int row, int at, int column) {
  MergedColumns m{};
  m.max = -Infinity();
  REPRISE_UNROLL
  for (int w = 0; w < kMatrixWarps; ++w)
    m.max = Max(m.max, shared.max[w * kMatrixDecodeRows + row]);
  const float base = SoftmaxBase(m.max);
  REPRISE_UNROLL
  for (int w = 0; w < kMatrixWarps; ++w) {
    const float weight = Exp2(shared.max[w * kMatrixDecodeRows + row] - base);
    const auto x =
        LoadVec<4>(shared.rows +
                   (w * MatrixMergeRows(kHeadSize) + at) * MatrixMergeStride(kHeadSize) + column);
    m.sum += shared.sum[w * kMatrixDecodeRows + row] * weight;
    REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) m.v.v[i] += x.v[i] * weight;
  }
  return m;
}

// Stores a finished row's columns, or a split's partial result.
template <typename T, typename K>
REPRISE_FN void StoreMerged(const AttentionArgs& a, const ResolvedWorkItem& item, int head,
                            int column, const MergedColumns& m) {
  if (item.num_splits == 1) {
    StoreOutput4<T, K>(a, item.first_q, head, column, m.v, m.max, m.sum);
    return;
  }
  const int64_t at = PartialIndex(a, item.entry, item.split, 1, 0, head);
  StoreVec(a.partial_out + at * a.kv.head_dim + column, m.v);
  if (column == 0) {
    a.partial_max[at] = m.max;
    a.partial_sum[at] = m.sum;
  }
}

// Ends a decode item: warps merge in warp order through shared memory, MatrixMergeRows rows at a
// time; the last split to arrive merges the row. Contains barriers, at least one before anything
// that the caller does next.
template <typename T, int kHeadSize, typename K>
REPRISE_FN void FinishDecode(const AttentionArgs& a, const ResolvedWorkItem& item, int group,
                             WarpSoftmax<T, kHeadSize, kMatrixChunk, K>& warp_result,
                             const WarpMergeShared& shared) {
  using Softmax = WarpSoftmax<T, kHeadSize, kMatrixChunk, K>;
  constexpr int kRows = MatrixMergeRows(kHeadSize);
  const int warp = Warp();
  warp_result.FinishSums();
  if (MatrixColumn(0) == 0) {
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      shared.max[warp * kMatrixDecodeRows + MatrixRow(h)] = warp_result.max(h);
      shared.sum[warp * kMatrixDecodeRows + MatrixRow(h)] = warp_result.sum(h);
    }
  }
  for (int row0 = 0; row0 < group; row0 += kRows) {
    const int rows = group - row0 < kRows ? group - row0 : kRows;
    if (row0 != 0) SyncBlock();  // the rows before may still be read
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      const int r = MatrixRow(h) - row0;
      if (r < 0 || r >= rows) continue;
      float* to = shared.rows + (warp * kRows + r) * MatrixMergeStride(kHeadSize);
      REPRISE_UNROLL
      for (int at = 0; at < kHeadSize / 16 * Softmax::kRuns; ++at) {
        const int c = at / Softmax::kRuns, run = at % Softmax::kRuns;
        StoreVec(to + Softmax::RunColumn(c, run), warp_result.acc(c, h, run));
      }
    }
    SyncBlock();
    for (int i = ThreadX(); i < rows * (kHeadSize / 4); i += BlockThreads()) {
      const int r = i / (kHeadSize / 4), column = i % (kHeadSize / 4) * 4;
      if (column >= a.kv.head_dim) continue;
      StoreMerged<T, K>(a, item, static_cast<int>(item.kv_head) * group + row0 + r, column,
                        MergeWarps<kHeadSize>(shared, row0 + r, r, column));
    }
  }
  if (item.num_splits != 1 && a.arrivals != nullptr && ArriveAsSplit(a, item, shared.flag))
    MergeSplitsOf<T, K>(a, item, group, BlockThreads());
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_SPLIT_MERGE_H_
