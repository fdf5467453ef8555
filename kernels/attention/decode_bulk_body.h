// SPDX-License-Identifier: Apache-2.0
// Paged decode attention by bulk copies, thread style: for rows of one query token on devices with
// bulk copies to shared memory, heads of whole panels, and groups of up to eight. A block has four
// warps that compute, one that requests KV ahead of them (decode_bulk_producer.h), and one that
// counts arrivals. Blocks follow the step's deal (decode_share.h): no block waits for another, and
// a row's bits depend on the row alone (decode_fold.h).
//
// The warps share out a leaf's chunks of 16 tokens, each with a ring of its own, and merge behind
// every leaf; of tiles, every warp takes all chunks (decode_bulk_tile.h). Arrivals are slow while
// memory is busy: those who compute go on meanwhile, and look an item later whether they were the
// row's last.
#ifndef REPRISE_KERNELS_ATTENTION_DECODE_BULK_BODY_H_
#define REPRISE_KERNELS_ATTENTION_DECODE_BULK_BODY_H_

#include "kernels/attention/decode_bulk_producer.h"
#include "kernels/attention/decode_bulk_tile.h"
#include "kernels/attention/decode_fold.h"
#include "kernels/attention/token_softmax.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Where a warp that computes is after the shares so far.
struct BulkConsumerPlace {
  uint32_t items = 0;
  int stage = 0;  // of its ring
  uint32_t turn = 0;
  uint32_t merges = 0;
};

// The four warps that compute. kTiles: whether shares come to tiles, which kernels without are
// spared: where other kernels ran before, much of a short launch's time is the loading of code.
// Shared: a BulkShared. Order: BulkKernelOrder, or what says the same.
template <typename T, bool kTiles, typename Shared, typename Order>
class BulkConsumer {
 public:
  REPRISE_FN BulkConsumer(const AttentionArgs& a, const Shared& shared, const Order& order,
                          const BulkConsumerPlace& place)
      : a_(a),
        shared_(shared),
        order_(order),
        group_(a.num_heads / a.kv.num_kv_heads),
        score_factor_(ScoreFactor(a)),
        first_item_(place.items),
        stage_(place.stage),
        turn_(place.turn),
        merges_(place.merges) {}

