// SPDX-License-Identifier: Apache-2.0
// Linear on tensor cores: weights are the 16-row operand, tokens the 8-column one, so one token
// wastes little. Weights stream once through a ring of shared-memory stages.
//
// K order. The weight is a list of units (tile of 128 features, chunk of 64 k), tiles outermost.
// Segment i of G is the contiguous range [i * total / G, (i + 1) * total / G). A feature's sum is,
// for every segment that touches its tile and in segment order, the f32 accumulation of that
// segment's chunks in ascending k; segments are then added in order. That order depends on the
// weight's shape and G alone. `Split` gives every segment to one block and merges through memory
// (the last arriver adds); `Whole` walks all of a tile's segments in one block. Same sums, same
// bits, for any number of rows.
#ifndef REPRISE_KERNELS_LINEAR_MMA_BODY_CUH_
#define REPRISE_KERNELS_LINEAR_MMA_BODY_CUH_

#include "kernels/device/mma.cuh"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/mma_shapes.h"

namespace reprise::kernels::on_cuda {

// Units of a weight and who sums them.
struct SegmentMap {
  uint32_t chunks;    // k chunks of one tile
  uint64_t total;     // units
  uint32_t segments;  // G

  __device__ __forceinline__ explicit SegmentMap(const LinearArgs& a) {
    chunks = static_cast<uint32_t>((a.in_features + kMmaChunkK - 1) / kMmaChunkK);
    total =
        static_cast<uint64_t>((a.out_features + kMmaTileFeatures - 1) / kMmaTileFeatures) * chunks;
    segments = static_cast<uint32_t>(a.num_segments);
  }
  // First unit of a segment.
  __device__ __forceinline__ uint32_t Begin(uint32_t segment) const {
    return static_cast<uint32_t>(segment * total / segments);
  }
  // The segment that holds a unit.
  __device__ __forceinline__ uint32_t Of(uint32_t unit) const {
    return static_cast<uint32_t>(((unit + 1ull) * segments - 1) / total);
  }
};

// kTileRows: tokens of a tile. kStages: shared-memory stages. 8 warps: all along features where
// tokens are few, 4 x 2 where they are many, so that a fragment read from shared memory serves
// several products.
template <typename T, int kTileRows, int kStages>
struct MmaLinear {
  static constexpr int kRowWarps = kTileRows >= 64 ? 2 : 1;
  static constexpr int kFeatureWarps = 8 / kRowWarps;
  static constexpr int kThreads = kMmaLinearThreads;
  static constexpr int kWarpRows = kTileRows / kRowWarps;
  static constexpr int kRowFragments = kWarpRows / 8;  // D fragments of a warp along tokens, 8 each
  static constexpr int kFeatureFragments =
      kMmaTileFeatures / kFeatureWarps / 16;  // and along features, 16 each
  static constexpr int kFragments = kRowFragments * kFeatureFragments;
  static constexpr int kWeightBytes = kMmaTileFeatures * kMmaChunkK * 2;
  static constexpr int kStageBytes = kWeightBytes + kTileRows * kMmaChunkK * 2;
  static constexpr int kRowChunks = kMmaChunkK / 8;  // 16-byte chunks of a shared row
  static_assert(kStageBytes * kStages == MmaSharedBytes(kTileRows));

  using Accumulators = float[kFragments][4];

  const LinearArgs& a;
  const SegmentMap map;
  const int rows;       // live
  const int first_row;  // of this tile
  const uint32_t shared;

  __device__ __forceinline__ MmaLinear(const LinearArgs& args, int live_rows, int row_tile,
                                       unsigned char* shared_base)
      : a(args),
        map(args),
        rows(live_rows),
        first_row(row_tile * kTileRows),
        shared(SharedAddress(shared_base)) {}

