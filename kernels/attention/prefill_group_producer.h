// SPDX-License-Identifier: Apache-2.0
// The four warps of a group prefill block that request KV: they walk the block's work items, and
// ask for every tile of K and of V as soon as there is room for it. Page indices and the next item
// are loaded ahead. Two of them ask for K and two for V, each for half of a tile: a warp issues the
// copies of its lanes one by one, too slowly for one warp alone; and K need not wait for room for
// the V before it. Part of attention_prefill_group_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_PRODUCER_H_
#define REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_PRODUCER_H_

#include "kernels/attention/attention_args.h"
#include "kernels/attention/kv_stream.h"
#include "kernels/attention/prefill_group_geometry.h"
#include "kernels/attention/ring_place.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// A block's shared memory.
template <int kHeadSize>
struct GroupShared {
  static constexpr GroupSharedLayout kLayout = GroupLayout(kHeadSize);
  static constexpr GroupBarriers kBarriers = GroupBarriersFor(kHeadSize);
  static constexpr int kStages = GroupStages(kHeadSize);
  static constexpr uint32_t kTile = GroupTileBytes(kHeadSize);

  REPRISE_FN unsigned char* Query() const { return base + kLayout.query; }
  REPRISE_FN unsigned char* Keys(int stage) const {
    return base + kLayout.keys + static_cast<uint32_t>(stage) * kTile;
  }
  REPRISE_FN unsigned char* Values(int stage) const {
    return base + kLayout.values + static_cast<uint32_t>(stage) * kTile;
  }
  REPRISE_FN ResolvedWorkItem* items() const {
    return reinterpret_cast<ResolvedWorkItem*>(base + kLayout.items);
  }
  REPRISE_FN uint32_t* flag() const { return reinterpret_cast<uint32_t*>(base + kLayout.flag); }
  // `index`: of kBarriers, plus the place in the ring.
  REPRISE_FN uint64_t* Barrier(int index) const {
    return reinterpret_cast<uint64_t*>(base + kLayout.barriers) + index;
  }

  unsigned char* base;
};

REPRISE_FN uint32_t GroupTiles(const ResolvedWorkItem& item) {
  return (item.kv_end - item.tile_origin + kGroupTile - 1) / kGroupTile;
}

template <typename T, int kHeadSize>
class GroupProducer {
 public:
  REPRISE_FN GroupProducer(const AttentionArgs& a, const GroupShared<kHeadSize>& shared)
      : a_(a),
        shared_(shared),
        block_size_(static_cast<uint32_t>(a.kv.block_size)),
        part_((Warp() - kGroupComputeWarps) % 2 == 0 ? kKeys : kValues),
        lane_(static_cast<uint32_t>(Lane())),
        first_row_(static_cast<uint32_t>((Warp() - kGroupComputeWarps) / 2) * kRows),
        total_(*a.num_items * static_cast<uint32_t>(a.kv.num_kv_heads)) {}

  REPRISE_FN void Run() {
    uint32_t count = 0;
    ResolvedWorkItem item = Resolve(count);
    uint32_t page = Lookup(item, 0);
    while (item.q_count != 0) {
      Announce(item, count++);
      ResolvedWorkItem next;
      const uint32_t tiles = GroupTiles(item);
      for (uint32_t tile = 0; tile < tiles; ++tile) {
        const uint32_t here = page;
        if (tile + 1 < tiles) page = Lookup(item, tile + 1);
        Request(item, tile, here);
        if (tile == 0) next = Resolve(count);
      }
      item = next;
      page = Lookup(item, 0);
    }
    Announce(item, count);
  }

 private:
  static constexpr GroupBarriers kBarriers = GroupShared<kHeadSize>::kBarriers;
  static constexpr int kStages = GroupShared<kHeadSize>::kStages;
  // A warp's part of a tile.
  static constexpr uint32_t kRows = 2 * kGroupTile / kGroupRequestWarps;
  static constexpr uint32_t kChunks = kRows / kGroupChunk;
  using Stages = RingPlace<kStages>;
  using Items = RingPlace<kGroupItems>;

  // The block's item number `count`; one of no query tokens behind the last. Every other round of
  // the grid runs backwards: the plan lists a prompt's items by their length, and no block should
  // have the longer one every time.
  REPRISE_FN ResolvedWorkItem Resolve(uint32_t count) const {
    const auto grid = static_cast<uint32_t>(GridX()), block = static_cast<uint32_t>(BlockX());
    const uint32_t w = count * grid + (count % 2 == 0 ? block : grid - 1 - block);
    return w < total_ ? ResolveItem<kGroupTile>(a_, w) : ResolvedWorkItem{};
  }

  // The block of the cache that holds the lane's chunk of a tile.
  REPRISE_FN uint32_t Lookup(const ResolvedWorkItem& item, uint32_t tile) const {
    const uint32_t token = item.tile_origin + tile * kGroupTile + ChunkRow();
    if (item.q_count == 0 || token >= item.kv_end || token + kGroupChunk <= item.kv_begin) return 0;
    uint32_t in_block;
    return a_.block_table[static_cast<uint64_t>(item.row) * a_.max_blocks_per_row +
                          block_size_.Quotient(token, &in_block)];
  }

