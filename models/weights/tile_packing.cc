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
      uint16_t pairs[2 * kChunkWords];
      std::memcpy(pairs, from + c * kChunk, kChunk);
      uint32_t words[kChunkWords];
      for (int q = 0; q < kChunkWords; ++q)
        words[q] = kernels::PackE4m3(pairs[q] | uint32_t{pairs[q + kChunkWords]} << 16);
      std::memcpy(of_tile + (c ^ turn) * kChunk, words, kChunk);
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
