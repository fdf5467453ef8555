// SPDX-License-Identifier: Apache-2.0
#include "models/weights/tile_packing.h"

#include <cstring>

#include "kernels/packed_layout.h"

namespace reprise::models {
namespace {

constexpr int kTileInputs = kernels::kPackedTileInputs;
constexpr int kChunk = 16;  // bytes that lie together
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

using Bytes [[gnu::vector_size(kChunk)]] = uint8_t;
using Halves [[gnu::vector_size(kChunk)]] = uint16_t;
using Pair [[gnu::vector_size(kChunk)]] = uint64_t;

// A chunk of E4M3 as its four words lie (kernels::PackE4m3). Inputs i and i + 8 share a half of a
// word: the bits of the first are those of the lower byte, moved, of the second of the upper one.
Halves PackChunkE4m3(const std::byte* chunk) {
  uint64_t inputs[2];
  std::memcpy(inputs, chunk, kChunk);
  const auto first = reinterpret_cast<Bytes>(Pair{inputs[0], 0});
  const auto second = reinterpret_cast<Bytes>(Pair{inputs[1], 0});
  const auto both = reinterpret_cast<Halves>(__builtin_shufflevector(
      first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
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
      const Halves words = PackChunkE4m3(from + c * kChunk);
      std::memcpy(of_tile + (c ^ turn) * kChunk, &words, kChunk);
    }
  });
}

void PackInt4Tile(const Int4Tile& elements, std::byte* tile) {
  constexpr int kHalf = kernels::kPackedTileOutputs / 2;  // row and row + kHalf share words
  for (int row = 0; row < kHalf; ++row) {
    uint8_t both[kTileInputs];  // an element of either, that of the second above
    for (int i = 0; i < kTileInputs; ++i)
      both[i] = static_cast<uint8_t>(elements[row][i] | elements[row + kHalf][i] << 4);
    for (size_t step = 0; step < kTileInputs / kChunk; ++step) {
      uint16_t pairs[2 * kChunkWords];
      std::memcpy(pairs, both + step * kChunk, kChunk);
      for (size_t lane = 0; lane < kChunkWords; ++lane) {
        const uint32_t low = pairs[lane], high = pairs[lane + kChunkWords];
        const uint32_t word =
            (low & 0xffu) | (high & 0xffu) << 8 | (low & 0xff00u) << 8 | (high & 0xff00u) << 16;
        std::memcpy(tile + lane * kChunk + step * sizeof(word), &word, sizeof(word));
      }
    }
    tile += kChunkWords * kChunk;
  }
}

}  // namespace reprise::models