  // The first row of the lane's chunk.
  REPRISE_FN uint32_t ChunkRow() const { return first_row_ + lane_ % kChunks * kGroupChunk; }

  // Hands the item to those who compute. One without query tokens says that there are no more.
  REPRISE_FN void Announce(const ResolvedWorkItem& item, uint32_t count) {
    const int slot = Items::At(count);
    if (first_row_ == 0 && part_ == kKeys && lane_ == 0) {
      if (Items::Turn(count) > 0)
        BarrierWait(shared_.Barrier(kBarriers.item_empty + slot), Items::Turn(count) - 1);
      shared_.items()[slot] = item;
      BarrierArrive(shared_.Barrier(kBarriers.item_full + slot));
    }
    SyncWarp();
  }

  // Asks for the warp's part of a tile; `page` holds the lane's chunk.
  REPRISE_FN void Request(const ResolvedWorkItem& item, uint32_t tile, uint32_t page) {
    const int stage = Stages::At(tiles_);
    const uint32_t origin = item.tile_origin + tile * kGroupTile;
    const uint32_t chunk = ChunkRow(), panel = lane_ / kChunks;
    // Rows that exist: of the tile, of the warp's part, and of the lane's chunk.
    const Rows all{item.kv_begin > origin ? item.kv_begin - origin : 0, item.kv_end - origin};
    const Rows mine = all.Within(first_row_, kRows), piece = all.Within(chunk, kGroupChunk);
    uint32_t in_block;
    block_size_.Quotient(origin + chunk, &in_block);
    const T* const from =
        static_cast<const T*>(a_.kv_cache) +
        a_.kv.HeadOffset(page, part_, static_cast<int>(item.kv_head)) +
        a_.kv.RowOffset(in_block + piece.begin - chunk, sizeof(T)) +
        static_cast<int64_t>(panel) * a_.kv.block_size * (kKvPanelBytes / int{sizeof(T)});
    const uint32_t at = panel * GroupPanelBytes() + piece.begin * kKvPanelBytes;
    const uint32_t bytes = panel < kHeadSize / 64 ? piece.count() * kKvPanelBytes : 0;
    const bool keys = part_ == kKeys;
    Copy(keys ? shared_.Keys(stage) : shared_.Values(stage), from, at, bytes, mine,
         (keys ? kBarriers.keys_full : kBarriers.values_full) + stage,
         (keys ? kBarriers.keys_empty : kBarriers.values_empty) + stage);
    ++tiles_;
  }

  // Of a tile.
  struct Rows {
    uint32_t begin, end;
    REPRISE_FN uint32_t count() const { return end - begin; }
    // Those of [first, first + n); none: `first`, and none.
    REPRISE_FN Rows Within(uint32_t first, uint32_t n) const {
      const uint32_t b = begin > first ? begin : first, e = end < first + n ? end : first + n;
      return b < e ? Rows{b, e} : Rows{first, first};
    }
  };

  // at, bytes: what the lane asks for.
  REPRISE_FN void Copy(unsigned char* tile, const T* from, uint32_t at, uint32_t bytes,
                       const Rows& mine, int full, int empty) {
    if (Stages::Turn(tiles_) > 0) BarrierWait(shared_.Barrier(empty), Stages::Turn(tiles_) - 1);
    if (mine.count() != kRows) ClearOthers(tile, mine);
    SyncWarp();
    if (lane_ == 0)
      BarrierArriveExpectBytes(shared_.Barrier(full),
                               mine.count() * kHeadSize * static_cast<uint32_t>(sizeof(T)));
    SyncWarp();
    if (bytes != 0) CopyBulk(tile + at, from, bytes, shared_.Barrier(full));
  }

  // Zeros in those of the warp's rows that do not exist: a weight of zero does not undo a NaN.
  REPRISE_FN void ClearOthers(unsigned char* tile, const Rows& mine) const {
    constexpr uint32_t kChunksOfRow = kKvPanelBytes / kKvChunkBytes;
    for (uint32_t i = lane_; i < kRows * kChunksOfRow; i += kWarpSize) {
      const uint32_t row = first_row_ + i / kChunksOfRow;
      if (row >= mine.begin && row < mine.end) continue;
      for (uint32_t panel = 0; panel < kHeadSize / 64; ++panel)
        *reinterpret_cast<Vec<uint32_t, 4>*>(tile + panel * GroupPanelBytes() +
                                             row * kKvPanelBytes +
                                             i % kChunksOfRow * kKvChunkBytes) = {};
    }
    FenceBulkCopies();
  }

  const AttentionArgs& a_;
  const GroupShared<kHeadSize>& shared_;
  const FastDivide block_size_;
  const KvPart part_;
  const uint32_t lane_, first_row_, total_;
  uint32_t tiles_ = 0;  // requested so far
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_PRODUCER_H_
