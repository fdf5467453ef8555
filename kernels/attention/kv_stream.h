// SPDX-License-Identifier: Apache-2.0
// What the tensor-core attention kernels read: pieces of work, and the stream of their KV chunks
// from the paged cache into a ring in shared memory. Copies run ahead across the borders of pieces,
// and page indices are looked up one batch ahead of the copies: a lookup on the issue path would
// cost a quarter of the bandwidth. No arithmetic on K or V here.
#ifndef REPRISE_KERNELS_ATTENTION_KV_STREAM_H_
#define REPRISE_KERNELS_ATTENTION_KV_STREAM_H_

#include "kernels/attention/attention_geometry.h"
#include "kernels/device/matrix.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Resolves the block's next pieces, w = first + i * grid < total, into shared memory: one lane
// each, so that a window costs one chain of dependent loads. Their first tile begins at a
// multiple of kTileMultiple: where tiles begin decides how sums round, and that must not follow
// from where a window lets a chunk of a prompt begin. Returns how many. Contains barriers.
template <uint32_t kTileMultiple>
REPRISE_FN int ResolvePieces(const AttentionArgs& a, uint32_t first, uint32_t total,
                             AttentionPiece* pieces) {
  const uint32_t grid = static_cast<uint32_t>(GridX()), thread = static_cast<uint32_t>(ThreadX());
  const uint32_t left = (total - first + grid - 1) / grid;
  const uint32_t n = left < kMatrixWindow ? left : kMatrixWindow;
  SyncBlock();  // the window before may still be read
  if (thread < n) {
    const uint32_t w = first + thread * grid;
    const uint32_t heads = static_cast<uint32_t>(a.kv.num_kv_heads);
    const uint32_t index = w / heads;
    const AttentionWorkItem item = a.items[index];
    AttentionPiece piece;
    piece.kv_begin = item.kv_begin;
    piece.kv_end = item.kv_end;
    piece.tile_origin = item.kv_begin / kTileMultiple * kTileMultiple;
    piece.kv_head = w - index * heads;
    piece.row = item.row;
    piece.entry = item.entry;
    piece.split = item.split;
    piece.num_splits = item.num_splits;
    piece.first_q = a.query_start[item.entry] + item.q_begin;
    piece.position = a.context_before[item.entry] + item.q_begin;
    piece.q_count = item.q_count;
    pieces[thread] = piece;
  }
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

// Chunk c of a piece is its KV tokens [tile_origin + 16 c, + 16); warp w owns chunks w, w + 4, ...
// kTogether: the block's warps consume in step, a slot holds one chunk of each warp (a tile of 64
// tokens), and every warp has as many chunks as the tile count. Otherwise each warp has a ring of
// its own, waits for nobody and skips chunks past the end. Tokens outside [kv_begin, kv_end) and
// columns at or beyond head_dim read as zeros, and memory there is not touched.
template <int kHeadSize, int kSlots, bool kTogether>
class KvStream {
 public:
  static constexpr int kTokens =
      kTogether ? kMatrixChunk * kMatrixWarps : kMatrixChunk;  // of a slot

  // ring: this warp's ring, or the block's when kTogether. The pieces stay unchanged while the
  // stream is in use.
  REPRISE_FN KvStream(const AttentionArgs& a, const FastDivide& block_size,
                      const AttentionPiece* pieces, int num_pieces, uint32_t ring)
      : a_(a), block_size_(block_size), pieces_(pieces), num_pieces_(num_pieces), ring_(ring) {
    Lookup();
    REPRISE_UNROLL
    for (int i = 0; i < kSlots - 1; ++i) {
      if (i % 2 == 0) {
        IssueKeys();
      } else {
        IssueValues();
      }
    }
  }

  // How many slots of K (and as many of V) a piece takes in this stream.
  REPRISE_FN static int NumChunks(const AttentionPiece& piece) {
    const int tokens = static_cast<int>(piece.kv_end - piece.tile_origin);
    const int skipped = kTogether ? 0 : Warp() * kMatrixChunk;
    constexpr int kStep = kMatrixChunk * kMatrixWarps;
    return tokens > skipped ? (tokens - skipped + kStep - 1) / kStep : 0;
  }

  // Shared address of the next slot: K, then V of every chunk in turn, piece after piece. Valid
  // until the next call. A barrier of the warp, or of the block when kTogether.
  REPRISE_FN uint32_t NextKeys() { return Next<0>(); }
  REPRISE_FN uint32_t NextValues() { return Next<1>(); }

 private:
  static constexpr uint32_t kElementBytes = 2;
  static constexpr int kRowBytes = kHeadSize * static_cast<int>(kElementBytes);
  static constexpr int kBatch = kWarpSize / kMatrixChunk;  // chunks that are looked up together
  static constexpr uint32_t kSlotBytes = kTokens * kRowBytes;

  REPRISE_FN static uint32_t After(uint32_t slot) {
    return slot == (kSlots - 1) * kSlotBytes ? 0 : slot + kSlotBytes;
  }

  template <int kHalf>
  REPRISE_FN uint32_t Next() {
    CopyAsyncWait<kSlots - 2>();
    if constexpr (kTogether) {
      SyncBlock();
    } else {
      SyncWarp();
    }
    // Everyone is past the slot read last; refill it. It is kSlots - 1 slots ahead.
    if constexpr ((kHalf + kSlots - 1) % 2 == 0) {
      IssueKeys();
    } else {
      IssueValues();
    }
    const uint32_t slot = ring_ + read_;
    read_ = After(read_);
    return slot;
  }

  REPRISE_FN void IssueKeys() {
    if (batch_left_ == 0) Advance();
    if (batch_left_ != 0) CopyChunk(0);
    CopyAsyncCommit();
    write_ = After(write_);
  }
  REPRISE_FN void IssueValues() {
    if (batch_left_ != 0) {
      CopyChunk(static_cast<uint64_t>(a_.kv.Offset(0, kValues, 0, 0, 0)) * kElementBytes);
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
    for (; piece_ < num_pieces_; ++piece_, chunk_ = 0) {
      chunks = NumChunks(pieces_[piece_]);
      if (chunk_ < chunks) break;
    }
    next_left_ = 0;
    if (piece_ >= num_pieces_) return;
    const AttentionPiece& piece = pieces_[piece_];
    next_left_ = chunks - chunk_ < kBatch ? chunks - chunk_ : kBatch;
    const int chunk = Warp() + kMatrixWarps * (chunk_ + Lane() / kMatrixChunk);
    const uint32_t token =
        piece.tile_origin + static_cast<uint32_t>(chunk * kMatrixChunk + Lane() % kMatrixChunk);
    next_row_ = kNoRow;
    if (token >= piece.kv_begin && token < piece.kv_end) {
      uint32_t offset;
      const uint32_t index = block_size_.Quotient(token, &offset);
      next_block_ =
          a_.block_table[static_cast<uint64_t>(piece.row) * a_.max_blocks_per_row + index];
      next_row_ = static_cast<uint32_t>(
          a_.kv.Row(0, kKeys, static_cast<int>(piece.kv_head), static_cast<int64_t>(offset)));
    }
    chunk_ += kBatch;
  }

  // Makes the batch that was looked up the current one, and looks up the one after it.
  REPRISE_FN void Advance() {
    batch_left_ = next_left_;
    if (batch_left_ == 0) return;
    batch_at_ = 0;
    const uint32_t block_rows = static_cast<uint32_t>(a_.kv.Row(1, kKeys, 0, 0));
    address_ = 0;
    if (next_row_ != kNoRow) {
      address_ = reinterpret_cast<uint64_t>(a_.kv_cache) +
                 (static_cast<uint64_t>(next_block_) * block_rows + next_row_) *
                     (static_cast<uint32_t>(a_.kv.head_dim) * kElementBytes);
    }
    Lookup();
  }

  // The warp copies one chunk's rows; `offset` in bytes leads from K to V.
  REPRISE_FN void CopyChunk(uint64_t offset) {
    constexpr int kPieces = kHeadSize / 8;  // of 16 bytes in a row
    constexpr int kRowsAtOnce = kWarpSize / kPieces;
    const int piece = Lane() % kPieces;
    const bool in_head = piece * 8 < a_.kv.head_dim;
    const uint32_t target =
        ring_ + write_ + (kTogether ? static_cast<uint32_t>(Warp() * kMatrixChunk * kRowBytes) : 0);
    REPRISE_UNROLL_BY(8)
    for (int i = 0; i < kMatrixChunk / kRowsAtOnce; ++i) {
      const int row = Lane() / kPieces + i * kRowsAtOnce;
      const uint64_t address = Shuffle(address_, batch_at_ + row);
      const bool valid = address != 0 && in_head;
      const uint64_t from =
          valid ? address + offset + piece * 16 : reinterpret_cast<uint64_t>(a_.kv_cache);
      CopyAsync16OrZero(target + SwizzledOffset<kPieces>(row, piece),
                        reinterpret_cast<const void*>(from), valid);
    }
  }

  static constexpr uint32_t kNoRow = 0xffffffffu;

  const AttentionArgs& a_;
  const FastDivide& block_size_;
  const AttentionPiece* pieces_;
  int num_pieces_;
  uint32_t ring_;
  uint32_t read_ = 0, write_ = 0;  // byte offsets of slots

  // The batch being copied: the lane's K row (0: none), chunks left, first lane of the current one.
  uint64_t address_ = 0;
  int batch_left_ = 0, batch_at_ = 0;

  // The batch after it.
  int piece_ = 0, chunk_ = 0;
  int next_left_ = 0;
  uint32_t next_block_ = 0, next_row_ = kNoRow;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_KV_STREAM_H_
