// SPDX-License-Identifier: Apache-2.0
// Tile shapes of the tensor-core linear, shared by its kernels and its launch.
#ifndef REPRISE_KERNELS_LINEAR_MMA_SHAPES_H_
#define REPRISE_KERNELS_LINEAR_MMA_SHAPES_H_

#include <cstddef>
#include <cstdint>

namespace reprise::kernels {

constexpr int kMmaTileFeatures = 64;  // output features of a tile
constexpr int kMmaChunkK = 64;        // input features of one pipeline stage: 128 bytes of a row
constexpr int kMmaTileRows[] = {8, 16, 32, 64, 128};
constexpr int kMmaMaxSplitRows = 128;  // more rows: blocks own whole tiles instead of segments

// Stages: about 64 KB of weights in flight per block where tiles are small, two blocks per multiprocessor always.
constexpr int MmaStages(int tile_rows) {
  return tile_rows <= 16 ? 8 : tile_rows <= 32 ? 6 : tile_rows <= 64 ? 5 : 4;
}
constexpr int MmaThreads(int tile_rows) { return tile_rows > 64 ? 256 : 128; }
constexpr int MmaSharedBytes(int tile_rows) {
  return MmaStages(tile_rows) * (kMmaTileFeatures + tile_rows) * kMmaChunkK * 2;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_MMA_SHAPES_H_
