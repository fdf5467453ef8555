// SPDX-License-Identifier: Apache-2.0
// Linear on matrix units over row-major weights.
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
#include "kernels/linear/linear_matrix_tile.h"

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

template <typename T, int kTileRows, int kStages>
struct MatrixLinear
    : MatrixTile<T, T, kTileRows, kMatrixTileFeatures, kStages, WeightLayout::kRowMajor> {
  using Tile = MatrixTile<T, T, kTileRows, kMatrixTileFeatures, kStages, WeightLayout::kRowMajor>;
  using Tile::a;
  using Tile::Clear;
  using Tile::kThreads;
  using Tile::kValues;
  using Tile::Store;
  using Tile::Stream;
  using typename Tile::Accumulators;
  using typename Tile::Fragment;
  static_assert(Tile::kStageBytes * kStages == MatrixSharedBytes(kTraits, kTileRows));

  const SegmentMap map;

  REPRISE_FN MatrixLinear(const LinearArgs& args, int live_rows, int row_tile,
                          unsigned char* shared_base)
      : Tile(args, live_rows, row_tile, shared_base), map(args) {}

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
  if (!a.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*a.num_rows);
  const int row_tile = BlockY();
  if (row_tile * kTileRows >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const MatrixLinear<T, kTileRows, kStages> linear(a, rows, row_tile, shared);
  if constexpr (kWhole) {
    linear.RunWhole(static_cast<uint32_t>(BlockX()));
  } else {
    linear.RunSplit(static_cast<uint32_t>(BlockX()));
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_BODY_H_
