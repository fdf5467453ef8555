// SPDX-License-Identifier: Apache-2.0
// Linear on matrix units, thread style: weights are the 16-row operand, tokens the 8- or 16-column
// one, so one token wastes little. Weights stream once through a ring of shared-memory stages.
//
// K order. The weight is a list of units (tile of 128 features, chunk of 64 k), tiles outermost.
// Segment i of G is the contiguous range [i * total / G, (i + 1) * total / G). A feature's sum is,
// for every segment that touches its tile and in segment order, the f32 accumulation of that
// segment's chunks in ascending k; segments are then added in order. That order depends on the
// weight's shape and G alone. `Split` gives every segment to one block and merges through memory
// (the last arriver adds); `Whole` walks all of a tile's segments in one block. Same sums, same
// bits, for any number of rows.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_BODY_H_

#include "kernels/device/last_arriver.h"
#include "kernels/device/matrix.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Units of a weight and who sums them.
struct SegmentMap {
  uint32_t chunks;    // k chunks of one tile
  uint64_t total;     // units
  uint32_t segments;  // G

  REPRISE_FN explicit SegmentMap(const LinearArgs& a) {
    chunks = static_cast<uint32_t>((a.in_features + kMatrixChunkK - 1) / kMatrixChunkK);
    total =
        static_cast<uint64_t>((a.out_features + kMatrixTileFeatures - 1) / kMatrixTileFeatures) *
        chunks;
    segments = static_cast<uint32_t>(a.num_segments);
  }
  // First unit of a segment.
  REPRISE_FN uint32_t Begin(uint32_t segment) const {
    return static_cast<uint32_t>(segment * total / segments);
  }
  // The segment that holds a unit.
  REPRISE_FN uint32_t Of(uint32_t unit) const {
    return static_cast<uint32_t>(((unit + 1ull) * segments - 1) / total);
  }
};

// kTileRows: tokens of a tile. kStages: shared-memory stages. The warps lie along features where
// tokens are few, in two columns where they are many, so that a fragment read from shared memory
// serves several products.
template <typename T, int kTileRows, int kStages>
struct MatrixLinear {
  static constexpr int kThreads = kMatrixLinearThreads;
  static constexpr int kRowWarps = kTileRows >= 64 ? 2 : 1;
  static constexpr int kFeatureWarps = kThreads / kWarpSize / kRowWarps;
  static constexpr int kWarpRows = kTileRows / kRowWarps;
  static constexpr int kColumns = kWarpRows < 16 ? 8 : 16;  // tokens of a fragment of D
  static constexpr int kRowFragments = kWarpRows / kColumns;
  static constexpr int kFeatureFragments = kMatrixTileFeatures / kFeatureWarps / 16;
  static constexpr int kFragments = kRowFragments * kFeatureFragments;
  static_assert(kColumns >= kTraits.matrix_columns);
  static constexpr int kWeightBytes = kMatrixTileFeatures * kMatrixChunkK * 2;
  static constexpr int kStageBytes = kWeightBytes + kTileRows * kMatrixChunkK * 2;
  static constexpr int kRowChunks = kMatrixChunkK / 8;  // 16-byte chunks of a shared row
  static_assert(kStageBytes * kStages == MatrixSharedBytes(kTraits, kTileRows));

  using Fragment = MatrixD<kColumns>;
  using Accumulators = Fragment[kFragments];                    // [feature fragment][row fragment]
  static constexpr int kValues = kFragments * Fragment::kSize;  // f32 sums of a lane

  const LinearArgs& a;
  const SegmentMap map;
  const int rows;       // live
  const int first_row;  // of this tile
  const uint32_t shared;
  const TileReader<kRowChunks> reader;

  REPRISE_FN MatrixLinear(const LinearArgs& args, int live_rows, int row_tile,
                          unsigned char* shared_base)
      : a(args),
        map(args),
        rows(live_rows),
        first_row(row_tile * kTileRows),
        shared(SharedAddress(shared_base)) {}

