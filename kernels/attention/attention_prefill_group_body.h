// SPDX-License-Identifier: Apache-2.0
// Paged prefill attention on products of warpgroups, thread style: for heads of whole panels in a
// swizzled cache, whose pages are operands as bulk copies bring them. A block has two warpgroups of
// 64 query rows each, and four warps that request KV ahead of them (prefill_group_producer.h). Each
// warpgroup asks for the scores of a tile, then for the weighted sum of the tile before, and works
// on the scores while that sum runs; the two warpgroups fill each other's gaps. Static grid: no
// block waits for another, and a row's bits depend on its work items alone.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_PREFILL_GROUP_BODY_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_PREFILL_GROUP_BODY_H_

#include "kernels/attention/attention_matrix_body.h"
#include "kernels/attention/prefill_group_producer.h"
#include "kernels/attention/prefill_group_softmax.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The eight warps that compute.
template <typename T, int kHeadSize>
class GroupConsumer {
 public:
  REPRISE_FN GroupConsumer(const AttentionArgs& a, const GroupShared<kHeadSize>& shared)
      : a_(a),
        shared_(shared),
        group_(a.num_heads / a.kv.num_kv_heads),
        row0_(Warp() * 16),
        window_(a.window == 0 ? kNoWindow : a.window),
        score_factor_(ScoreFactor(a)) {}

