// SPDX-License-Identifier: Apache-2.0
// The warp of a bulk decode block that requests KV: it walks the block's share, and for every chunk
// of 16 tokens asks for K and V as soon as a place in the ring of the warp that will read it is
// free. Page indices, and what the next item needs, are loaded ahead, so that no request waits for
// a lookup. Part of decode_bulk_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_DECODE_BULK_PRODUCER_H_
#define REPRISE_KERNELS_ATTENTION_DECODE_BULK_PRODUCER_H_

#include "kernels/attention/attention_args.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/kv_stream.h"
#include "kernels/attention/ring_place.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// A block's shared memory. K: elements of KV.
template <typename K, int kHeadSize, int kNumStages = BulkStages(kHeadSize, sizeof(K))>
struct BulkShared {
  using Element = K;
  static constexpr int kHead = kHeadSize;
  static constexpr int kStages = kNumStages;
  static constexpr BulkSharedLayout kLayout = BulkLayout(kHeadSize, kStages, sizeof(K));
  static constexpr BulkBarriers kBarriers = BulkBarriersFor(kStages);
  static constexpr uint32_t kTile = BulkTileBytes(kHeadSize, sizeof(K));
  static constexpr int kPanels = kHeadSize * static_cast<int>(sizeof(K)) / kKvPanelBytes;

  REPRISE_FN unsigned char* Keys(int chunk) const {
    return base + kLayout.ring + static_cast<uint32_t>(chunk) * 2 * kTile;
  }
  REPRISE_FN unsigned char* Values(int chunk) const { return Keys(chunk) + kTile; }
  REPRISE_FN unsigned char* Query(uint32_t slot) const {
    return base + kLayout.query + slot * kBulkMaxGroup * BulkRowBytes(kHeadSize);
  }
  REPRISE_FN float* merge() const { return reinterpret_cast<float*>(base + kLayout.merge); }
  REPRISE_FN float* max() const { return reinterpret_cast<float*>(base + kLayout.max); }
  REPRISE_FN float* sum() const { return reinterpret_cast<float*>(base + kLayout.sum); }
  REPRISE_FN BulkItem* items() const { return reinterpret_cast<BulkItem*>(base + kLayout.items); }
  // Chunks that went through each warp's ring before a tile.
  REPRISE_FN uint32_t* Places(int slot) const {
    return reinterpret_cast<uint32_t*>(base + kLayout.places) + slot * kBulkWarps;
  }
  REPRISE_FN uint32_t* last() const { return reinterpret_cast<uint32_t*>(base + kLayout.last); }
  // `index`: of kBarriers, plus the place in the ring.
  REPRISE_FN uint64_t* Barrier(int index) const {
    return reinterpret_cast<uint64_t*>(base + kLayout.barriers) + index;
  }

  unsigned char* base;
};

// The first token of an item, a multiple of kLeafMultiple, and how many chunks it has.
REPRISE_FN uint32_t ItemOrigin(const BulkItem& item) {
  return item.row.origin + item.leaf * item.row.leaf_tokens;
}
REPRISE_FN uint32_t ItemEnd(const BulkItem& item) {
  const uint32_t end = ItemOrigin(item) + item.num_leaves * item.row.leaf_tokens;
  return end < item.row.kv_end ? end : item.row.kv_end;
}
REPRISE_FN uint32_t ItemChunks(const BulkItem& item) {
  return (ItemEnd(item) - ItemOrigin(item) + kBulkChunk - 1) / kBulkChunk;
}

