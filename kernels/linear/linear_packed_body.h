// SPDX-License-Identifier: Apache-2.0
// Linear on matrix units over packed weights, thread style, for any number of tokens: a block takes
// whole tiles of outputs, and nothing is summed across blocks. linear_stream_body.h is for few
// tokens; both sum in the order of linear_geometry.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_

#include "kernels/linear/linear_matrix_tile.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The sums of a block, from those of chunks to those of K: a chunk's are those of a scale, where
// weights have scales, of a part, and of all.
template <typename T, typename W, typename Tile>
class PackedSums {
 public:
  using Accumulators = typename Tile::Accumulators;

  REPRISE_FN PackedSums(const Tile& linear, uint32_t tile) : linear_(linear) {
    Tile::Clear(of_part_);
    Tile::Clear(sum_);
    if constexpr (Tile::kFp8) {
      first_output_ = static_cast<int64_t>(tile) * Tile::kFeatures + Tile::WarpFeature();
      LoadScales(0);
    }
  }
  // `of_chunks`: what was multiplied since it was cleared here. after: chunks that have been.
  REPRISE_FN void Add(uint32_t after, Accumulators& of_chunks) {
    const bool last = after == linear_.chunks;
    if constexpr (Tile::kFp8) {
      constexpr uint32_t kChunksOfScale = kScaleInputs / kMatrixChunkK;
      if (!last && after % kChunksOfScale != 0) return;
      Scale(of_chunks);
      if (!last) LoadScales(after / kChunksOfScale);
      Tile::Clear(of_chunks);
      if (last || after % kPackedPartTiles == 0) AddPart(of_part_);
    } else if (last || after % kPackedPartTiles == 0) {
      AddPart(of_chunks);
    }
  }
  REPRISE_FN const Accumulators& sum() const { return sum_; }

 private:
  REPRISE_FN void AddPart(Accumulators& part) {
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kValues; ++i) {
      float& to = sum_[i / Tile::Fragment::kSize].v[i % Tile::Fragment::kSize];
      const float from = part[i / Tile::Fragment::kSize].v[i % Tile::Fragment::kSize];
      to = first_ ? from : to + from;
    }
    Tile::Clear(part);
    first_ = false;
  }
  // Of the lane's outputs, for the chunks that come.
  REPRISE_FN void LoadScales(uint32_t group) {
    const LinearArgs& a = linear_.a;
    const PackedLayout packed{a.out_features, a.in_features};
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kFeatureFragments; ++i) {
      const int64_t first = first_output_ + i * kPackedTileOutputs;
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h)
        scales_[i][h] =
            first < a.out_features
                ? a.scales[packed.PackedScaleOffset(first, group) + MatrixRow(h)] * kHalvesWorth
                : 0.0f;
    }
  }
  REPRISE_FN void Scale(const Accumulators& from) {
    REPRISE_UNROLL
    for (int f = 0; f < Tile::kFragments; ++f) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<Tile::kColumns>; ++j) {
          float& to = of_part_[f].v[At(h, j)];
          to = MultiplyAdd(from[f].v[At(h, j)], scales_[f / Tile::kRowFragments][h], to);
        }
      }
    }
  }

  const Tile& linear_;
  Accumulators of_part_, sum_;
  bool first_ = true;
  int64_t first_output_ = 0;
  float scales_[Tile::kFeatureFragments][kLaneRows];
};

// Grid x: tiles of outputs; grid y: tiles of tokens. W: of weights, T or E4m3.
template <typename T, typename W, int kTileRows>
REPRISE_FN void PackedLinearBody(const LinearArgs& a, unsigned char* shared) {
  constexpr int kStages = PackedStages(kTraits, kTileRows, sizeof(W));
  using Tile =
      MatrixTile<T, W, kTileRows, PackedTileFeatures(kTileRows), kStages, WeightLayout::kPacked>;
  static_assert(Tile::kStageBytes == PackedStageBytes(kTileRows, sizeof(W)));
  if (!a.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*a.num_rows);
  if (BlockY() * kTileRows >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const Tile linear(a, rows, BlockY(), shared);
  const uint32_t tile = static_cast<uint32_t>(BlockX()), begin = tile * linear.chunks;
  typename Tile::Accumulators of_chunks;
  Tile::Clear(of_chunks);
  PackedSums<T, W, Tile> sums(linear, tile);
  linear.Stream(
      begin, begin + linear.chunks, of_chunks,
      [&](uint32_t, uint32_t after, auto& of_chunk) { sums.Add(after - begin, of_chunk); });
  linear.Store(tile, sums.sum());
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_