  // Where it is afterwards.
  REPRISE_FN BulkConsumerPlace Run() {
    order_.Begin();
    uint32_t count = first_item_;
    for (;; ++count) {
      const int slot = Items::At(count);
      BarrierWait(shared_.Barrier(kBarriers.item_full + slot), Items::Turn(count));
      const BulkItem item = shared_.items()[slot];
      if (item.num_leaves == 0) break;
      RunAny(item, count);
      SyncWarp();
      if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.stored + slot));
      if (count > first_item_) FinishItem(count - 1);
    }
    if (count > first_item_) FinishItem(count - 1);
    if constexpr (Order::kContinues) {
      SyncWarp();
      if (Lane() == 0) PassEnd(count);
    }
    return {count + 1, stage_, turn_, merges_};
  }

 private:
  static constexpr int kHeadSize = Shared::kHead;
  static constexpr BulkBarriers kBarriers = Shared::kBarriers;
  static constexpr int kStages = Shared::kStages;
  // Columns of four that a thread has at most, of kBulkMergeRows heads and of all.
  static constexpr int kPasses = kBulkMaxGroup / kBulkMergeRows;
  static constexpr int kColumns =
      (kBulkMergeRows * (kHeadSize / 4) + kBulkComputeThreads - 1) / kBulkComputeThreads;
  using K = typename Shared::Element;
  using Softmax = TokenSoftmax<T, kHeadSize, K>;
  using Items = RingPlace<kBulkItems>;
  using Queries = RingPlace<kBulkQueries>;

  REPRISE_FN void RunAny(const BulkItem& item, uint32_t count) {
    if constexpr (kTiles) {
      if (item.is_tile()) return RunTile(item, count);
    }
    RunItem(item, count);
  }
  // What an item's barriers get of the warp, of the word that there are no more.
  REPRISE_FN void PassEnd(uint32_t count) const {
    const int slot = Items::At(count);
    BarrierArrive(shared_.Barrier(kBarriers.stored + slot));
    BarrierArrive(shared_.Barrier(kBarriers.query_empty + Queries::At(count)));
    BarrierArrive(shared_.Barrier(kBarriers.item_empty + slot));
  }

  REPRISE_FN void RunItem(const BulkItem& item, uint32_t count) {
    const int query = Queries::At(count);
    const uint32_t queries = SharedAddress(shared_.Query(static_cast<uint32_t>(query)));
    RowFold fold[kPasses][kColumns];
    BeginFold(fold);
    uint32_t piece = item.leaf;
    const uint32_t end = item.leaf + item.num_leaves;
    for (uint32_t leaf = item.leaf; leaf < end; ++leaf) {
      softmax_.Begin(queries);
      RunLeaf(item, leaf);
      MergeWarps(item, leaf, fold);
      if (item.is_whole_row()) continue;
      // A leaf of a node which another block began stands alone.
      const bool alone = leaf / kNodeLeaves * kNodeLeaves < item.leaf;
      const bool node_ends = (leaf + 1) % kNodeLeaves == 0;
      if (!alone && !node_ends && leaf + 1 != end) continue;
      StorePieces(item, piece, leaf + 1 - piece, fold);
      piece = leaf + 1;
    }
    if (item.is_whole_row()) {
      StoreRow(item, fold);
      order_.Finish();
    }
    SyncWarp();
    if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.query_empty + query));
  }

  REPRISE_FN void RunTile(const BulkItem& item, uint32_t count) {
    const uint32_t* const places = shared_.Places(Items::At(count));
    BulkTile<T, Shared>(a_, shared_, item)
        .Run(places, ScoreFactorOf<K>(a_, score_factor_, item.kv_head), softmax_);
    const uint32_t place = places[Warp()] + ItemChunks(item) / kBulkWarps;
    stage_ = RingPlace<kStages>::At(place);
    turn_ = RingPlace<kStages>::Turn(place);
    SyncWarp();
    if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.query_empty + Queries::At(count)));
  }

  // The warp's chunks of a leaf.
  REPRISE_FN void RunLeaf(const BulkItem& item, uint32_t leaf) {
    const uint32_t origin = item.row.origin + leaf * item.row.leaf_tokens;
    const uint32_t left = item.row.kv_end - origin;
    const uint32_t end = origin + (left < item.row.leaf_tokens ? left : item.row.leaf_tokens);
    const float score_factor = ScoreFactorOf<K>(a_, score_factor_, item.kv_head);
    uint32_t token = origin + static_cast<uint32_t>(Warp() * kBulkChunk);
    for (; token < end; token += kBulkWarps * kBulkChunk) {
      const int chunk = Warp() * kStages + stage_;
      BarrierWait(shared_.Barrier(kBarriers.full + chunk), turn_);
      const typename Softmax::Seen seen{item.row.kv_begin > token ? item.row.kv_begin - token : 0,
                                        end - token < kBulkChunk ? end - token : kBulkChunk};
      if (!seen.all()) ClearUnseen(chunk, seen);
      softmax_.Take(SharedAddress(shared_.Keys(chunk)), SharedAddress(shared_.Values(chunk)),
                    score_factor, seen, [&](float(&s)[4]) { AdjustScores(item, token, s); });
      SyncWarp();
      if (Lane() == 0) FreeChunk(shared_.Barrier(kBarriers.empty + chunk));
      if (++stage_ == kStages) {
        stage_ = 0;
        ++turn_;
      }
    }
  }

  // The launch's switches, on the scores of the chunk that begins at `token`.
  REPRISE_FN void AdjustScores(const BulkItem& item, uint32_t token, float (&s)[4]) const {
    if (a_.softcap != 0.0f) CapScores(a_, s);
    if (a_.alibi_slopes == nullptr) return;
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int head = Softmax::Head(i);
      const float slope =
          head < group_ ? AlibiSlope(a_, static_cast<int>(item.kv_head) * group_ + head) : 0.0f;
      REPRISE_UNROLL
      for (int h = 0; h < 2; ++h)
        s[2 * h + i] +=
            AlibiBias(slope, token + static_cast<uint32_t>(Softmax::Token(h)), item.row.kv_end - 1);
    }
  }

  // Zeros in the rows that were not copied: a weight of zero does not undo a NaN.
  REPRISE_FN void ClearUnseen(int chunk, const typename Softmax::Seen& seen) {
    constexpr int kChunksOfRow = kKvPanelBytes / kKvChunkBytes;
    for (int i = Lane(); i < kBulkChunk * kChunksOfRow; i += kWarpSize) {
      const uint32_t row = static_cast<uint32_t>(i / kChunksOfRow);
      if (row >= seen.begin && row < seen.end) continue;
      for (int panel = 0; panel < Shared::kPanels; ++panel) {
        const int at = panel * kBulkChunk * kKvPanelBytes + i * kKvChunkBytes;
        *reinterpret_cast<Vec<uint32_t, 4>*>(shared_.Keys(chunk) + at) = {};
        *reinterpret_cast<Vec<uint32_t, 4>*>(shared_.Values(chunk) + at) = {};
      }
    }
    FenceBulkCopies();
    SyncWarp();
  }

  // Of the four warps, in warp order, a few heads at a time; each thread appends its columns.
  REPRISE_FN void MergeWarps(const BulkItem& item, uint32_t leaf,
                             RowFold (&fold)[kPasses][kColumns]) {
    softmax_.FinishSums();
    if (merges_ > 0) SyncMerge();  // what was merged before has been read
    if (Lane() < 4) {
      REPRISE_UNROLL
      for (int i = 0; i < 2; ++i) {
        shared_.max()[Warp() * kBulkMaxGroup + Softmax::Head(i)] = softmax_.base(i);
        shared_.sum()[Warp() * kBulkMaxGroup + Softmax::Head(i)] = softmax_.sum(i);
      }
    }
    REPRISE_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      if (pass * kBulkMergeRows >= group_) continue;
      if (pass > 0) SyncMerge();
      StoreHeads(pass * kBulkMergeRows);
      SyncMerge();
      REPRISE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int head = HeadOf(pass, c);
        if (head < group_ && InPass(c))
          fold[pass][c].Append(Merged(head, ColumnOf(c)), leaf + 1, item.row.num_leaves);
      }
    }
  }

  // The thread's columns: c-th of a pass.
  REPRISE_FN static int PlaceOf(int c) { return ThreadX() + c * kBulkComputeThreads; }
  REPRISE_FN static bool InPass(int c) { return PlaceOf(c) < kBulkMergeRows * (kHeadSize / 4); }
  REPRISE_FN static int HeadOf(int pass, int c) {
    return pass * kBulkMergeRows + PlaceOf(c) / (kHeadSize / 4);
  }
  REPRISE_FN static int ColumnOf(int c) { return PlaceOf(c) % (kHeadSize / 4) * 4; }

  REPRISE_FN float* MergeRow(int warp, int head) const {
    return shared_.merge() +
           (warp * kBulkMergeRows + head % kBulkMergeRows) * BulkMergeStride(kHeadSize);
  }

  // The warp's sums of heads [first, first + kBulkMergeRows).
  REPRISE_FN void StoreHeads(int first) {
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int head = Softmax::Head(i);
      if (head < first || head >= first + kBulkMergeRows) continue;
      float* const to = MergeRow(Warp(), head);
      REPRISE_UNROLL
      for (int k = 0; k < Softmax::kSteps; ++k) {
        REPRISE_UNROLL
        for (int h = 0; h < 2; ++h) to[16 * k + Softmax::Dimension(h)] = softmax_.acc(k, h, i);
      }
    }
  }

  // Four columns of one head over all warps.
  REPRISE_FN FoldedColumns Merged(int head, int column) const {
    FoldedColumns m{};
    m.max = -Infinity();
    REPRISE_UNROLL
    for (int w = 0; w < kBulkWarps; ++w)
      m.max = Max(m.max, shared_.max()[w * kBulkMaxGroup + head]);
    const float base = SoftmaxBase(m.max);
    REPRISE_UNROLL
    for (int w = 0; w < kBulkWarps; ++w) {
      const float weight = Exp2(shared_.max()[w * kBulkMaxGroup + head] - base);
      const auto x = LoadVec<4>(MergeRow(w, head) + column);
      m.sum += shared_.sum()[w * kBulkMaxGroup + head] * weight;
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) m.v.v[i] += x.v[i] * weight;
    }
    return m;
  }

  REPRISE_FN static void BeginFold(RowFold (&fold)[kPasses][kColumns]) {
    REPRISE_UNROLL
    for (auto& of_pass : fold) {
      REPRISE_UNROLL
      for (RowFold& mine : of_pass) mine.Begin();
    }
  }

  // f(head of the group, column, fold) for the thread's columns.
  template <typename F>
  REPRISE_FN void ForColumns(RowFold (&fold)[kPasses][kColumns], F f) const {
    REPRISE_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      REPRISE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int head = HeadOf(pass, c);
        if (head < group_ && InPass(c)) f(head, ColumnOf(c), fold[pass][c]);
      }
    }
  }

  REPRISE_FN void StoreRow(const BulkItem& item, RowFold (&fold)[kPasses][kColumns]) {
    const int first = static_cast<int>(item.kv_head) * group_;
    ForColumns(fold, [&](int head, int column, const RowFold& mine) {
      StoreOutput4<T, K>(a_, item.row.query, first + head, column, mine.row.v, mine.row.max,
                         mine.row.sum);
    });
  }
  // Stores what was folded as a piece of `count` leaves, and starts over.
  REPRISE_FN void StorePieces(const BulkItem& item, uint32_t leaf, uint32_t count,
                              RowFold (&fold)[kPasses][kColumns]) {
    if (ThreadX() == 0) *PieceLeaves(a_, item, leaf) = count;
    const int first = static_cast<int>(item.kv_head) * group_;
    ForColumns(fold, [&](int head, int column, RowFold& mine) {
      StorePiece(a_, item, leaf, first + head, column, mine.piece());
      mine.Begin();
    });
  }

  // Once the item's arrival is known: whoever was a row's last puts its pieces together.
  REPRISE_FN void FinishItem(uint32_t count) {
    const int slot = Items::At(count);
    const BulkItem item = shared_.items()[slot];
    if (!item.is_whole_row()) {
      BarrierWait(shared_.Barrier(kBarriers.arrived + slot), Items::Turn(count));
      const uint32_t last = shared_.last()[slot];
      if (kTiles && item.is_tile()) {
        uint32_t member = 0;
        for (uint32_t left = last; left != 0; left >>= 1, ++member)
          if ((left & 1u) != 0)
            FoldPieces<T, K>(a_, MemberItem(a_, item, member), group_, ThreadX());
      } else if (last != 0) {
        FoldPieces<T, K>(a_, item, group_, ThreadX());
        order_.Finish();
      }
    }
    SyncWarp();
    if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.item_empty + slot));
  }

  // Of tiles all warps have to arrive.
  REPRISE_FN static void FreeChunk(uint64_t* empty) {
    if constexpr (kTiles) {
      BarrierArriveTimes(empty, kBulkWarps);
    } else {
      BarrierArrive(empty);
    }
  }

  // A barrier of the four warps.
  REPRISE_FN void SyncMerge() {
    SyncThreads(kBulkComputeThreads, shared_.Barrier(kBarriers.merge), merges_++);
  }

  const AttentionArgs& a_;
  const Shared& shared_;
  const Order& order_;
  const int group_;
  const float score_factor_;
  const uint32_t first_item_;
  Softmax softmax_;
  int stage_;
  uint32_t turn_, merges_;
};

