// SPDX-License-Identifier: Apache-2.0
// Where the elements of a linear layer's matrix lie, for everyone who writes or reads them.
//
// Packed, a matrix of 16-bit elements is cut into tiles of 16 output by 64 input features. A tile
// is 2 KB without gaps: 16 rows of 128 bytes, 16-byte chunk c of row r at c ^ (r % 8). Tiles of the
// same outputs follow each other in ascending input features, so that 16 outputs are one contiguous
// stream; a bulk copy brings them into shared memory as fragment loads, and products of a
// warpgroup, want them. Both dimensions are filled up to whole tiles with numbers that are finite
// and otherwise without effect.
//
// A tile of 8-bit elements is 1 KB: 16 rows of 64 bytes, 16-byte chunk c of row r at c ^ (r / 2 %
// 4). Byte 4 q + i of a chunk is its input feature 2 q + i % 2 + 8 (i / 2): four neighbouring bytes
// are what a lane of mma.sync m16n8k16 multiplies.
#ifndef REPRISE_KERNELS_PACKED_LAYOUT_H_
#define REPRISE_KERNELS_PACKED_LAYOUT_H_

#include <cstdint>
#include <string_view>

#include "kernels/weight_format.h"

namespace reprise::kernels {

enum class WeightLayout : uint8_t {
  kRowMajor,     // [out_features, in_features]
  kPacked,       // PackedLayout
  kPackedPairs,  // the same, its outputs in the order of PairedOutput
};

// "row-major", "packed", "packed pairs".
constexpr std::string_view NameOf(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kRowMajor:
      return "row-major";
    case WeightLayout::kPacked:
      return "packed";
    case WeightLayout::kPackedPairs:
      return "packed pairs";
  }
  return "unknown";
}
constexpr bool IsPacked(WeightLayout layout) { return layout != WeightLayout::kRowMajor; }

// Elements of 16 or 8 bits.
constexpr bool CanPack(WeightFormat format) {
  return format == WeightFormat::kBf16 || format == WeightFormat::kF16 ||
         format == WeightFormat::kE4m3;
}

inline constexpr int kPackedTileOutputs = 16;
inline constexpr int kPackedTileInputs = 64;
inline constexpr int kPackedTileElements = kPackedTileOutputs * kPackedTileInputs;
inline constexpr int kPackedTileBytes = kPackedTileElements * 2;  // of 16-bit elements
// 16-bit elements that stay neighbours: 16 bytes.
inline constexpr int kPackedChunk = 8;

// Where an output of a matrix whose two halves are taken together lies: eight of the first half,
// and below them the same eight of the second, so that a tile has both of what belongs together, in
// the same lanes. Halves are whole eights.
inline constexpr int kPairRun = 8;
constexpr int64_t PairedOutput(int64_t output, int64_t out_features) {
  const int64_t half = out_features / 2, of_half = output % half;
  return of_half / kPairRun * (2 * kPairRun) + output / half * kPairRun + of_half % kPairRun;
}

struct PackedLayout {
  int64_t out_features = 0;
  int64_t in_features = 0;

  constexpr int64_t OutputTiles() const {
    return (out_features + kPackedTileOutputs - 1) / kPackedTileOutputs;
  }
  constexpr int64_t InputTiles() const {
    return (in_features + kPackedTileInputs - 1) / kPackedTileInputs;
  }
  // Of the whole matrix, with what fills it up.
  constexpr int64_t Elements() const { return OutputTiles() * InputTiles() * kPackedTileElements; }
  // The element at which a weight lies. On host and device.
  constexpr int64_t Offset(int64_t output, int64_t input) const {
    const int64_t tile = output / kPackedTileOutputs * InputTiles() + input / kPackedTileInputs;
    const int row = static_cast<int>(output % kPackedTileOutputs);
    const int column = static_cast<int>(input % kPackedTileInputs);
    return tile * kPackedTileElements + row * kPackedTileInputs +
           ((column / kPackedChunk) ^ (row % 8)) * kPackedChunk + column % kPackedChunk;
  }
  // The same of 8-bit elements.
  constexpr int64_t ByteOffset(int64_t output, int64_t input) const {
    const int64_t tile = output / kPackedTileOutputs * InputTiles() + input / kPackedTileInputs;
    const int row = static_cast<int>(output % kPackedTileOutputs);
    const int chunk = static_cast<int>(input % kPackedTileInputs) / 16;
    const int column = static_cast<int>(input % 16);
    return tile * kPackedTileElements + row * kPackedTileInputs + (chunk ^ (row / 2 % 4)) * 16 +
           column % 8 / 2 * 4 + column / 8 * 2 + column % 2;
  }

  // Scales of kE4m3. Packed, those of the outputs of a tile lie side by side, filled up likewise:
  // [OutputTiles, ScaleGroups, kPackedTileOutputs]. Row-major: [out_features, ScaleGroups].
  constexpr int64_t ScaleGroups() const { return (in_features + kScaleInputs - 1) / kScaleInputs; }
  constexpr int64_t PackedScales() const {
    return OutputTiles() * ScaleGroups() * kPackedTileOutputs;
  }
  constexpr int64_t PackedScaleOffset(int64_t output, int64_t group) const {
    return (output / kPackedTileOutputs * ScaleGroups() + group) * kPackedTileOutputs +
           output % kPackedTileOutputs;
  }
};
static_assert(kScaleInputs % kPackedTileInputs == 0, "a tile is of one scale");

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PACKED_LAYOUT_H_
