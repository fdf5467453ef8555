// SPDX-License-Identifier: Apache-2.0
#include "models/weights/tile_packing.h"

#include <cstring>

#include "kernels/packed_layout.h"
#include "models/weights/byte_vectors.h"

namespace reprise::models {
namespace {

constexpr int kTileInputs = kernels::kPackedTileInputs;
constexpr int kChunk = kVectorBytes;  // bytes that lie together
constexpr int kChunkWords = kChunk / 4;

// pack(tile, elements): with all inputs of each tile, kBytes.
template <size_t kBytes, int kInputs = kTileInputs, typename Pack>
void ForTiles(int64_t inputs, const std::byte* from, Pack pack) {
  const int64_t whole = inputs / kInputs;
  for (int64_t tile = 0; tile < whole; ++tile, from += kBytes) pack(tile, from);
  const auto left = static_cast<size_t>(inputs % kInputs);
  if (left == 0) return;
  std::byte last[kBytes] = {};
  std::memcpy(last, from, left * kBytes / kInputs);
  pack(whole, last);
}

// A chunk of E4M3 as its four words lie. kernels::PackE4m3 defines one word, for the host and for
// kernels; this packs the four of a chunk at once, in vectors, because loading waits for it, and
// comes to the same bits. Inputs i and i + 8 share a half of a word: the bits of the first are
// those of the lower byte, moved, of the second of the upper one.
U16x8 PackChunkE4m3(const std::byte* chunk) {
  uint64_t inputs[2];
  std::memcpy(inputs, chunk, kChunk);
  const auto both = reinterpret_cast<U16x8>(Interleave(inputs[0], inputs[1]));
  return (both & 0x0080) << 8 | (both & 0x007f) << 4 | (both & 0x7000) | (both & 0x8000) >> 4 |
         (both & 0x0f00) >> 8;
}

// Tiles of rows of 128 bytes, which hold so many inputs.
template <int kInputs>
void PackWideRow(int64_t inputs, int row, const std::byte* elements, std::byte* tiles) {
  constexpr size_t kRow = 128;
  std::byte* const to = tiles + static_cast<size_t>(row) * kRow;
  const auto turn = static_cast<size_t>(row % 8);
  ForTiles<kRow, kInputs>(inputs, elements, [&](int64_t tile, const std::byte* from) {
    std::byte* const of_tile = to + tile * kernels::kPackedTileBytes;
    for (size_t c = 0; c < kRow / kChunk; ++c)
      std::memcpy(of_tile + (c ^ turn) * kChunk, from + c * kChunk, kChunk);
  });
}

}  // namespace

void PackOutput16(int64_t inputs, int row, const std::byte* elements, std::byte* tiles) {
  PackWideRow<kTileInputs>(inputs, row, elements, tiles);
}

void PackOutputRounded(int64_t inputs, int row, const std::byte* elements, std::byte* tiles) {
  PackWideRow<2 * kTileInputs>(inputs, row, elements, tiles);
}

void PackOutputE4m3(int64_t inputs, int row, const std::byte* elements, std::byte* tiles) {
  constexpr size_t kRow = kTileInputs;
  std::byte* const to = tiles + static_cast<size_t>(row) * kRow;
  const auto turn = static_cast<size_t>(row / 2 % 4);
  ForTiles<kRow>(inputs, elements, [&](int64_t tile, const std::byte* from) {
    std::byte* const of_tile = to + tile * kernels::kPackedTileElements;
    for (size_t c = 0; c < kRow / kChunk; ++c) {
      const U16x8 words = PackChunkE4m3(from + c * kChunk);
      std::memcpy(of_tile + (c ^ turn) * kChunk, &words, kChunk);
    }
  });
}

void PackInt4Tile(const Int4Tile& elements, std::byte* tile) {
  constexpr int kHalf = kernels::kPackedTileOutputs / 2;  // row and row + kHalf share words
  constexpr int kTileSteps = kTileInputs / kChunk;
  static_assert(kTileSteps == kChunkWords);
  for (int row = 0; row < kHalf; ++row, tile += kChunkWords * kChunk) {
    U32x4 steps[kTileSteps];  // of each 16 inputs, the words of four lanes
    for (int step = 0; step < kTileSteps; ++step) {
      U8x16 lower, upper;
      std::memcpy(&lower, &elements[row][step * kChunk], kChunk);
      std::memcpy(&upper, &elements[row + kHalf][step * kChunk], kChunk);
      const auto halves = reinterpret_cast<U64x2>(lower | upper << 4);
      steps[step] = reinterpret_cast<U32x4>(Interleave(halves[0], halves[1]));
    }
    // A lane's words lie together.
    const auto a = reinterpret_cast<U64x2>(InterleaveLower(steps[0], steps[1]));
    const auto b = reinterpret_cast<U64x2>(InterleaveUpper(steps[0], steps[1]));
    const auto c = reinterpret_cast<U64x2>(InterleaveLower(steps[2], steps[3]));
    const auto d = reinterpret_cast<U64x2>(InterleaveUpper(steps[2], steps[3]));
    const U64x2 lanes[kChunkWords] = {InterleaveLower(a, c), InterleaveUpper(a, c),
                                      InterleaveLower(b, d), InterleaveUpper(b, d)};
    std::memcpy(tile, lanes, sizeof(lanes));
  }
}

}  // namespace reprise::models
