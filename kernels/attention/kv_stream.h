// SPDX-License-Identifier: Apache-2.0
// What the matrix-unit attention kernels read: work items, and the stream of their KV chunks from
// the paged cache into a ring in shared memory. Copies run ahead across the borders of items, and
// page indices are looked up one batch of chunks ahead of the copies: a lookup on the issue path
// would cost a quarter of the bandwidth. No arithmetic on K or V here.
#ifndef REPRISE_KERNELS_ATTENTION_KV_STREAM_H_
#define REPRISE_KERNELS_ATTENTION_KV_STREAM_H_

#include "kernels/attention/attention_geometry.h"
#include "kernels/device/matrix.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Work item w: an item of the plan for one KV head. Its first tile begins at a multiple of
// kTileMultiple: where tiles begin decides how sums round, and that must not follow from where a
// window lets a chunk of a prompt begin.
template <uint32_t kTileMultiple>
REPRISE_FN ResolvedWorkItem ResolveItem(const AttentionArgs& a, uint32_t w) {
  const uint32_t heads = static_cast<uint32_t>(a.kv.num_kv_heads);
  const uint32_t index = w / heads;
  const AttentionWorkItem planned = a.items[index];
  ResolvedWorkItem item;
  item.kv_begin = planned.kv_begin;
  item.kv_end = planned.kv_end;
  item.tile_origin = planned.kv_begin / kTileMultiple * kTileMultiple;
  item.kv_head = w - index * heads;
  item.row = planned.row;
  item.entry = planned.entry;
  item.split = planned.split;
  item.num_splits = planned.num_splits;
  item.first_q = a.query_start[planned.entry] + planned.q_begin;
  item.position = a.context_before[planned.entry] + planned.q_begin;
  item.q_count = planned.q_count;
  return item;
}

// Resolves the block's next work items, w = first + i * grid < total, into shared memory: one lane
// each, so that all of them cost one chain of dependent loads. Returns how many. Contains barriers.
template <uint32_t kTileMultiple>
REPRISE_FN int ResolveItems(const AttentionArgs& a, uint32_t first, uint32_t total,
                            ResolvedWorkItem* items) {
  const uint32_t grid = static_cast<uint32_t>(GridX()), thread = static_cast<uint32_t>(ThreadX());
  const uint32_t left = (total - first + grid - 1) / grid;
  const uint32_t n = left < kMatrixItemsAtOnce ? left : kMatrixItemsAtOnce;
  SyncBlock();  // the items before may still be read
  if (thread < n) items[thread] = ResolveItem<kTileMultiple>(a, first + thread * grid);
  SyncBlock();
  return static_cast<int>(n);
}

// Division by a number that is fixed for the kernel: multiply high, then at most one correction.
// Exact for all 32-bit values.
class FastDivide {
 public:
  REPRISE_FN explicit FastDivide(uint32_t divisor)
      : divisor_(divisor), inverse_(0xffffffffu / divisor) {}
  REPRISE_FN uint32_t Quotient(uint32_t x, uint32_t* remainder) const {
    uint32_t q = MultiplyHigh(x, inverse_), r = x - q * divisor_;
    if (r >= divisor_) {
      ++q;
      r -= divisor_;
    }
    *remainder = r;
    return q;
  }

 private:
  uint32_t divisor_, inverse_;
};

// Chunk c of an item is its KV tokens [tile_origin + 16 c, + 16); warp w owns chunks w, w + 4, ...
// kTogether: the block's warps consume in step, a stage holds one chunk of each warp (a tile of 64
// tokens), and every warp has as many chunks as the tile count. Otherwise each warp has a ring of
// its own, waits for nobody and skips chunks past the end. Tokens outside [kv_begin, kv_end) and
// columns at or beyond head_dim read as zeros, and memory there is not touched.
template <int kHeadSize, int kStages, bool kTogether, int kElementBytes = 2>
class KvStream {
 public:
  static constexpr int kTokens =
      kTogether ? kMatrixChunk * kMatrixWarps : kMatrixChunk;  // of a stage

  // ring: this warp's ring, or the block's when kTogether. The items stay unchanged while the
  // stream is in use.
  REPRISE_FN KvStream(const AttentionArgs& a, const FastDivide& block_size,
                      const ResolvedWorkItem* items, int num_items, uint32_t ring)
      : a_(a), block_size_(block_size), items_(items), num_items_(num_items), ring_(ring) {
    Lookup();
    REPRISE_UNROLL
    for (int i = 0; i < kStages - 1; ++i) {
      if (i % 2 == 0) {
        IssueKeys();
      } else {
        IssueValues();
      }
    }
  }

  // How many stages of K (and as many of V) an item takes in this stream.
  REPRISE_FN static int NumChunks(const ResolvedWorkItem& item) {
    const int tokens = static_cast<int>(item.kv_end - item.tile_origin);
    const int skipped = kTogether ? 0 : Warp() * kMatrixChunk;
    constexpr int kStep = kMatrixChunk * kMatrixWarps;
    return tokens > skipped ? (tokens - skipped + kStep - 1) / kStep : 0;
  }

  // Shared address of the next stage: K, then V of every chunk in turn, item after item. Valid
  // until the next call. A barrier of the warp, or of the block when kTogether.
  REPRISE_FN uint32_t NextKeys() { return Next<0>(); }
  REPRISE_FN uint32_t NextValues() { return Next<1>(); }

 private:
  static constexpr int kRowBytes = kHeadSize * kElementBytes;
  static constexpr int kBatch = kWarpSize / kMatrixChunk;  // chunks that are looked up together
  static constexpr uint32_t kStageBytes = kTokens * kRowBytes;

