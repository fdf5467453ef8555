// SPDX-License-Identifier: Apache-2.0
// Tile shapes of the tensor-core linear, shared by its kernels and its launch.
#ifndef REPRISE_KERNELS_LINEAR_MMA_SHAPES_H_
#define REPRISE_KERNELS_LINEAR_MMA_SHAPES_H_

#include <cstddef>
#include <cstdint>

namespace reprise::kernels {

constexpr int kMmaTileFeatures = 128;  // output features of a tile
constexpr int kMmaChunkK = 64;         // input features of one pipeline stage: 128 bytes of a row
constexpr int kMmaTileRows[] = {8, 16, 32, 64, 128};
constexpr int kMmaMaxSplitRows = 128;  // more rows: blocks own whole tiles instead of segments
constexpr int kMmaLinearThreads = 256;

// Blocks that share a multiprocessor; the widest tile needs the registers of two.
constexpr int MmaBlocks(int tile_rows) { return tile_rows <= 64 ? 2 : 1; }
// Stages: what fits 227 KB of such a multiprocessor (and, one block at a time, the 163 KB of
// sm_80); 160 KB of weights are in flight where tiles of rows are small.
constexpr int MmaStages(int tile_rows) {
  return tile_rows <= 16 ? 6 : tile_rows <= 32 ? 5 : tile_rows <= 64 ? 4 : 5;
}
constexpr int MmaSharedBytes(int tile_rows) {
  return MmaStages(tile_rows) * (kMmaTileFeatures + tile_rows) * kMmaChunkK * 2;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_MMA_SHAPES_H_