  REPRISE_FN void Run() {
    for (uint32_t count = 0;; ++count) {
      const int slot = Items::At(count);
      BarrierWait(shared_.Barrier(kBarriers.item_full + slot), Items::Turn(count));
      const ResolvedWorkItem& item = shared_.items()[slot];
      if (item.q_count == 0) return;
      RunItem(item);
      SyncWarp();
      if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.item_empty + slot));
    }
  }

 private:
  static constexpr GroupBarriers kBarriers = GroupShared<kHeadSize>::kBarriers;
  static constexpr int kStages = GroupShared<kHeadSize>::kStages;
  using Softmax = GroupSoftmax<T, kHeadSize>;
  using Stages = RingPlace<kStages>;
  using Items = RingPlace<kGroupItems>;

  // What the warp's rows see of an item.
  struct Sight {
    uint32_t begin[kLaneRows], end[kLaneRows];  // tokens of row MatrixRow(h)
    uint32_t all_begin, all_end;                // what all of the warp's rows see
  };

  REPRISE_FN void RunItem(const ResolvedWorkItem& item) {
    const int rows = static_cast<int>(item.q_count) * group_;
    const uint32_t tiles = GroupTiles(item), mine = TilesOfWarpgroup(item, rows);
    Softmax softmax;
    softmax.Begin();
    if (mine != 0) RunTiles(item, rows, mine, softmax);
    for (uint32_t tile = mine; tile < tiles; ++tile) PassTile();
    softmax.FinishSums();
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h)
      if (row0_ + MatrixRow(h) < rows) StoreRow(item, h, softmax);
    if (item.num_splits != 1 && a_.arrivals != nullptr && ArriveAsSplit(item))
      MergeSplitsSeldom<T>(ReadAgain(a_), item, group_, kGroupComputeThreads);
  }

  // As StorePrefillRows, of heads without padding.
  REPRISE_FN void StoreRow(const ResolvedWorkItem& item, int h, const Softmax& softmax) const {
    const AttentionArgs& a = ReadAgain(a_);
    const int r = row0_ + MatrixRow(h);
    const auto token = static_cast<uint32_t>(r / group_);
    const int head = static_cast<int>(item.kv_head) * group_ + r % group_;
    if (item.num_splits == 1) {
      const float factor = Normalizer(a, head, softmax.max(h), softmax.sum(h));
      T* const out = static_cast<T*>(a.out) +
                     (static_cast<int64_t>(item.first_q + token) * a.num_heads + head) * kHeadSize +
                     MatrixColumn(0);
      softmax.ForRuns(h, [&](int column, const ColumnRun& x) {
        *reinterpret_cast<uint32_t*>(out + column) = Pack2<T>(x.v[0] * factor, x.v[1] * factor);
      });
      return;
    }
    const int64_t at = PartialIndex(a, item.entry, item.split, item.q_count, token, head);
    float* const out = a.partial_out + at * kHeadSize + MatrixColumn(0);
    softmax.ForRuns(h, [&](int column, const ColumnRun& x) { StoreVec(out + column, x); });
    if (MatrixColumn(0) != 0) return;
    a.partial_max[at] = softmax.max(h);
    a.partial_sum[at] = softmax.sum(h);
  }

  // Tiles beyond these have nothing for the warpgroup's rows.
  REPRISE_FN uint32_t TilesOfWarpgroup(const ResolvedWorkItem& item, int rows) const {
    const int first = row0_ / kGroupRows * kGroupRows;
    if (first >= rows) return 0;
    const int last = first + kGroupRows < rows ? first + kGroupRows - 1 : rows - 1;
    const uint32_t end = Min(item.kv_end, RowPosition(item, group_, last) + 1);
    return end <= item.tile_origin ? 0 : (end - item.tile_origin + kGroupTile - 1) / kGroupTile;
  }

  REPRISE_FN void RunTiles(const ResolvedWorkItem& item, int rows, uint32_t mine,
                           Softmax& softmax) {
    LoadQuery(item, rows);
    const Sight sight = SightOf(item);
    const uint32_t query = SharedAddress(shared_.Query()) +
                           static_cast<uint32_t>(row0_ / kGroupRows) * kGroupRows * kKvPanelBytes;
    uint32_t token = item.tile_origin;
    AwaitKeys();
    AwaitTurn();
    softmax.StartScores(query, SharedAddress(shared_.Keys(Stages::At(keys_))));
    EndTurn();
    softmax.WaitForScores(false);
    ReleaseKeys();
    Weigh(item, sight, token, softmax);
    softmax.TakeWeights();
    if (mine > 1) AwaitKeys();
    for (uint32_t tile = 1; tile < mine; ++tile) {
      token += kGroupTile;
      AwaitTurn();
      softmax.StartScores(query, SharedAddress(shared_.Keys(Stages::At(keys_))));
      softmax.Rescale();
      AwaitValues();
      softmax.StartSums(SharedAddress(shared_.Values(Stages::At(values_))));
      EndTurn();
      softmax.WaitForScores(true);
      ReleaseKeys();
      Weigh(item, sight, token, softmax);
      // A loop in the code here keeps the compiler from waiting for the sums first.
      if (tile + 1 < mine) AwaitKeys();
      softmax.WaitForSums();
      ReleaseValues();
      softmax.TakeWeights();
    }
    softmax.Rescale();
    AwaitValues();
    softmax.StartSums(SharedAddress(shared_.Values(Stages::At(values_))));
    softmax.WaitForSums();
    ReleaseValues();
  }

  // The warpgroup's query rows into shared memory, as LoadQueryRows but in panels.
  REPRISE_FN void LoadQuery(const ResolvedWorkItem& item, int rows) {
    constexpr int kChunks = kHeadSize / 8, kThreads = kGroupWarps * kWarpSize;
    SyncWarpgroup();  // the rows before may still be read
    REPRISE_UNROLL_BY(4)
    for (int i = ThreadX() % kThreads; i < kGroupRows * kChunks; i += kThreads) {
      const int r = row0_ / kGroupRows * kGroupRows + i / kChunks, chunk = i % kChunks;
      Vec<uint32_t, 4> x{};
      if (r < rows) {
        const int64_t token = item.first_q + static_cast<uint32_t>(r / group_);
        const int head = static_cast<int>(item.kv_head) * group_ + r % group_;
        x = LoadVec<4>(reinterpret_cast<const uint32_t*>(
            static_cast<const T*>(a_.q) + (token * a_.num_heads + head) * kHeadSize + chunk * 8));
      }
      const int at = (chunk / 8 * kPrefillGroupRows + r) * kKvPanelBytes +
                     ((chunk % 8) ^ (r % 8)) * kKvChunkBytes;
      *reinterpret_cast<Vec<uint32_t, 4>*>(shared_.Query() + at) = x;
    }
    FenceBulkCopies();
    SyncWarpgroup();
  }

  REPRISE_FN uint32_t FirstSeenBy(const ResolvedWorkItem& item, uint32_t position) const {
    const uint32_t first = position >= window_ ? position - window_ + 1 : 0;
    return first > item.kv_begin ? first : item.kv_begin;
  }
  REPRISE_FN Sight SightOf(const ResolvedWorkItem& item) const {
    Sight sight;
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      const uint32_t position = RowPosition(item, group_, row0_ + MatrixRow(h));
      sight.begin[h] = FirstSeenBy(item, position);
      sight.end[h] = Min(item.kv_end, position + 1);
    }
    sight.all_begin = FirstSeenBy(item, RowPosition(item, group_, row0_ + 15));
    sight.all_end = Min(item.kv_end, RowPosition(item, group_, row0_) + 1);
    return sight;
  }

  // From scores of the tile that begins at `token` to weights.
  REPRISE_FN void Weigh(const ResolvedWorkItem& item, const Sight& sight, uint32_t token,
                        Softmax& softmax) const {
    float factor = score_factor_;
    if (HasScoreSwitches(a_) || !(factor > 0.0f)) {
      REPRISE_UNROLL
      for (auto& fragment : softmax.scores()) {
        REPRISE_UNROLL
        for (float& x : fragment.v) x *= factor;
      }
      AdjustScores(item, token, softmax);
      factor = 1.0f;
    }
    if (token < sight.all_begin || token + kGroupTile > sight.all_end) {
      int begin[kLaneRows], end[kLaneRows];
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        begin[h] = InTile(sight.begin[h], token) - MatrixColumn(0);
        end[h] = InTile(sight.end[h], token) - MatrixColumn(0);
      }
      softmax.Mask(begin, end);
    }
    softmax.Weigh(factor);
  }

  // The switches of a launch, as AdjustScores of attention_matrix_body.h. Opaque: what a key's
  // distance has of the tile's column would be computed ahead of all tiles, into 64 registers.
  REPRISE_FN void AdjustScores(const ResolvedWorkItem& item, uint32_t token,
                               Softmax& softmax) const {
    const AttentionArgs& a = ReadAgain(a_);
    // A branch for every fragment: all of them at once would take registers that are not there.
    REPRISE_UNROLL
    for (auto& fragment : softmax.scores())
      if (FloatOf(Opaque(BitsOf(a.softcap))) != 0.0f) CapScores(a, fragment.v);
    if (a.alibi_slopes == nullptr) return;
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      const int r = row0_ + MatrixRow(h),
                head = static_cast<int>(item.kv_head) * group_ + r % group_;
      const uint32_t first =
          Opaque(token + static_cast<uint32_t>(MatrixColumn(0)) - RowPosition(item, group_, r));
      softmax.AddAlibi(h, first, AlibiSlope(a, head));
    }
  }
  // How many tokens of the tile lie before x.
  REPRISE_FN static int InTile(uint32_t x, uint32_t token) {
    return x <= token ? 0 : static_cast<int>(Min(x - token, kGroupTile));
  }

  // ---- the rings ----

  REPRISE_FN void AwaitKeys() const {
    BarrierWait(shared_.Barrier(kBarriers.keys_full + Stages::At(keys_)), Stages::Turn(keys_));
  }
  REPRISE_FN void AwaitValues() const {
    BarrierWait(shared_.Barrier(kBarriers.values_full + Stages::At(values_)),
                Stages::Turn(values_));
  }
  REPRISE_FN void ReleaseKeys() { Release(kBarriers.keys_empty + Stages::At(keys_++)); }
  REPRISE_FN void ReleaseValues() { Release(kBarriers.values_empty + Stages::At(values_++)); }
  REPRISE_FN void Release(int index) const {
    SyncWarp();
    if (Lane() == 0) BarrierArrive(shared_.Barrier(index));
  }
  // A tile that the warpgroup does not look at. It waits all the same: a barrier's arrivals are of
  // one turn.
  REPRISE_FN void PassTile() {
    AwaitTurn();
    EndTurn();
    AwaitKeys();
    ReleaseKeys();
    AwaitValues();
    ReleaseValues();
  }

  // ---- barriers of those who compute ----

  // The warpgroups ask for products in turn, tile after tile: one's softmax falls into the other's
  // products.
  REPRISE_FN void AwaitTurn() const {
    const uint32_t warpgroup = static_cast<uint32_t>(row0_ / kGroupRows);
    if (warpgroup + turns_ > 0)
      BarrierWait(shared_.Barrier(kBarriers.turn + row0_ / kGroupRows), turns_ + warpgroup - 1);
  }
  REPRISE_FN void EndTurn() {
    ++turns_;
    SyncWarp();
    if (Lane() == 0) BarrierArrive(shared_.Barrier(kBarriers.turn + 1 - row0_ / kGroupRows));
  }

  REPRISE_FN void SyncWarpgroup() {
    uint64_t* const barrier = shared_.Barrier(kBarriers.query + row0_ / kGroupRows);
    BarrierArrive(barrier);
    BarrierWait(barrier, meetings_++);
  }
  // As ArriveAsSplit of split_merge.h, without the warp that requests.
  REPRISE_FN bool ArriveAsSplit(const ResolvedWorkItem& item) {
    SyncMerge();
    if (ThreadX() == 0) {
      const AttentionArgs& a = ReadAgain(a_);
      uint32_t* const arrivals =
          a.arrivals + static_cast<int64_t>(item.entry) * a.kv.num_kv_heads + item.kv_head;
      const bool last = AtomicAddAcquireRelease(arrivals, 1u) == item.num_splits - 1;
      if (last) *arrivals = 0;
      *shared_.flag() = last ? 1u : 0u;
    }
    SyncMerge();
    return *shared_.flag() != 0;
  }
  REPRISE_FN void SyncMerge() {
    SyncThreads(kGroupComputeThreads, shared_.Barrier(kBarriers.merge), merges_++);
  }

  const AttentionArgs& a_;
  const GroupShared<kHeadSize>& shared_;
  const int group_, row0_;
  const uint32_t window_;
  const float score_factor_;
  uint32_t keys_ = 0, values_ = 0;  // tiles so far
  uint32_t turns_ = 0, meetings_ = 0, merges_ = 0;
};