// A block's share, item after item. Every lane walks it alike.
class ShareWalk {
 public:
  REPRISE_FN ShareWalk(const AttentionArgs& a, const DecodeShare& share)
      : a_(a), at_(share.begin), end_(share.end), row_(share.row) {}
  // The item that comes next; one of no leaves at the end. Loads what may come behind it: nothing
  // waits for that before the next call.
  REPRISE_FN BulkItem Next() {
    // Rows of several query tokens are not in the deal.
    while (row_.num_leaves == 0 && !(at_ == end_)) NextEntry();
    if (at_ == end_) return BulkItem{0, 0, 0, 0, row_};
    const bool is_last = at_.entry == end_.entry && at_.kv_head == end_.kv_head;
    const BulkItem item{(is_last ? end_.leaf : row_.num_own_leaves()) - at_.leaf,
                        row_.first_leaf + at_.leaf, at_.kv_head, at_.entry, row_};
    if (is_last) {
      at_ = end_;
    } else {
      at_.leaf = 0;
      if (++at_.kv_head == static_cast<uint32_t>(a_.kv.num_kv_heads)) NextEntry();
    }
    return item;
  }

 private:
  REPRISE_FN void NextEntry() {
    at_.kv_head = 0;
    ++at_.entry;
    if (!(at_ == end_)) row_ = a_.decode_rows[at_.entry];
  }

  const AttentionArgs& a_;
  DecodePlace at_, end_;
  DecodeRow row_;
};

// What the warps of a share go by: a kernel of its own, which is ordered with the one ahead of it,
// and does one share. Another order is that of the step kernel (kernels/step_kernel).
struct BulkKernelOrder {
  // Whether another share follows in the same shared memory, so that the word that a share has
  // ended goes through all barriers as an item does.
  static constexpr bool kContinues = false;
  // Those who compute, first thing; the others, before they touch what this step has brought.
  REPRISE_FN void Begin() const { BeginInOrder(); }
  REPRISE_FN void Wait() const { WaitForPrevious(); }
  // By each warp that computes, once it has stored what it has of a row's and KV head's results.
  REPRISE_FN void Finish() const {}
};

// Where the requesting warp is after the shares so far.
struct BulkProducerPlace {
  uint32_t items = 0;
  uint32_t chunks = 0;  // of the ring of warp lane % kBulkWarps
};

// kTiles: as BulkConsumer's.
template <typename T, bool kTiles, typename Shared, typename Order>
class BulkProducer {
 public:
  REPRISE_FN BulkProducer(const AttentionArgs& a, const Shared& shared, const DecodeShare& share,
                          const Order& order, const BulkProducerPlace& place)
      : a_(a),
        shared_(shared),
        share_(share),
        order_(order),
        block_size_(static_cast<uint32_t>(a.kv.block_size)),
        lane_(static_cast<uint32_t>(Lane())),
        first_item_(place.items),
        chunks_before_(place.chunks) {}

  // Where it is afterwards.
  REPRISE_FN BulkProducerPlace Run() {
    ShareWalk walk(a_, share_);
    BulkItem item = walk.Next();
    uint32_t page = Lookup(item, 0), count = first_item_;
    while (item.num_leaves != 0) {
      const BulkItem next = walk.Next();
      const uint32_t next_page = Lookup(next, 0);
      const uint32_t chunks = ItemChunks(item);
      for (uint32_t first = 0; first < chunks; first += kWarpSize) {
        const uint32_t here = page;
        if (first + kWarpSize < chunks) page = Lookup(item, first + kWarpSize);
        const ChunkRequest request = RequestOf(item, first, here);
        uint32_t lanes = 0;
        if (first == 0) {  // the first requests go ahead of the item
          for (const uint32_t ahead = RequestsAhead(item, count); lanes < ahead;
               lanes += kBulkWarps)
            Request(request, lanes, first, chunks);
          if (count == first_item_) order_.Wait();
          Announce(item, count++);
        }
        for (; lanes < kWarpSize; lanes += kBulkWarps) Request(request, lanes, first, chunks);
      }
      chunks_before_ += (chunks + kBulkWarps - 1 - lane_ % kBulkWarps) / kBulkWarps;
      item = next;
      page = next_page;
    }
    Announce(item, count);
    return {count + 1, chunks_before_};
  }