  REPRISE_FN static uint32_t After(uint32_t stage) {
    return stage == (kStages - 1) * kStageBytes ? 0 : stage + kStageBytes;
  }

  template <int kHalf>
  REPRISE_FN uint32_t Next() {
    CopyAsyncWait<kStages - 2>();
    if constexpr (kTogether) {
      SyncBlock();
    } else {
      SyncWarp();
    }
    // Everyone is past the stage read last; refill it. It is kStages - 1 stages ahead.
    if constexpr ((kHalf + kStages - 1) % 2 == 0) {
      IssueKeys();
    } else {
      IssueValues();
    }
    const uint32_t stage = ring_ + read_;
    read_ = After(read_);
    return stage;
  }

  REPRISE_FN void IssueKeys() {
    if (batch_left_ == 0) Advance();
    if (batch_left_ != 0) CopyChunk(0);
    CopyAsyncCommit();
    write_ = After(write_);
  }
  REPRISE_FN void IssueValues() {
    if (batch_left_ != 0) {
      CopyChunk(static_cast<uint64_t>(a_.kv.HeadOffset(0, kValues, 0)) * kElementBytes);
      --batch_left_;
      batch_at_ += kMatrixChunk;
    }
    CopyAsyncCommit();
    write_ = After(write_);
  }

  // Finds the warp's next batch, kBatch chunks with one token per lane, and loads its page indices.
  // Nothing waits for them yet.
  REPRISE_FN void Lookup() {
    int chunks = 0;
    for (; item_ < num_items_; ++item_, chunk_ = 0) {
      chunks = NumChunks(items_[item_]);
      if (chunk_ < chunks) break;
    }
    next_left_ = 0;
    if (item_ >= num_items_) return;
    const ResolvedWorkItem& item = items_[item_];
    next_left_ = chunks - chunk_ < kBatch ? chunks - chunk_ : kBatch;
    const int chunk = Warp() + kMatrixWarps * (chunk_ + Lane() / kMatrixChunk);
    const uint32_t token =
        item.tile_origin + static_cast<uint32_t>(chunk * kMatrixChunk + Lane() % kMatrixChunk);
    next_row_ = kNoRow;
    if (token >= item.kv_begin && token < item.kv_end) {
      uint32_t offset;
      const uint32_t index = block_size_.Quotient(token, &offset);
      next_block_ = a_.block_table[static_cast<uint64_t>(item.row) * a_.max_blocks_per_row + index];
      next_row_ = offset;
      next_head_ = item.kv_head;
    }
    chunk_ += kBatch;
  }

  // Makes the batch that was looked up the current one, and looks up the one after it.
  REPRISE_FN void Advance() {
    batch_left_ = next_left_;
    if (batch_left_ == 0) return;
    batch_at_ = 0;
    address_ = 0;
    if (next_row_ != kNoRow) {
      const int64_t first = a_.kv.HeadOffset(next_block_, kKeys, static_cast<int>(next_head_)) +
                            a_.kv.RowOffset(next_row_, kElementBytes);
      address_ =
          (reinterpret_cast<uint64_t>(a_.kv_cache) + static_cast<uint64_t>(first) * kElementBytes) |
          (a_.kv.swizzled ? next_row_ & 7u : 0u);
    }
    Lookup();
  }

  // The warp copies one chunk's rows; `offset` in bytes leads from K to V.
  REPRISE_FN void CopyChunk(uint64_t offset) {
    constexpr int kPacks = kRowBytes / 16;  // of 16 bytes in a row
    constexpr int kRowsAtOnce = kWarpSize / kPacks;
    const int pack = Lane() % kPacks;
    const bool in_head = pack * (16 / kElementBytes) < a_.kv.head_dim;
    // Where the pack's panel lies in a row; plain rows are panels without a gap.
    const uint32_t panel = static_cast<uint32_t>(pack / 8) * kKvPanelBytes *
                           static_cast<uint32_t>(a_.kv.swizzled ? a_.kv.block_size : 1);
    const uint32_t target =
        ring_ + write_ + (kTogether ? static_cast<uint32_t>(Warp() * kMatrixChunk * kRowBytes) : 0);
    REPRISE_UNROLL_BY(8)
    for (int i = 0; i < kMatrixChunk / kRowsAtOnce; ++i) {
      const int row = Lane() / kPacks + i * kRowsAtOnce;
      const uint64_t address = Shuffle(address_, batch_at_ + row);
      const bool valid = address != 0 && in_head;
      const uint32_t flip = static_cast<uint32_t>(address) & 7u;
      const uint32_t in_row = panel + (static_cast<uint32_t>(pack % 8) ^ flip) * kKvChunkBytes;
      const uint64_t from =
          valid ? address - flip + offset + in_row : reinterpret_cast<uint64_t>(a_.kv_cache);
      CopyAsync16OrZero(target + SwizzledOffset<kPacks>(row, pack),
                        reinterpret_cast<const void*>(from), valid);
    }
  }

  static constexpr uint32_t kNoRow = 0xffffffffu;

  const AttentionArgs& a_;
  const FastDivide& block_size_;
  const ResolvedWorkItem* items_;
  int num_items_;
  uint32_t ring_;
  uint32_t read_ = 0, write_ = 0;  // byte offsets of stages

  // The batch being copied: the lane's K row (0: none; rows are at multiples of 16, the lowest bits
  // are by how much its chunks are swizzled), chunks left, first lane of the current one.
  uint64_t address_ = 0;
  int batch_left_ = 0, batch_at_ = 0;

  // The batch after it.
  int item_ = 0, chunk_ = 0;
  int next_left_ = 0;
  uint32_t next_block_ = 0, next_row_ = kNoRow, next_head_ = 0;  // next_row_: in the block
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_KV_STREAM_H_
