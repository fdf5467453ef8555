// SPDX-License-Identifier: Apache-2.0
// Paged attention on tensor cores (mma.sync), thread style: the decode kernel (one query token, its
// group of heads as rows, warps share out the KV tokens) and the prefill kernel (64 query rows,
// warps share out the rows). Static grid: a block walks the step's pieces w = blockIdx.x, +
// gridDim.x, ...; no block waits for another, and a row's bits depend on its piece alone. Launch
// shapes: attention_shapes.cc. The reference for the same lists: portable_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_MMA_BODY_CUH_
#define REPRISE_KERNELS_ATTENTION_MMA_BODY_CUH_

#include "kernels/attention/mma_kv_stream.cuh"
#include "kernels/attention/mma_merge.cuh"
#include "kernels/attention/mma_softmax.cuh"

namespace reprise::kernels::on_cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// Query rows of a piece into shared memory, swizzled: row r is token r / group, head r % group;
// rows at or beyond `rows` and columns beyond head_dim are zeros. No barrier.
template <typename T, int kHeadSize, int kRows>
REPRISE_FN void LoadQueryRows(const AttentionArgs& a, const AttentionPiece& piece, int group,
                              int rows, unsigned char* shared) {
  constexpr int kChunks = kHeadSize / 8;
#pragma unroll 4
  for (int first = 0; first < kRows * kChunks; first += kMmaThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    if (kRows * kChunks % kMmaThreads != 0 && i >= kRows * kChunks) break;
    const int r = i / kChunks, chunk = i % kChunks;
    uint4 x{0, 0, 0, 0};
    if (r < rows && chunk * 8 < a.head_dim) {
      const int64_t token = piece.first_q + static_cast<uint32_t>(r / group);
      const int head = static_cast<int>(piece.kv_head) * group + r % group;
      x = *reinterpret_cast<const uint4*>(static_cast<const T*>(a.q) +
                                          (token * a.num_heads + head) * a.head_dim + chunk * 8);
    }
    *reinterpret_cast<uint4*>(shared + SwizzledOffset<kChunks>(r, chunk)) = x;
  }
}

template <typename T, int kHeadSize>
REPRISE_FN void AttentionDecodeMmaBody(const AttentionArgs& a, unsigned char* shared) {
  constexpr MmaSharedLayout kLayout = MmaDecodeLayout(kHeadSize);
  constexpr int kSlots = MmaDecodeSlots(kHeadSize);
  using Stream = KvStream<kHeadSize, kSlots, false>;
  using Softmax = WarpSoftmax<T, kHeadSize, kMmaChunk>;

  const uint32_t total = *a.num_items * static_cast<uint32_t>(a.num_kv_heads);
  if (blockIdx.x >= total) return;
  auto* pieces = reinterpret_cast<AttentionPiece*>(shared + kLayout.pieces);
  auto* stats = reinterpret_cast<float*>(shared + kLayout.stats);
  const WarpMergeShared merge{reinterpret_cast<float*>(shared + kLayout.merge), stats,
                              stats + kMmaWarps * kMmaDecodeRows,
                              reinterpret_cast<uint32_t*>(shared + kLayout.flag)};
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const uint32_t ring = SharedAddress(shared + kLayout.ring) +
                        static_cast<uint32_t>(warp * kSlots * kMmaChunk * kHeadSize * 2);
  const FastDivide block_size(static_cast<uint32_t>(a.block_size));
  const int group = a.num_heads / a.num_kv_heads;
  const float scale_log2 = a.scale * kLog2E;
  Softmax softmax;

  for (uint32_t first = blockIdx.x; first < total; first += kMmaWindow * gridDim.x) {
    const int num_pieces = ResolvePieces(a, first, total, pieces);
    Stream stream(a, block_size, pieces, num_pieces, ring);
    for (int p = 0; p < num_pieces; ++p) {
      const AttentionPiece& piece = pieces[p];
      LoadQueryRows<T, kHeadSize, kMmaDecodeRows>(a, piece, group, group, shared + kLayout.query);
      __syncthreads();
      softmax.Begin(SharedAddress(shared + kLayout.query));
      const int chunks = Stream::NumChunks(piece);
      const uint32_t end = min(piece.kv_end - 1, piece.position);
      uint32_t token = piece.kv_begin + static_cast<uint32_t>(warp * kMmaChunk);
      for (int c = 0; c < chunks; ++c, token += kMmaWarps * kMmaChunk) {
        typename Softmax::Scores s;
        softmax.Score(stream.NextKeys(), scale_log2, s);
        if (token + kMmaChunk - 1 > end) {
          const uint32_t last[2] = {end, end};
          Softmax::Mask(s, token, last);
        }
        softmax.Weigh(s);
        softmax.Accumulate(s, stream.NextValues());
      }
      FinishDecode<T, kHeadSize>(a, piece, group, softmax, merge);
    }
  }
}