 private:
  using K = typename Shared::Element;
  static constexpr int kHeadSize = Shared::kHead;
  static constexpr BulkBarriers kBarriers = Shared::kBarriers;
  static constexpr int kStages = Shared::kStages;
  using Stages = RingPlace<kStages>;
  using Items = RingPlace<kBulkItems>;
  using Queries = RingPlace<kBulkQueries>;

  // How many chunks of an item are asked for before those who compute hear of it, a multiple of
  // kBulkWarps. Of a block's first item all that the rings hold, but not the chunk of the row's
  // newest token, which the kernel before this one may be writing.
  REPRISE_FN uint32_t RequestsAhead(const BulkItem& item, uint32_t count) const {
    if (count != first_item_) return kBulkWarps;
    const uint32_t old = ItemChunks(item) - (ItemEnd(item) == item.row.kv_end ? 1 : 0);
    constexpr uint32_t kHeld = kBulkWarps * kStages < kWarpSize ? kBulkWarps * kStages : kWarpSize;
    return old < kHeld ? old / kBulkWarps * kBulkWarps : kHeld;
  }

  // The block of the cache that holds the lane's chunk, of kWarpSize from `first` on.
  REPRISE_FN uint32_t Lookup(const BulkItem& item, uint32_t first) const {
    const uint32_t token = ItemOrigin(item) + (first + lane_) * kBulkChunk;
    if (item.num_leaves == 0 || token >= ItemEnd(item)) return 0;
    uint32_t in_block;
    return a_.block_table[static_cast<uint64_t>(item.row.row) * a_.max_blocks_per_row +
                          block_size_.Quotient(token, &in_block)];
  }

  // Hands the item to those who compute, and asks for its queries; those of a tile are loaded by
  // whom they are for. An item without leaves says that there are no more.
  REPRISE_FN void Announce(const BulkItem& item, uint32_t count) {
    const int slot = Items::At(count), query = Queries::At(count);
    const bool is_tile = kTiles && item.is_tile();
    if (lane_ == 0 && Items::Turn(count) > 0) {
      BarrierWait(shared_.Barrier(kBarriers.item_empty + slot), Items::Turn(count) - 1);
      // Over by now. Of whole rows nobody else waits for it, and every phase should have a waiter.
      BarrierWait(shared_.Barrier(kBarriers.arrived + slot), Items::Turn(count) - 1);
    }
    if constexpr (kTiles) {
      SyncWarp();
      if (is_tile && lane_ < kBulkWarps) shared_.Places(slot)[lane_] = chunks_before_;
      SyncWarp();
    }
    if (lane_ == 0) {
      uint64_t* const full = shared_.Barrier(kBarriers.item_full + slot);
      shared_.items()[slot] = item;
      if ((Order::kContinues || item.num_leaves != 0) && Queries::Turn(count) > 0)
        BarrierWait(shared_.Barrier(kBarriers.query_empty + query), Queries::Turn(count) - 1);
      if (item.num_leaves == 0 || is_tile) {
        BarrierArrive(full);
      } else {
        const int group = a_.num_heads / a_.kv.num_kv_heads;
        const uint32_t bytes = static_cast<uint32_t>(group) * BulkRowBytes(kHeadSize);
        const int64_t head = static_cast<int64_t>(item.row.query) * a_.num_heads +
                             static_cast<int>(item.kv_head) * group;
        BarrierArriveExpectBytes(full, bytes);
        CopyBulk(shared_.Query(static_cast<uint32_t>(query)),
                 static_cast<const T*>(a_.q) + head * kHeadSize, bytes, full);
      }
    }
    SyncWarp();
  }

