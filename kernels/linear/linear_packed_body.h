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
                ? a.scales[packed.PackedScaleOffset(first, group) + MatrixRow(h)] * kPackedE4m3Worth
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

// The same of weights of 4 bits, whose scales are of half a chunk or more, and come with it. Int4
// are multiplied less the zero points that are in the scales.
template <typename T, typename W, typename Tile>
class PackedFourBitSums {
 public:
  using Accumulators = typename Tile::Accumulators;

  REPRISE_FN explicit PackedFourBitSums(const Tile& linear)
      : linear_(linear), last_run_of_scale_(linear.a.scale_inputs / kLeastScaleInputs - 1) {
    Tile::Clear(of_scale_);
    Tile::Clear(of_part_);
    Tile::Clear(sum_);
  }
  REPRISE_FN void MultiplyChunk(uint32_t chunk, int stage) {
    const uint32_t weights = linear_.shared + static_cast<uint32_t>(stage * Tile::kStageBytes);
    const uint32_t tokens = weights + Tile::kWeightBytes;
    const bool last = chunk + 1 == linear_.chunks;
    FourBitTile elements[Tile::kFeatureFragments];
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kFeatureFragments; ++i)
      elements[i].Load(weights +
                       static_cast<uint32_t>(Tile::WarpFeature() / kPackedTileOutputs + i) *
                           (kPackedTileElements / 2));
    constexpr int kRuns = kMatrixChunkK / kLeastScaleInputs, kRunSteps = kLeastScaleInputs / 16;
    REPRISE_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      // Of the scale; there are a power of two.
      const int run_of_scale = (static_cast<int>(chunk) * kRuns + run) & last_run_of_scale_;
      if (run_of_scale == 0) LoadScales(weights + Tile::kScalesAt, run);
      REPRISE_UNROLL
      for (int s = run * kRunSteps; s < (run + 1) * kRunSteps; ++s)
        MultiplyStep(elements, tokens, s);
      if (run_of_scale == last_run_of_scale_ || (last && run == kRuns - 1)) Scale();
    }
    if (last || (chunk + 1) % kPackedPartTiles == 0) AddPart();
  }
  REPRISE_FN const Accumulators& sum() const { return sum_; }

 private:
  static constexpr bool kHasZeros = std::is_same_v<W, Int4>;

  REPRISE_FN void MultiplyStep(const FourBitTile (&elements)[Tile::kFeatureFragments],
                               uint32_t tokens, int step) {
    MatrixA w[Tile::kFeatureFragments];
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kFeatureFragments; ++i)
      w[i] = elements[i].template A<T, W>(step, zeros_[i]);
    REPRISE_UNROLL
    for (int f = 0; f < Tile::kRowFragments; ++f) {
      const auto x = linear_.reader.template B<Tile::kColumns>(
          tokens, Tile::WarpRow() + f * Tile::kColumns, step);
      REPRISE_UNROLL
      for (int i = 0; i < Tile::kFeatureFragments; ++i)
        Multiply<T>(of_scale_[i * Tile::kRowFragments + f], w[i], x);
    }
  }
  // Those of the lane's outputs that begin with a run of the chunk. scales: their shared address.
  REPRISE_FN void LoadScales(uint32_t scales, int run) {
    const int of_chunk = last_run_of_scale_ == 0 ? run : 0;
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kFeatureFragments; ++i) {
      const int tile = Tile::WarpFeature() / kPackedTileOutputs + i;
      const uint32_t first =
          scales +
          static_cast<uint32_t>((tile * kPackedChunkScales + of_chunk) * kPackedTileOutputs) * 4;
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h)
        scales_[i][h] = FourBitScale<T, W>(
            LoadShared<uint32_t>(first + static_cast<uint32_t>(MatrixRow(h)) * 4));
      REPRISE_UNROLL
      for (int h = 0; h < kFourBitRows; ++h)
        zeros_[i][h] = kHasZeros ? FourBitZero<T, W>(LoadShared<uint32_t>(
                                       first + static_cast<uint32_t>(FourBitRow(h)) * 4))
                                 : 0;
    }
  }
  REPRISE_FN void Scale() {
    REPRISE_UNROLL
    for (int f = 0; f < Tile::kFragments; ++f) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<Tile::kColumns>; ++j) {
          float& to = of_part_[f].v[At(h, j)];
          to = MultiplyAdd(of_scale_[f].v[At(h, j)], scales_[f / Tile::kRowFragments][h], to);
        }
      }
    }
    Tile::Clear(of_scale_);
  }
  REPRISE_FN void AddPart() {
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kValues; ++i) {
      float& to = sum_[i / Tile::Fragment::kSize].v[i % Tile::Fragment::kSize];
      const float from = of_part_[i / Tile::Fragment::kSize].v[i % Tile::Fragment::kSize];
      to = first_ ? from : to + from;
    }
    Tile::Clear(of_part_);
    first_ = false;
  }

  const Tile& linear_;
  const int last_run_of_scale_;  // runs are of kLeastScaleInputs
  Accumulators of_scale_, of_part_, sum_;
  bool first_ = true;
  float scales_[Tile::kFeatureFragments][kLaneRows] = {};
  uint32_t zeros_[Tile::kFeatureFragments][kFourBitRows] = {};
};

// Tile `tile` of outputs, of the rows that `linear` is of.
template <typename T, typename W, typename Tile>
REPRISE_FN void PackedLinearTile(const Tile& linear, uint32_t tile) {
  const uint32_t begin = tile * linear.chunks, end = begin + linear.chunks;
  if constexpr (Tile::kFourBits) {
    PackedFourBitSums<T, W, Tile> sums(linear);
    linear.StreamStages(begin, end, [&](uint32_t, uint32_t unit, int stage) {
      sums.MultiplyChunk(unit - begin, stage);
    });
    linear.Store(tile, sums.sum());
  } else {
    typename Tile::Accumulators of_chunks;
    Tile::Clear(of_chunks);
    PackedSums<T, W, Tile> sums(linear, tile);
    linear.Stream(begin, end, of_chunks, [&](uint32_t, uint32_t after, auto& of_chunk) {
      sums.Add(after - begin, of_chunk);
    });
    linear.Store(tile, sums.sum());
  }
}

// Grid x: tiles of outputs; grid y: tiles of tokens. W: of weights, T, E4m3 or Int4.
template <typename T, typename W, int kTileRows>
REPRISE_FN void PackedLinearBody(const LinearArgs& a, unsigned char* shared) {
  constexpr int kStages = PackedStages(kTraits, kTileRows, kElementBits<W>);
  using Tile =
      MatrixTile<T, W, kTileRows, PackedTileFeatures(kTileRows), kStages, WeightLayout::kPacked>;
  static_assert(Tile::kStageBytes == PackedStageBytes(kTileRows, kElementBits<W>));
  if (!a.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*a.num_rows);
  if (BlockY() * kTileRows >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  PackedLinearTile<T, W>(Tile(a, rows, BlockY(), shared), static_cast<uint32_t>(BlockX()));
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_