  // Starts the copies of one unit into a stage; zero outside the weight and beyond the live rows.
  REPRISE_FN void Load(uint32_t tile, uint32_t chunk, int stage) const {
    const uint32_t base = shared + stage * kStageBytes;
    const int k0 = static_cast<int>(chunk) * kMatrixChunkK;
    const int n0 = static_cast<int>(tile) * kMatrixTileFeatures;
    const T* weight = static_cast<const T*>(a.weight);
    REPRISE_UNROLL
    for (int i = 0; i < kMatrixTileFeatures * kRowChunks / kThreads; ++i) {
      const int at = i * kThreads + ThreadX();
      const int r = at / kRowChunks, c = at % kRowChunks;
      const bool valid = n0 + r < a.out_features && k0 + c * 8 < a.in_features;
      const T* from =
          valid ? weight + static_cast<int64_t>(n0 + r) * a.in_features + k0 + c * 8 : weight;
      CopyAsync16OrZero(base + SwizzledOffset<kRowChunks>(r, c), from, valid);
    }
    const T* x = static_cast<const T*>(a.x);
    for (int at = ThreadX(); at < kTileRows * kRowChunks; at += kThreads) {
      const int r = at / kRowChunks, c = at % kRowChunks;
      const bool valid = first_row + r < rows && k0 + c * 8 < a.in_features;
      const T* from =
          valid ? x + static_cast<int64_t>(first_row + r) * a.in_features + k0 + c * 8 : x;
      CopyAsync16OrZero(base + kWeightBytes + SwizzledOffset<kRowChunks>(r, c), from, valid);
    }
  }

  // First feature and first token of this warp inside the tile.
  REPRISE_FN static int WarpFeature() { return Warp() % kFeatureWarps * 16 * kFeatureFragments; }
  REPRISE_FN static int WarpRow() { return Warp() / kFeatureWarps * kWarpRows; }

  // acc += weights x tokens of one stage.
  REPRISE_FN void MultiplyStage(int stage, Accumulators& acc) const {
    const uint32_t weights = shared + static_cast<uint32_t>(stage * kStageBytes);
    const uint32_t tokens = weights + kWeightBytes;
    REPRISE_UNROLL
    for (int k = 0; k < kMatrixChunkK / 16; ++k) {
      MatrixA w[kFeatureFragments];
      REPRISE_UNROLL
      for (int i = 0; i < kFeatureFragments; ++i)
        w[i] = reader.A(weights, WarpFeature() + i * 16, k);
      REPRISE_UNROLL
      for (int f = 0; f < kRowFragments; ++f) {
        const auto x = reader.template B<kColumns>(tokens, WarpRow() + f * kColumns, k);
        REPRISE_UNROLL
        for (int i = 0; i < kFeatureFragments; ++i)
          Multiply<T>(acc[i * kRowFragments + f], w[i], x);
      }
    }
  }

