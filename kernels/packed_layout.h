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
// 4). Place 4 q + i of a chunk is its input feature 2 q + i % 2 + 8 (i / 2): four neighbours are
// what a lane of mma.sync m16n8k16 multiplies. Their bits lie as PackE4m3 puts them.
//
// Of kE4m3Rounded two neighbours lie as one element of 16 bits (OfPairs), so that a tile is 2 KB
// and of 128 inputs: products of a warpgroup read them as they are.
//
// A tile of 4-bit elements is 512 bytes in the order of that instruction's lanes: 16 bytes for each
// of 32, of them a word for each 16 inputs. Lane 4 g + q has inputs 2 q, 2 q + 1, 2 q + 8 and
// 2 q + 9 of rows g and g + 8: element i of its word, the first in the lowest bits, is of row
// g + 8 (i % 2) and of input 2 q + i / 4 + 8 (i / 2 % 2). Row-major, 32 inputs of an output are 16
// bytes: byte i has input i in its lower half and input i + 16 in its upper one; rows are filled up
// to whole 32.
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

// Elements of 16 bits or fewer.
constexpr bool CanPack(WeightFormat format) {
  return format == WeightFormat::kBf16 || format == WeightFormat::kF16 || IsScaled(format);
}

// The bits of four E4M3 elements, byte i of `bytes` the i-th, as they are read fastest. Elements 0
// and 1 lie in the low and the high half of the word with the fields of a bf16, sign in bit 15 and
// the rest in bits 10 to 4: one mask takes both. Elements 2 and 3 fill what is left of these
// halves: their bits 6 to 4 are bits 14 to 12, the sign is bit 11, bits 3 to 0 stay. Shifted left
// by four, sign and low bits are where elements 0 and 1 have theirs; shifted right by four, the
// others. This is the definition, which kernels write words by; loading packs several words at
// once, to the same bits.
constexpr uint32_t PackE4m3(uint32_t bytes) {
  const uint32_t ones = (bytes & 0xffu) | (bytes & 0xff00u) << 8;
  const uint32_t twos = (bytes >> 16 & 0xffu) | (bytes >> 8 & 0xff0000u);
  return (ones & 0x00800080u) << 8 | (ones & 0x007f007fu) << 4 | (twos & 0x00700070u) << 8 |
         (twos & 0x00800080u) << 4 | (twos & 0x000f000fu);
}
// The two pairs of a packed word, each element a half with its sign in bit 15 and the rest in bits
// 10 to 4.
constexpr uint32_t PackedOnes(uint32_t word) { return word & 0x87f087f0u; }
constexpr uint32_t PackedTwos(uint32_t word) {
  return (word << 4 & 0x80f080f0u) | (word >> 4 & 0x07000700u);
}
// Element i of a packed word, an E4M3.
constexpr uint8_t UnpackE4m3(uint32_t word, int i) {
  const uint32_t half = (i < 2 ? PackedOnes(word) : PackedTwos(word)) >> (i % 2 * 16);
  return static_cast<uint8_t>((half >> 8 & 0x80u) | (half >> 4 & 0x7fu));
}

inline constexpr int kPackedTileOutputs = 16;
inline constexpr int kPackedTileInputs = 64;
inline constexpr int kPackedTileElements = kPackedTileOutputs * kPackedTileInputs;
inline constexpr int kPackedTileBytes = kPackedTileElements * 2;  // of 16-bit elements
// 16-bit elements that stay neighbours: 16 bytes.
inline constexpr int kPackedChunk = 8;
// 4-bit elements of a row that lie together where it is not packed.
inline constexpr int kInt4Run = 32;

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
  int64_t scale_inputs = kScaleInputs;  // of a scale

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
  // The same of 8-bit elements: at % 4 of the word at at / 4.
  constexpr int64_t ByteOffset(int64_t output, int64_t input) const {
    const int64_t tile = output / kPackedTileOutputs * InputTiles() + input / kPackedTileInputs;
    const int row = static_cast<int>(output % kPackedTileOutputs);
    const int chunk = static_cast<int>(input % kPackedTileInputs) / 16;
    const int column = static_cast<int>(input % 16);
    return tile * kPackedTileElements + row * kPackedTileInputs + (chunk ^ (row / 2 % 4)) * 16 +
           column % 8 / 2 * 4 + column / 8 * 2 + column % 2;
  }

  // The layout of pairs of neighbours, of kE4m3Rounded: pair i of an output is of its inputs 2 i
  // and 2 i + 1, the first at the lower address.
  constexpr PackedLayout OfPairs() const { return {out_features, (in_features + 1) / 2}; }
  // Where a weight of kE4m3Rounded lies, in bytes.
  constexpr int64_t RoundedOffset(int64_t output, int64_t input) const {
    return OfPairs().Offset(output, input / 2) * 2 + input % 2;
  }
  // Elements of a matrix that lies packed, with what fills it up.
  constexpr int64_t Elements(WeightFormat format) const {
    return format == WeightFormat::kE4m3Rounded ? OfPairs().Elements() * 2 : Elements();
  }

  // The same of 4-bit elements, two to a byte, the even one in the lower half.
  constexpr int64_t Int4Offset(int64_t output, int64_t input) const {
    const int64_t tile = output / kPackedTileOutputs * InputTiles() + input / kPackedTileInputs;
    const int row = static_cast<int>(output % kPackedTileOutputs);
    const int step = static_cast<int>(input % kPackedTileInputs) / 16;
    const int column = static_cast<int>(input % 16);
    const int lane = row % 8 * 4 + column % 8 / 2;
    return tile * kPackedTileElements + (lane * 4 + step) * 8 + row / 8 + column / 8 * 2 +
           column % 2 * 4;
  }
  // And row-major.
  constexpr int64_t Int4RowElements() const {
    return (in_features + kInt4Run - 1) / kInt4Run * kInt4Run;
  }
  constexpr int64_t Int4RowOffset(int64_t output, int64_t input) const {
    const int64_t run = output * Int4RowElements() + input / kInt4Run * kInt4Run;
    return run + input % 16 * 2 + input % kInt4Run / 16;
  }

  // Scales. Packed, those of the outputs of a tile lie side by side, filled up likewise:
  // [OutputTiles, ScaleGroups, kPackedTileOutputs]. Row-major: [out_features, ScaleGroups]. Tiles
  // are whole: a scale may be of inputs that fill one up.
  constexpr int64_t ScaleGroups() const {
    return (InputTiles() * kPackedTileInputs + scale_inputs - 1) / scale_inputs;
  }
  constexpr int64_t PackedScales() const {
    return OutputTiles() * ScaleGroups() * kPackedTileOutputs;
  }
  constexpr int64_t PackedScaleOffset(int64_t output, int64_t group) const {
    return (output / kPackedTileOutputs * ScaleGroups() + group) * kPackedTileOutputs +
           output % kPackedTileOutputs;
  }
};
static_assert(kScaleInputs % kPackedTileInputs == 0, "a tile of kE4m3 is of one scale");

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PACKED_LAYOUT_H_
