// SPDX-License-Identifier: Apache-2.0
// What the warps of a bulk decode block do with a tile: rows that share the KV of their first
// tokens. Every warp takes all chunks, for rows of its own, which fill the columns of its products:
// K and V are read once for the rows of all four. A warp's results of a leaf are pieces of its
// rows, to be put together with the others by the last to arrive at each (decode_fold.h). A row's
// columns are computed alike whatever the columns beside them, and whether there are any. Part of
// decode_bulk_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_DECODE_BULK_TILE_H_
#define REPRISE_KERNELS_ATTENTION_DECODE_BULK_TILE_H_

#include "kernels/attention/decode_bulk_producer.h"
#include "kernels/attention/decode_fold.h"
#include "kernels/attention/token_softmax.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The entry of a tile's member; kNoMember beyond them.
REPRISE_FN uint32_t MemberOf(const AttentionArgs& a, const BulkItem& item, uint32_t member) {
  return member < item.row.num_members ? a.prefix_members[item.row.query + member] : kNoMember;
}

// A member's own row, as an item.
REPRISE_FN BulkItem MemberItem(const AttentionArgs& a, const BulkItem& item, uint32_t member) {
  const uint32_t entry = MemberOf(a, item, member);
  return BulkItem{item.num_leaves, item.leaf, item.kv_head, entry, a.decode_rows[entry]};
}

template <typename T, typename Shared>
class BulkTile {
 public:
  using Softmax = TokenSoftmax<T, Shared::kHead, typename Shared::Element>;

  REPRISE_FN BulkTile(const AttentionArgs& a, const Shared& shared, const BulkItem& item)
      : a_(a), shared_(shared), item_(item), group_(a.num_heads / a.kv.num_kv_heads) {
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Column column = ColumnOf(Softmax::Head(i));
      entry_[i] = column.entry;
      head_[i] = column.head;
    }
  }

  // places: BulkShared::Places of the item. score_factor: ScoreFactorOf its KV head.
  REPRISE_FN void Run(const uint32_t* places, float score_factor, Softmax& softmax) const {
    const bool has_rows = Warp() * BulkWarpMembers(group_) < item_.row.num_members;
    if (has_rows) LoadQueries(softmax);
    const uint32_t leaf_rounds = item_.row.leaf_tokens / kLeafMultiple;
    uint32_t round = 0, token = ItemOrigin(item_);
    const uint32_t rounds = (ItemEnd(item_) - token) / kLeafMultiple;
    for (uint32_t leaf = item_.leaf; round < rounds; ++leaf) {
      softmax.Clear();
      const uint32_t end = rounds - round < leaf_rounds ? rounds : round + leaf_rounds;
      for (; round < end; ++round) {
        REPRISE_UNROLL_BY(1)
        for (int ring = 0; ring < kBulkWarps; ++ring, token += kBulkChunk) {
          const uint32_t place = places[ring] + round;
          const int chunk = ring * kStages + Stages::At(place);
          BarrierWait(shared_.Barrier(kBarriers.full + chunk), Stages::Turn(place));
          if (has_rows)
            softmax.Take(SharedAddress(shared_.Keys(chunk)), SharedAddress(shared_.Values(chunk)),
                         score_factor, {0, kBulkChunk},
                         [&](float(&s)[4]) { AdjustScores(token, s); });
          SyncWarp();
          if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.empty + chunk));
        }
      }
      if (has_rows) StorePieces(leaf, softmax);
    }
  }

 private:
  static constexpr int kHeadSize = Shared::kHead;
  static constexpr BulkBarriers kBarriers = Shared::kBarriers;
  static constexpr int kStages = Shared::kStages;
  using Stages = RingPlace<kStages>;

  // A column of the warp's products.
  struct Column {
    uint32_t entry;  // kNoMember: there is nobody
    int head;        // of queries
  };
  REPRISE_FN Column ColumnOf(int column) const {
    const int members = BulkWarpMembers(group_), in_warp = column / group_;
    const int head = static_cast<int>(item_.kv_head) * group_ + column - in_warp * group_;
    if (in_warp >= members) return {kNoMember, head};
    return {MemberOf(a_, item_, static_cast<uint32_t>(Warp() * members + in_warp)), head};
  }

  REPRISE_FN void LoadQueries(Softmax& softmax) const {
    const Column column = ColumnOf(Softmax::Column());
    const T* query = nullptr;
    if (column.entry != kNoMember) {
      const int64_t token = a_.decode_rows[column.entry].query;
      query = static_cast<const T*>(a_.q) + (token * a_.num_heads + column.head) * kHeadSize;
    }
    softmax.LoadColumn(query);
  }

  // The launch's switches, on the scores of the chunk that begins at `token`.
  REPRISE_FN void AdjustScores(uint32_t token, float (&s)[4]) const {
    if (a_.softcap != 0.0f) CapScores(a_, s);
    if (a_.alibi_slopes == nullptr) return;
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (entry_[i] == kNoMember) continue;
      const float slope = AlibiSlope(a_, head_[i]);
      const uint32_t position = a_.decode_rows[entry_[i]].kv_end - 1;
      REPRISE_UNROLL
      for (int h = 0; h < 2; ++h)
        s[2 * h + i] +=
            AlibiBias(slope, token + static_cast<uint32_t>(Softmax::Token(h)), position);
    }
  }

  // The leaf's results, each as a piece of one leaf.
  REPRISE_FN void StorePieces(uint32_t leaf, Softmax& softmax) const {
    softmax.FinishSums();
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (entry_[i] == kNoMember) continue;
      const int64_t at = PartialIndex(a_, entry_[i], leaf, 1, 0, head_[i]);
      float* const to = a_.partial_out + at * kHeadSize;
      REPRISE_UNROLL
      for (int k = 0; k < Softmax::kSteps; ++k) {
        REPRISE_UNROLL
        for (int h = 0; h < 2; ++h) to[16 * k + Softmax::Dimension(h)] = softmax.acc(k, h, i);
      }
      if (Softmax::Dimension(0) != 0) continue;
      a_.partial_max[at] = softmax.base(i);
      a_.partial_sum[at] = softmax.sum(i);
      if (head_[i] == static_cast<int>(item_.kv_head) * group_)
        *PieceLeaves(a_, {0, 0, item_.kv_head, entry_[i], {}}, leaf) = 1;
    }
  }

  const AttentionArgs& a_;
  const Shared& shared_;
  const BulkItem& item_;
  const int group_;
  // Of the lane's columns Softmax::Head(i).
  uint32_t entry_[2];
  int head_[2];
};

// Counts a tile's leaves for every member, a lane for each, once they are stored. Returns a bit for
// each member whose last leaves they were, in all lanes.
REPRISE_FN uint32_t CountTileArrivals(const AttentionArgs& a, const BulkItem& item) {
  const auto lane = static_cast<uint32_t>(Lane());
  uint32_t complete = 0;
  if (MemberOf(a, item, lane) != kNoMember)
    complete = CountArrival(a, MemberItem(a, item, lane)) ? 1u << lane : 0u;
  REPRISE_UNROLL
  for (int mask = 1; mask < kWarpSize; mask <<= 1) complete |= ShuffleXor(complete, mask);
  return complete;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_DECODE_BULK_TILE_H_