// One lane counts the leaves of every item that is part of a row, once they are stored; of tiles, a
// lane for every member. first_item: items of the shares so far; returns them afterwards.
template <bool kTiles, typename Shared, typename Order>
REPRISE_FN uint32_t CountBulkArrivals(const AttentionArgs& a, const Shared& shared,
                                      const Order& order, uint32_t first_item) {
  constexpr BulkBarriers kBarriers = Shared::kBarriers;
  using Items = RingPlace<kBulkItems>;
  if (!kTiles && Lane() != 0) return 0;
  order.Wait();
  for (uint32_t count = first_item;; ++count) {
    const int slot = Items::At(count);
    BarrierWait(shared.Barrier(kBarriers.item_full + slot), Items::Turn(count));
    const BulkItem item = shared.items()[slot];
    if (item.num_leaves == 0) {
      if constexpr (Order::kContinues) {
        BarrierWait(shared.Barrier(kBarriers.stored + slot), Items::Turn(count));
        BarrierArrive(shared.Barrier(kBarriers.arrived + slot));
        BarrierArrive(shared.Barrier(kBarriers.item_empty + slot));
      }
      return count + 1;
    }
    BarrierWait(shared.Barrier(kBarriers.stored + slot), Items::Turn(count));
    uint32_t last = 0;
    if (kTiles && item.is_tile()) {
      last = CountTileArrivals(a, item);
    } else if (Lane() == 0 && !item.is_whole_row()) {
      last = CountArrival(a, item) ? 1u : 0u;
    }
    if constexpr (kTiles) SyncWarp();  // the item has been read
    if (Lane() != 0) continue;
    shared.last()[slot] = last;
    BarrierArrive(shared.Barrier(kBarriers.arrived + slot));
    BarrierArrive(shared.Barrier(kBarriers.item_empty + slot));
  }
}

