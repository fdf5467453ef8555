// SPDX-License-Identifier: Apache-2.0
// Linear on matrix units over packed weights, thread style, for any number of tokens: a block takes
// whole tiles of outputs, and nothing is summed across blocks. linear_stream_body.h is for few
// tokens; both sum in the order of linear_geometry.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_

#include "kernels/linear/linear_matrix_tile.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Grid x: tiles of outputs; grid y: tiles of tokens.
template <typename T, int kTileRows>
REPRISE_FN void PackedLinearBody(const LinearArgs& a, unsigned char* shared) {
  constexpr int kStages = PackedStages(kTraits, kTileRows);
  using Tile =
      MatrixTile<T, kTileRows, PackedTileFeatures(kTileRows), kStages, WeightLayout::kPacked>;
  static_assert(Tile::kStageBytes == PackedStageBytes(kTileRows));
  if (!a.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*a.num_rows);
  if (BlockY() * kTileRows >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const Tile linear(a, rows, BlockY(), shared);
  const uint32_t tile = static_cast<uint32_t>(BlockX()), begin = tile * linear.chunks;
  const uint32_t end = begin + linear.chunks;
  typename Tile::Accumulators part, sum;
  Tile::Clear(part);
  Tile::Clear(sum);
  bool first = true;
  linear.Stream(begin, end, part, [&](uint32_t, uint32_t after, auto& of_part) {
    if (after != end && (after - begin) % kPackedPartTiles != 0) return;
    REPRISE_UNROLL
    for (int i = 0; i < Tile::kValues; ++i) {
      float& to = sum[i / Tile::Fragment::kSize].v[i % Tile::Fragment::kSize];
      const float from = of_part[i / Tile::Fragment::kSize].v[i % Tile::Fragment::kSize];
      to = first ? from : to + from;
    }
    Tile::Clear(of_part);
    first = false;
  });
  linear.Store(tile, sum);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_PACKED_BODY_H_