  // What a lane asks for: K and V of a chunk, of the tokens alone that the row sees.
  struct ChunkRequest {
    const K* keys;   // the first row of the first panel
    uint32_t rows;   // of the chunk's
    uint32_t first;  // of them
    int stage;
    uint32_t turn;
    bool again;  // other tiles may read it, too
  };
  // Of the lane's chunk, of kWarpSize from `first` on, whose block is `page`.
  REPRISE_FN ChunkRequest RequestOf(const BulkItem& item, uint32_t first, uint32_t page) const {
    const uint32_t chunk = first + lane_, origin = ItemOrigin(item) + chunk * kBulkChunk;
    const uint32_t end = ItemEnd(item), count = chunks_before_ + chunk / kBulkWarps;
    ChunkRequest r;
    // A window may begin behind a leaf's first chunks.
    const uint32_t rows = end - origin < kBulkChunk ? end - origin : kBulkChunk;
    const uint32_t before = item.row.kv_begin > origin ? item.row.kv_begin - origin : 0;
    r.first = before < rows ? before : rows;
    r.rows = rows - r.first;
    uint32_t in_block;
    block_size_.Quotient(origin, &in_block);
    r.keys = static_cast<const K*>(a_.kv_cache) +
             a_.kv.HeadOffset(page, kKeys, static_cast<int>(item.kv_head)) +
             a_.kv.RowOffset(in_block + r.first, sizeof(K));
    r.stage = static_cast<int>(lane_ % kBulkWarps) * kStages + Stages::At(count);
    r.turn = Stages::Turn(count);
    r.again = kTiles && item.is_tile();
    return r;
  }

  // Asks for four chunks of the item, those of lanes [lanes, lanes + 4), one for each warp that
  // computes.
  REPRISE_FN void Request(const ChunkRequest& request, uint32_t lanes, uint32_t first,
                          uint32_t chunks) {
    if (first + lanes >= chunks) return;
    if (lane_ / kBulkWarps == lanes / kBulkWarps && first + lane_ < chunks) {
      if (request.turn > 0)
        BarrierWait(shared_.Barrier(kBarriers.empty + request.stage), request.turn - 1);
      Copy(request);
    }
    SyncWarp();
  }

  REPRISE_FN void Copy(const ChunkRequest& r) const {
    uint64_t* const full = shared_.Barrier(kBarriers.full + r.stage);
    if (r.rows == 0) return BarrierArrive(full);
    BarrierArriveExpectBytes(full, 2 * r.rows * (Shared::kTile / kBulkChunk));
    const K* const values = r.keys + a_.kv.HeadOffset(0, kValues, 0);
    const auto copy = [&](unsigned char* to, const K* from, uint32_t bytes) {
      if (kTiles && r.again) {
        CopyBulk(to, from, bytes, full);
      } else {
        CopyBulkOnce(to, from, bytes, full);
      }
    };
    if (r.rows == kBulkChunk && a_.kv.block_size == kBulkChunk) {
      copy(shared_.Keys(r.stage), r.keys, Shared::kTile);
      copy(shared_.Values(r.stage), values, Shared::kTile);
      return;
    }
    constexpr int kOfPanel = kKvPanelBytes / static_cast<int>(sizeof(K));
    for (int panel = 0; panel < Shared::kPanels; ++panel) {
      const int64_t offset = static_cast<int64_t>(panel) * a_.kv.block_size * kOfPanel;
      const uint32_t at = (static_cast<uint32_t>(panel) * kBulkChunk + r.first) * kKvPanelBytes;
      copy(shared_.Keys(r.stage) + at, r.keys + offset, r.rows * kKvPanelBytes);
      copy(shared_.Values(r.stage) + at, values + offset, r.rows * kKvPanelBytes);
    }
  }

  const AttentionArgs& a_;
  const Shared& shared_;
  const DecodeShare& share_;
  const Order& order_;
  const FastDivide block_size_;
  const uint32_t lane_;
  const uint32_t first_item_;
  uint32_t chunks_before_;  // of warp lane % kBulkWarps, in items before
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_DECODE_BULK_PRODUCER_H_
