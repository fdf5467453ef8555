// SPDX-License-Identifier: Apache-2.0
// Paged attention on matrix units, thread style: the decode kernel (one query token, its
// group of heads as rows, warps share out the KV tokens) and the prefill kernel (64 query rows,
// warps share out the rows). Static grid: block b of G walks the step's work items b, b + G, ...;
// no block waits for another, and a row's bits depend on its work items alone. Launch shapes:
// attention_shapes.cc. The reference for the same lists: attention_portable_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_MATRIX_BODY_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_MATRIX_BODY_H_

#include "kernels/attention/kv_stream.h"
#include "kernels/attention/split_merge.h"
#include "kernels/attention/warp_softmax.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Wider than any context, see WarpSoftmax::Mask.
inline constexpr uint32_t kNoWindow = 1u << 31;

REPRISE_FN uint32_t Min(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Query rows of an item into shared memory, swizzled: row r is token r / group, head r % group;
// rows at or beyond `rows` and columns beyond head_dim are zeros. No barrier. kInterleaved: columns
// in the order in which fragments of 8-bit elements have them (device/matrix.h), pairs of them in
// turn from the first and the second half of 16.
template <typename T, int kHeadSize, int kRows, bool kInterleaved = false>
REPRISE_FN void LoadQueryRows(const AttentionArgs& a, const ResolvedWorkItem& item, int group,
                              int rows, unsigned char* shared) {
  constexpr int kChunks = kHeadSize / 8, kThreads = Warps(kMatrixWarps).Max(kTraits);
  REPRISE_UNROLL_BY(4)
  for (int first = 0; first < kRows * kChunks; first += kThreads) {
    const int i = first + ThreadX();
    if (kRows * kChunks % kThreads != 0 && i >= kRows * kChunks) break;
    const int r = i / kChunks, chunk = i % kChunks;
    Vec<uint32_t, 4> x{};
    if (r < rows && chunk * 8 < a.kv.head_dim) {
      const int64_t token = item.first_q + static_cast<uint32_t>(r / group);
      const int head = static_cast<int>(item.kv_head) * group + r % group;
      const T* const row =
          static_cast<const T*>(a.q) + (token * a.num_heads + head) * a.kv.head_dim;
      if constexpr (kInterleaved) {
        const auto* const pairs = reinterpret_cast<const uint32_t*>(row + chunk / 2 * 16);
        const Vec<uint32_t, 4> first = LoadVec<4>(pairs), second = LoadVec<4>(pairs + 4);
        const bool odd = chunk % 2 != 0;
        x = {{odd ? first.v[1] : first.v[0], odd ? first.v[3] : first.v[2],
              odd ? second.v[1] : second.v[0], odd ? second.v[3] : second.v[2]}};
      } else {
        x = LoadVec<4>(reinterpret_cast<const uint32_t*>(row + chunk * 8));
      }
    }
    *reinterpret_cast<Vec<uint32_t, 4>*>(
        shared + SwizzledOffset<kChunks>(static_cast<uint32_t>(r), static_cast<uint32_t>(chunk))) =
        x;
  }
}

// KV position of the query token of row r; of the item's last one for rows beyond it.
REPRISE_FN uint32_t RowPosition(const ResolvedWorkItem& item, int group, int r) {
  return item.position + Min(item.q_count - 1, static_cast<uint32_t>(r / group));
}

// The switches of a launch, on the scores of the tile that begins at `token`. row0: the warp's
// first row. Rows beyond the item's count get the slope of some head of the group.
template <typename Softmax>
REPRISE_FN void AdjustScores(const AttentionArgs& args, const ResolvedWorkItem& item, int group,
                             int row0, uint32_t token, typename Softmax::Scores& s) {
  if (!HasScoreSwitches(args)) return;
  const AttentionArgs& a = ReadAgain(args);
  if (a.softcap != 0.0f) Softmax::Cap(a, s);
  if (a.alibi_slopes == nullptr) return;
  REPRISE_UNROLL
  for (int h = 0; h < kLaneRows; ++h) {
    const int r = row0 + MatrixRow(h), head = static_cast<int>(item.kv_head) * group + r % group;
    Softmax::AddAlibi(s, h, token, RowPosition(item, group, r), AlibiSlope(a, head));
  }
}

// T: of queries and output; K: of KV.
template <typename T, int kHeadSize, typename K = T>
REPRISE_FN void AttentionDecodeMatrixBody(const AttentionArgs& a, unsigned char* shared) {
  constexpr int kElement = sizeof(K);
  constexpr MatrixSharedLayout kLayout = MatrixDecodeLayout(kTraits, kHeadSize, kElement);
  constexpr int kStages = MatrixDecodeStages(kTraits, kHeadSize * kElement / 2);
  using Stream = KvStream<kHeadSize, kStages, false, kElement>;
  using Softmax = WarpSoftmax<T, kHeadSize, kMatrixChunk, K>;

  BeginInOrder();
  const uint32_t total = *a.num_items * static_cast<uint32_t>(a.kv.num_kv_heads);
  if (static_cast<uint32_t>(BlockX()) >= total) return;
  auto* items = reinterpret_cast<ResolvedWorkItem*>(shared + kLayout.items);
  auto* stats = reinterpret_cast<float*>(shared + kLayout.stats);
  const WarpMergeShared merge{reinterpret_cast<float*>(shared + kLayout.merge), stats,
                              stats + kMatrixWarps * kMatrixDecodeRows,
                              reinterpret_cast<uint32_t*>(shared + kLayout.flag)};
  const int warp = Warp();
  const uint32_t ring = SharedAddress(shared + kLayout.ring) +
                        static_cast<uint32_t>(warp * kStages * kMatrixChunk * kHeadSize * kElement);
  const FastDivide block_size(static_cast<uint32_t>(a.kv.block_size));
  const int group = a.num_heads / a.kv.num_kv_heads;
  const float score_factor = ScoreFactor(a);
  Softmax softmax;

  const uint32_t stride = kMatrixItemsAtOnce * static_cast<uint32_t>(GridX());
  for (uint32_t first = static_cast<uint32_t>(BlockX()); first < total; first += stride) {
    const int num_items = ResolveItems<1>(a, first, total, items);
    Stream stream(a, block_size, items, num_items, ring);
    for (int i = 0; i < num_items; ++i) {
      const ResolvedWorkItem& item = items[i];
      LoadQueryRows<T, kHeadSize, kMatrixDecodeRows, kIsFp8<K> && kFp8Interleaves>(
          a, item, group, group, shared + kLayout.query);
      const float factor = ScoreFactorOf<K>(a, score_factor, item.kv_head);
      SyncBlock();
      softmax.Begin(SharedAddress(shared + kLayout.query));
      const int chunks = Stream::NumChunks(item);
      const uint32_t end = Min(item.kv_end - 1, item.position);
      uint32_t token = item.tile_origin + static_cast<uint32_t>(warp * kMatrixChunk);
      for (int c = 0; c < chunks; ++c, token += kMatrixWarps * kMatrixChunk) {
        typename Softmax::Scores s;
        softmax.Score(stream.NextKeys(), factor, s);
        AdjustScores<Softmax>(a, item, group, 0, token, s);
        if (token + kMatrixChunk - 1 > end) {
          uint32_t last[kLaneRows];
          REPRISE_UNROLL
          for (uint32_t& x : last) x = end;
          Softmax::Mask(s, token, last, kNoWindow);  // the item begins where the window does
        }
        softmax.Weigh(s);
        softmax.Accumulate(s, stream.NextValues());
      }
      FinishDecode<T, kHeadSize>(a, item, group, softmax, merge);
    }
  }
}

// Writes the warp's rows of a prefill item: of a split, as partial results.
template <typename T, int kHeadSize, typename K, typename Softmax>
REPRISE_FN void StorePrefillRows(const AttentionArgs& args, const ResolvedWorkItem& item, int group,
                                 int rows, int row0, const Softmax& softmax) {
  const AttentionArgs& a = ReadAgain(args);
  const bool whole = item.num_splits == 1;
  REPRISE_UNROLL
  for (int h = 0; h < kLaneRows; ++h) {
    const int r = row0 + MatrixRow(h);
    if (r >= rows) continue;
    const auto token = static_cast<uint32_t>(r / group);
    const int head = static_cast<int>(item.kv_head) * group + r % group;
    const int64_t at = whole ? static_cast<int64_t>(item.first_q + token) * a.num_heads + head
                             : PartialIndex(a, item.entry, item.split, item.q_count, token, head);
    const float factor = whole ? NormalizerOf<K>(a, head, softmax.max(h), softmax.sum(h)) : 1.0f;
    REPRISE_UNROLL
    for (int i = 0; i < kHeadSize / 16 * Softmax::kRuns; ++i) {
      const int c = i / Softmax::kRuns, run = i % Softmax::kRuns;
      const int64_t element = at * a.kv.head_dim + Softmax::RunColumn(c, run);
      if (Softmax::RunColumn(c, run) >= a.kv.head_dim) continue;
      const ColumnRun x = softmax.acc(c, h, run);
      if (whole) {
        Vec<T, kColumnRun> y;
        REPRISE_UNROLL
        for (int j = 0; j < kColumnRun; ++j) y.v[j] = FromFloat<T>(x.v[j] * factor);
        StoreVec(static_cast<T*>(a.out) + element, y);
      } else {
        StoreVec(a.partial_out + element, x);
      }
    }
    if (whole || MatrixColumn(0) != 0) continue;
    a.partial_max[at] = softmax.max(h);
    a.partial_sum[at] = softmax.sum(h);
  }
}

template <typename T, int kHeadSize, typename K = T>
REPRISE_FN void AttentionPrefillMatrixBody(const AttentionArgs& a, unsigned char* shared) {
  constexpr int kElement = sizeof(K);
  constexpr MatrixSharedLayout kLayout = MatrixPrefillLayout(kTraits, kHeadSize, kElement);
  using Stream =
      KvStream<kHeadSize, MatrixPrefillStages(kTraits, kHeadSize * kElement / 2), true, kElement>;
  constexpr int kTile = Stream::kTokens;
  using Softmax = WarpSoftmax<T, kHeadSize, kTile, K>;

  BeginInOrder();
  const uint32_t total = *a.num_items * static_cast<uint32_t>(a.kv.num_kv_heads);
  if (static_cast<uint32_t>(BlockX()) >= total) return;
  auto* items = reinterpret_cast<ResolvedWorkItem*>(shared + kLayout.items);
  const FastDivide block_size(static_cast<uint32_t>(a.kv.block_size));
  const int group = a.num_heads / a.kv.num_kv_heads;
  const float score_factor = ScoreFactor(a);
  const int row0 = Warp() * 16;
  const uint32_t window = a.window == 0 ? kNoWindow : a.window;
  Softmax softmax;

  const uint32_t stride = kMatrixItemsAtOnce * static_cast<uint32_t>(GridX());
  for (uint32_t first = static_cast<uint32_t>(BlockX()); first < total; first += stride) {
    const int num_items = ResolveItems<kTile>(a, first, total, items);
    Stream stream(a, block_size, items, num_items, SharedAddress(shared + kLayout.ring));
    for (int i = 0; i < num_items; ++i) {
      const ResolvedWorkItem& item = items[i];
      const int rows = static_cast<int>(item.q_count) * group;
      SyncBlock();  // the query rows before may still be read
      LoadQueryRows<T, kHeadSize, kPrefillRows, kIsFp8<K> && kFp8Interleaves>(
          a, item, group, rows, shared + kLayout.query);
      const float factor = ScoreFactorOf<K>(a, score_factor, item.kv_head);
      SyncBlock();
      softmax.Begin(SharedAddress(shared + kLayout.query + row0 * kHeadSize * 2));
      // Between these two, all rows see all tokens.
      const uint32_t seen_by_all = Min(item.kv_end - 1, item.position);
      const uint32_t last_position = item.position + item.q_count - 1;
      const uint32_t first_seen_by_all = last_position >= window ? last_position - window + 1 : 0;
      // Tiles at or beyond this token have nothing for the warp's rows.
      const uint32_t warp_end =
          row0 < rows
              ? item.position +
                    static_cast<uint32_t>((row0 + 15 < rows ? row0 + 15 : rows - 1) / group) + 1
              : 0;
      uint32_t token = item.tile_origin;
      for (int c = Stream::NumChunks(item); c > 0; --c, token += kTile) {
        typename Softmax::Scores s;
        // Masks alone give the same result; at head size 256 the branch would spill registers.
        const bool live = kHeadSize == 256 || token < warp_end;
        const uint32_t keys = stream.NextKeys();
        if (live) {
          softmax.Score(keys, factor, s);
          AdjustScores<Softmax>(a, item, group, row0, token, s);
          if (token + kTile - 1 > seen_by_all || token < first_seen_by_all) {
            uint32_t last[kLaneRows];
            REPRISE_UNROLL
            for (int h = 0; h < kLaneRows; ++h)
              last[h] = RowPosition(item, group, row0 + MatrixRow(h));
            Softmax::Mask(s, token, last, window);
          }
          softmax.Weigh(s);
        }
        const uint32_t values = stream.NextValues();
        if (live) softmax.Accumulate(s, values);
      }
      softmax.FinishSums();
      StorePrefillRows<T, kHeadSize, K>(a, item, group, rows, row0, softmax);
      if (item.num_splits != 1 && a.arrivals != nullptr &&
          ArriveAsSplit(ReadAgain(a), item, reinterpret_cast<uint32_t*>(shared + kLayout.flag)))
        MergeSplitsSeldom<T, K>(ReadAgain(a), item, group, BlockThreads());
    }
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_MATRIX_BODY_H_