// How many arrivals complete a phase.
REPRISE_FN uint32_t BulkArrivals(const BulkBarriers& barriers, int index, bool tiles) {
  if (index >= barriers.empty && index < barriers.item_full) return tiles ? kBulkWarps : 1;
  if (index >= barriers.item_empty && index < barriers.query_empty) return kBulkWarps + 1;
  if (index >= barriers.query_empty && index < barriers.arrived) return kBulkWarps;
  return index == barriers.merge ? kBulkComputeThreads : 1;
}

template <typename Shared>
REPRISE_FN void InitBulkBarriers(const Shared& shared, bool tiles) {
  constexpr BulkBarriers kBarriers = Shared::kBarriers;
  for (int i = Lane(); i < kBarriers.count; i += kWarpSize)
    BarrierInit(shared.Barrier(i), BulkArrivals(kBarriers, i, tiles));
}

// Query rows beyond the group are read and never used. threads: of the block.
template <typename Shared>
REPRISE_FN void ClearBulkQueries(const Shared& shared, int threads) {
  constexpr uint32_t kQueryBytes = kBulkQueries * kBulkMaxGroup * BulkRowBytes(Shared::kHead);
  for (uint32_t i = static_cast<uint32_t>(ThreadX()) * 16; i < kQueryBytes;
       i += static_cast<uint32_t>(threads) * 16)
    *reinterpret_cast<Vec<uint32_t, 4>*>(shared.Query(0) + i) = {};
}

// K: elements of KV, T or E4m3.
template <typename T, int kHeadSize, bool kTiles, typename K = T>
REPRISE_FN void AttentionDecodeBulkBody(const AttentionArgs& a, unsigned char* base) {
  if (!a.reads_ahead) WaitForPrevious();
  const DecodeShare share = a.shares[BlockX()];
  const bool has_work = !(share.begin == share.end);  // not waited for yet
  using Shared = BulkShared<K, kHeadSize>;
  const Shared shared{base};
  if (Warp() == 0) InitBulkBarriers(shared, kTiles);
  ClearBulkQueries(shared, kBulkThreads);
  FenceBulkCopies();
  SyncBlock();
  if (!has_work) {
    if (BlockX() == 0) WaitForPrevious();
    return;
  }
  const BulkKernelOrder order;
  if (Warp() < kBulkWarps) {
    BulkConsumer<T, kTiles, Shared, BulkKernelOrder>(a, shared, order, {}).Run();
  } else if (Warp() == kBulkWarps) {
    BulkProducer<T, kTiles, Shared, BulkKernelOrder>(a, shared, share, order, {}).Run();
  } else {
    CountBulkArrivals<kTiles, Shared>(a, shared, order, 0);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_DECODE_BULK_BODY_H_