// Writes the warp's rows of a prefill piece.
template <typename T, int kHeadSize, typename Softmax>
REPRISE_FN void StorePrefillRows(const AttentionArgs& a, const AttentionPiece& piece, int group,
                                 int rows, int row0, const Softmax& softmax) {
  REPRISE_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int r = row0 + FragmentRow() + 8 * h;
    if (r >= rows) continue;
    const int64_t token = piece.first_q + static_cast<uint32_t>(r / group);
    const int head = static_cast<int>(piece.kv_head) * group + r % group;
    T* out = static_cast<T*>(a.out) + (token * a.num_heads + head) * a.head_dim + FragmentColumn();
    const float inverse = 1.0f / softmax.sum(h);
    REPRISE_UNROLL
    for (int c = 0; c < kHeadSize / 8; ++c) {
      if (c * 8 >= a.head_dim) break;
      const float2 v = softmax.acc(c, h);
      *reinterpret_cast<uint32_t*>(out + c * 8) = Pack2<T>(v.x * inverse, v.y * inverse);
    }
  }
}

template <typename T, int kHeadSize>
REPRISE_FN void AttentionPrefillMmaBody(const AttentionArgs& a, unsigned char* shared) {
  constexpr MmaSharedLayout kLayout = MmaPrefillLayout(kHeadSize);
  using Stream = KvStream<kHeadSize, MmaPrefillSlots(kHeadSize), true>;
  constexpr int kTile = Stream::kTokens;
  using Softmax = WarpSoftmax<T, kHeadSize, kTile>;

  const uint32_t total = *a.num_items * static_cast<uint32_t>(a.num_kv_heads);
  if (blockIdx.x >= total) return;
  auto* pieces = reinterpret_cast<AttentionPiece*>(shared + kLayout.pieces);
  const FastDivide block_size(static_cast<uint32_t>(a.block_size));
  const int group = a.num_heads / a.num_kv_heads;
  const float scale_log2 = a.scale * kLog2E;
  const int row0 = (static_cast<int>(threadIdx.x) >> 5) * 16;
  Softmax softmax;

  for (uint32_t first = blockIdx.x; first < total; first += kMmaWindow * gridDim.x) {
    const int num_pieces = ResolvePieces(a, first, total, pieces);
    Stream stream(a, block_size, pieces, num_pieces, SharedAddress(shared + kLayout.ring));
    for (int p = 0; p < num_pieces; ++p) {
      const AttentionPiece& piece = pieces[p];
      const int rows = static_cast<int>(piece.q_count) * group;
      __syncthreads();  // the query rows before may still be read
      LoadQueryRows<T, kHeadSize, kPrefillRows>(a, piece, group, rows, shared + kLayout.query);
      __syncthreads();
      softmax.Begin(SharedAddress(shared + kLayout.query + row0 * kHeadSize * 2));
      const uint32_t first_row = static_cast<uint32_t>(row0 + FragmentRow());
      const uint32_t last[2] = {min(piece.kv_end - 1, piece.position + first_row / group),
                                min(piece.kv_end - 1, piece.position + (first_row + 8) / group)};
      const uint32_t seen_by_all = min(piece.kv_end - 1, piece.position);
      // Tiles at or beyond this token have nothing for the warp's rows.
      const uint32_t warp_end =
          row0 < rows ? piece.position + static_cast<uint32_t>(min(row0 + 15, rows - 1) / group) + 1
                      : 0;
      uint32_t token = piece.kv_begin;
      for (int c = Stream::NumChunks(piece); c > 0; --c, token += kTile) {
        typename Softmax::Scores s;
        // Masks alone give the same result; at head size 256 the branch would spill registers.
        const bool live = kHeadSize == 256 || token < warp_end;
        const uint32_t keys = stream.NextKeys();
        if (live) {
          softmax.Score(keys, scale_log2, s);
          if (token + kTile - 1 > seen_by_all) Softmax::Mask(s, token, last);
          softmax.Weigh(s);
        }
        const uint32_t values = stream.NextValues();
        if (live) softmax.Accumulate(s, values);
      }
      softmax.FinishSums();
      StorePrefillRows<T, kHeadSize>(a, piece, group, rows, row0, softmax);
    }
  }
}

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_ATTENTION_MMA_BODY_CUH_