  // Starts the copies of one unit into a stage; zero outside the weight and beyond the live rows.
  __device__ __forceinline__ void Load(uint32_t tile, uint32_t chunk, int stage) const {
    const uint32_t base = shared + stage * kStageBytes;
    const int k0 = static_cast<int>(chunk) * kMmaChunkK;
    const int n0 = static_cast<int>(tile) * kMmaTileFeatures;
    const T* weight = static_cast<const T*>(a.weight);
#pragma unroll
    for (int i = 0; i < kMmaTileFeatures * kRowChunks / kThreads; ++i) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x);
      const int r = at / kRowChunks, c = at % kRowChunks;
      const bool valid = n0 + r < a.out_features && k0 + c * 8 < a.in_features;
      const T* from =
          valid ? weight + static_cast<int64_t>(n0 + r) * a.in_features + k0 + c * 8 : weight;
      CopyAsync16OrZero(base + SwizzledOffset<kRowChunks>(r, c), from, valid);
    }
    const T* x = static_cast<const T*>(a.x);
    for (int at = static_cast<int>(threadIdx.x); at < kTileRows * kRowChunks; at += kThreads) {
      const int r = at / kRowChunks, c = at % kRowChunks;
      const bool valid = first_row + r < rows && k0 + c * 8 < a.in_features;
      const T* from =
          valid ? x + static_cast<int64_t>(first_row + r) * a.in_features + k0 + c * 8 : x;
      CopyAsync16OrZero(base + kWeightBytes + SwizzledOffset<kRowChunks>(r, c), from, valid);
    }
  }

  // First feature and first token of this warp inside the tile.
  static __device__ __forceinline__ int WarpFeature() {
    return ((static_cast<int>(threadIdx.x) >> 5) % kFeatureWarps) * 16 * kFeatureFragments;
  }
  static __device__ __forceinline__ int WarpRow() {
    return ((static_cast<int>(threadIdx.x) >> 5) / kFeatureWarps) * kWarpRows;
  }

  // acc += weights x tokens of one stage.
  __device__ __forceinline__ void Multiply(int stage, Accumulators& acc) const {
    const uint32_t weights = shared + stage * kStageBytes, tokens = weights + kWeightBytes;
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int feature = WarpFeature() + (lane & 15), token = WarpRow() + (lane & 7);
#pragma unroll
    for (int kk = 0; kk < kMmaChunkK / 16; ++kk) {
      uint32_t w[kFeatureFragments][4];
#pragma unroll
      for (int i = 0; i < kFeatureFragments; ++i)
        LoadMatrix4(w[i],
                    weights + SwizzledOffset<kRowChunks>(feature + i * 16, 2 * kk + (lane >> 4)));
      if constexpr (kRowFragments == 1) {
        uint32_t x[2];
        LoadMatrix2(x, tokens + SwizzledOffset<kRowChunks>(token, 2 * kk + ((lane >> 3) & 1)));
#pragma unroll
        for (int i = 0; i < kFeatureFragments; ++i) Mma16x8x16<T>(acc[i], w[i], x[0], x[1]);
      } else {
#pragma unroll
        for (int f = 0; f < kRowFragments; f += 2) {
          uint32_t x[4];
          LoadMatrix4(x, tokens + SwizzledOffset<kRowChunks>(token + (f + (lane >> 4)) * 8,
                                                             2 * kk + ((lane >> 3) & 1)));
#pragma unroll
          for (int i = 0; i < kFeatureFragments; ++i) {
            Mma16x8x16<T>(acc[i * kRowFragments + f], w[i], x[0], x[1]);
            Mma16x8x16<T>(acc[i * kRowFragments + f + 1], w[i], x[2], x[3]);
          }
        }
      }
    }
  }

  // Scale, bias, one rounding; live rows and features only.
  __device__ __forceinline__ void Store(uint32_t tile, const Accumulators& acc) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int n0 = static_cast<int>(tile) * kMmaTileFeatures + WarpFeature() + (lane >> 2);
    const int r0 = first_row + WarpRow() + (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < 2 * kFeatureFragments; ++i) {
      const int n = n0 + i * 8;
      if (n >= a.out_features) continue;
      const float bias = a.bias != nullptr ? ToFloat(static_cast<const T*>(a.bias)[n]) : 0.0f;
#pragma unroll
      for (int f = 0; f < kRowFragments; ++f) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int r = r0 + f * 8 + j;
          if (r >= rows) continue;
          const float y = fmaf(acc[(i / 2) * kRowFragments + f][(i % 2) * 2 + j], a.scale, bias);
          const int64_t at = static_cast<int64_t>(r) * a.out_features + n;
          if (a.out_is_f32 != 0) {
            static_cast<float*>(a.out)[at] = y;
          } else {
            static_cast<T*>(a.out)[at] = FromFloat<T>(y);
          }
        }
      }
    }
  }

  // Place of one value in the partials: [slot][value][thread], so that neighbouring threads touch
  // neighbouring words.
  __device__ __forceinline__ float* Partial(uint32_t slot) const {
    return a.partials + static_cast<int64_t>(slot) * kMmaTileFeatures * kTileRows + threadIdx.x;
  }

  // The block's piece of `tile`, units [begin, end) of segment `segment`, is summed: store it, or
  // leave it for the last arriver.
  __device__ __forceinline__ void FinishPiece(uint32_t segment, uint32_t tile, uint32_t begin,
                                              uint32_t end, Accumulators& acc) const {
    const uint32_t tile_begin = tile * map.chunks, tile_end = tile_begin + map.chunks;
    if (begin == tile_begin && end == tile_end) {
      Store(tile, acc);
      return;
    }
    // A segment holds at most two partial tiles: the one it starts in and the one it ends in.
    float* own = Partial(2 * segment + (begin == map.Begin(segment) ? 0 : 1));
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int j = 0; j < 4; ++j) own[(f * 4 + j) * kThreads] = acc[f][j];

    const uint32_t first = map.Of(tile_begin), last = map.Of(tile_end - 1);
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      is_last = atomicAdd(a.counters + tile, 1u) == last - first;
      if (is_last) a.counters[tile] = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (uint32_t s = first; s <= last; ++s) {
      const bool starts_here = s == first ? map.Begin(s) == tile_begin : true;
      const float* from = Partial(2 * s + (starts_here ? 0 : 1));
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float p = __ldcg(from + (f * 4 + j) * kThreads);
          acc[f][j] = s == first ? p : acc[f][j] + p;
        }
    }
    Store(tile, acc);
  }

  static __device__ __forceinline__ void Clear(Accumulators& acc) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[f][j] = 0.0f;
  }

  // Runs units [begin, end) through the stages; after each, done(tile, unit + 1, acc).
  template <typename Done>
  __device__ __forceinline__ void Stream(uint32_t begin, uint32_t end, Accumulators& acc,
                                         Done done) const {
    uint32_t load_unit = begin, load_tile = begin / map.chunks, load_chunk = begin % map.chunks;
    int load_stage = 0;
    auto load_next = [&] {
      if (load_unit < end) {
        Load(load_tile, load_chunk, load_stage);
        ++load_unit;
        if (++load_chunk == map.chunks) {
          load_chunk = 0;
          ++load_tile;
        }
        if (++load_stage == kStages) load_stage = 0;
      }
      CopyAsyncCommit();
    };
    for (int s = 0; s < kStages - 1; ++s) load_next();
    uint32_t tile = begin / map.chunks, tile_end = (tile + 1) * map.chunks;
    int stage = 0;
    for (uint32_t unit = begin; unit < end; ++unit) {
      CopyAsyncWait<kStages - 2>();
      __syncthreads();  // the stage is there for all, and the one before is free for all
      load_next();
      Multiply(stage, acc);
      if (++stage == kStages) stage = 0;
      done(tile, unit + 1, acc);
      if (unit + 1 == tile_end) {
        ++tile;
        tile_end += map.chunks;
      }
    }
    CopyAsyncWait<0>();
  }

  // One block, one segment.
  __device__ __forceinline__ void RunSplit(uint32_t segment) const {
    const uint32_t begin = map.Begin(segment), end = map.Begin(segment + 1);
    Accumulators acc;
    Clear(acc);
    uint32_t piece = begin;
    Stream(begin, end, acc, [&](uint32_t tile, uint32_t after, Accumulators& sum) {
      if (after != end && after != (tile + 1) * map.chunks) return;
      FinishPiece(segment, tile, piece, after, sum);
      piece = after;
      Clear(sum);
    });
  }

  // One block, all segments of one tile.
  __device__ __forceinline__ void RunWhole(uint32_t tile) const {
    const uint32_t begin = tile * map.chunks, end = begin + map.chunks;
    uint32_t segment = map.Of(begin), segment_end = map.Begin(segment + 1);
    bool first = true;
    Accumulators acc, sum;
    Clear(acc);
    Clear(sum);
    Stream(begin, end, acc, [&](uint32_t, uint32_t after, Accumulators& part) {
      if (after != end && after != segment_end) return;
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[f][j] = first ? part[f][j] : sum[f][j] + part[f][j];
      Clear(part);
      first = false;
      segment_end = map.Begin(++segment + 1);
    });
    Store(tile, sum);
  }
};

template <typename T, int kTileRows, bool kWhole>
__device__ __forceinline__ void MmaLinearKernel(const LinearArgs& a) {
  extern __shared__ __align__(128) unsigned char reprise_shared[];
  constexpr int kStages = MmaStages(kTileRows);
  const int rows = static_cast<int>(*a.num_rows);
  const int row_tile = static_cast<int>(blockIdx.y);
  if (row_tile * kTileRows >= rows) return;
  const MmaLinear<T, kTileRows, kStages> linear(a, rows, row_tile, reprise_shared);
  if constexpr (kWhole) {
    linear.RunWhole(blockIdx.x);
  } else {
    linear.RunSplit(blockIdx.x);
  }
}

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_LINEAR_MMA_BODY_CUH_