  // Scale, bias, one rounding; live rows and features only.
  REPRISE_FN void Store(uint32_t tile, const Accumulators& acc) const {
    const int n0 = static_cast<int>(tile) * kMatrixTileFeatures + WarpFeature();
    const int r0 = first_row + WarpRow();
    REPRISE_UNROLL
    for (int i = 0; i < kFeatureFragments * kLaneRows; ++i) {
      const int h = i % kLaneRows, n = n0 + i / kLaneRows * 16 + MatrixRow(h);
      if (n >= a.out_features) continue;
      const float bias = a.bias != nullptr ? ToFloat(static_cast<const T*>(a.bias)[n]) : 0.0f;
      REPRISE_UNROLL
      for (int f = 0; f < kRowFragments; ++f) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<kColumns>; ++j) {
          const int r = r0 + f * kColumns + MatrixColumn(j);
          if (r >= rows) continue;
          const float sum = acc[i / kLaneRows * kRowFragments + f].v[At(h, j)];
          const float y = MultiplyAdd(sum, a.scale, bias);
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

  // Place of one value in the partials: [partial tile][value][thread], so that neighbouring threads
  // touch neighbouring words.
  REPRISE_FN float* Partial(uint32_t index) const {
    return a.partials + static_cast<int64_t>(index) * kMatrixTileFeatures * kTileRows + ThreadX();
  }

  // Units [begin, end), all that `segment` has of `tile`, are summed: store the tile, or leave its
  // part for the last arriver.
  REPRISE_FN void FinishUnits(uint32_t segment, uint32_t tile, uint32_t begin, uint32_t end,
                              Accumulators& acc) const {
    const uint32_t tile_begin = tile * map.chunks, tile_end = tile_begin + map.chunks;
    if (begin == tile_begin && end == tile_end) {
      Store(tile, acc);
      return;
    }
    // A segment holds at most two partial tiles: the one it starts in and the one it ends in.
    float* own = Partial(2 * segment + (begin == map.Begin(segment) ? 0 : 1));
    REPRISE_UNROLL
    for (int i = 0; i < kValues; ++i)
      own[i * kThreads] = acc[i / Fragment::kSize].v[i % Fragment::kSize];

    const uint32_t first = map.Of(tile_begin), last = map.Of(tile_end - 1);
    if (!ArriveIsLast(a.counters, tile, last - first + 1)) return;
    for (uint32_t s = first; s <= last; ++s) {
      const bool starts_here = s == first ? map.Begin(s) == tile_begin : true;
      const float* from = Partial(2 * s + (starts_here ? 0 : 1));
      REPRISE_UNROLL
      for (int i = 0; i < kValues; ++i) {
        const float p = LoadFresh(from + i * kThreads);
        float& sum = acc[i / Fragment::kSize].v[i % Fragment::kSize];
        sum = s == first ? p : sum + p;
      }
    }
    Store(tile, acc);
  }

  REPRISE_FN static void Clear(Accumulators& acc) {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) acc[f].Clear();
  }

  // Runs units [begin, end) through the stages; after each, done(tile, unit + 1, acc).
  template <typename Done>
  REPRISE_FN void Stream(uint32_t begin, uint32_t end, Accumulators& acc, Done done) const {
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
      SyncBlock();  // the stage is there for all, and the one before is free for all
      load_next();
      MultiplyStage(stage, acc);
      if (++stage == kStages) stage = 0;
      done(tile, unit + 1, acc);
      if (unit + 1 == tile_end) {
        ++tile;
        tile_end += map.chunks;
      }
    }
  }

  // One block, one segment.
  REPRISE_FN void RunSplit(uint32_t segment) const {
    const uint32_t begin = map.Begin(segment), end = map.Begin(segment + 1);
    Accumulators acc;
    Clear(acc);
    uint32_t first = begin;
    Stream(begin, end, acc, [&](uint32_t tile, uint32_t after, Accumulators& sum) {
      if (after != end && after != (tile + 1) * map.chunks) return;
      FinishUnits(segment, tile, first, after, sum);
      first = after;
      Clear(sum);
    });
  }

  // One block, all segments of one tile.
  REPRISE_FN void RunWhole(uint32_t tile) const {
    const uint32_t begin = tile * map.chunks, end = begin + map.chunks;
    uint32_t segment = map.Of(begin), segment_end = map.Begin(segment + 1);
    bool first = true;
    Accumulators acc, sum;
    Clear(acc);
    Clear(sum);
    Stream(begin, end, acc, [&](uint32_t, uint32_t after, Accumulators& part) {
      if (after != end && after != segment_end) return;
      REPRISE_UNROLL
      for (int i = 0; i < kValues; ++i) {
        float& to = sum[i / Fragment::kSize].v[i % Fragment::kSize];
        const float from = part[i / Fragment::kSize].v[i % Fragment::kSize];
        to = first ? from : to + from;
      }
      Clear(part);
      first = false;
      segment_end = map.Begin(++segment + 1);
    });
    Store(tile, sum);
  }
};

template <typename T, int kTileRows, bool kWhole>
REPRISE_FN void MatrixLinearBody(const LinearArgs& a, unsigned char* shared) {
  constexpr int kStages = MatrixStages(kTraits, kTileRows);
  BeginInOrder();
  const int rows = static_cast<int>(*a.num_rows);
  const int row_tile = BlockY();
  if (row_tile * kTileRows >= rows) return;
  const MatrixLinear<T, kTileRows, kStages> linear(a, rows, row_tile, shared);
  if constexpr (kWhole) {
    linear.RunWhole(static_cast<uint32_t>(BlockX()));
  } else {
    linear.RunSplit(static_cast<uint32_t>(BlockX()));
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_BODY_H_