// How many arrivals complete a phase.
REPRISE_FN uint32_t GroupArrivals(const GroupBarriers& barriers, int index) {
  if (index < barriers.keys_empty) return kGroupRequestWarps / 2;
  if (index < barriers.values_full) return kGroupComputeWarps;
  if (index < barriers.values_empty) return kGroupRequestWarps / 2;
  if (index < barriers.item_full) return kGroupComputeWarps;
  if (index < barriers.item_empty) return 1;
  if (index < barriers.turn) return kGroupComputeWarps;
  if (index < barriers.query) return kGroupWarps;
  return index == barriers.merge ? kGroupComputeThreads : kGroupWarps * kWarpSize;
}

template <typename T, int kHeadSize>
REPRISE_FN void AttentionPrefillGroupBody(const AttentionArgs& a, unsigned char* base) {
  constexpr GroupBarriers kBarriers = GroupBarriersFor(kHeadSize);
  BeginInOrder();
  // Blocks that no item falls to, whatever the round.
  if (static_cast<uint32_t>(BlockX()) >= *a.num_items * static_cast<uint32_t>(a.kv.num_kv_heads))
    return;
  const GroupShared<kHeadSize> shared{base};
  if (ThreadX() < kBarriers.count)
    BarrierInit(shared.Barrier(ThreadX()), GroupArrivals(kBarriers, ThreadX()));
  FenceBulkCopies();
  SyncBlock();
  if (Warp() >= kGroupComputeWarps) {
    GiveRegisters<kGroupRequestRegisters>();
    GroupProducer<T, kHeadSize>(a, shared).Run();
  } else {
    TakeRegisters<kGroupComputeRegisters>();
    GroupConsumer<T, kHeadSize>(a, shared).Run();
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_PREFILL_GROUP_BODY_H_
