// SPDX-License-Identifier: Apache-2.0
// Tile shapes of the matrix-unit linear, shared by its kernels and its launch.
#ifndef REPRISE_KERNELS_LINEAR_MATRIX_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_MATRIX_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/traits.h"

namespace reprise::kernels {

constexpr int kMatrixTileFeatures = 128;  // output features of a tile
constexpr int kMatrixChunkK = 64;  // input features of one pipeline stage: 128 bytes of a row
constexpr int kMatrixTileRows[] = {8, 16, 32, 64, 128};  // tokens of a tile
constexpr int kMatrixLinearThreads = 256;

constexpr int MatrixStageBytes(int tile_rows) {
  return (kMatrixTileFeatures + tile_rows) * kMatrixChunkK * 2;
}

// The widest tile: two stages, and a word for the last arriver, fit shared memory. Larger batches:
// blocks own whole tiles instead of segments.
constexpr int MatrixMaxSplitRows(const DeviceTraits& traits) {
  return 2 * MatrixStageBytes(128) < traits.shared_bytes ? 128 : 64;
}
// Whether a tile of so many rows is compiled for such a device.
constexpr bool HasMatrixTile(const DeviceTraits& traits, int tile_rows) {
  return tile_rows >= traits.matrix_columns && tile_rows <= MatrixMaxSplitRows(traits);
}
// Blocks that share a multiprocessor of CUDA; the widest tile needs the registers of two.
constexpr int MatrixBlocks(int tile_rows) { return tile_rows <= 64 ? 2 : 1; }
// Stages. With asynchronous copies: what fits 227 KB of a multiprocessor that runs MatrixBlocks
// (and, one block at a time, the 163 KB of sm_80); 160 KB of weights are in flight where tiles of
// rows are small. Without: two or three, what fits.
constexpr int MatrixStages(const DeviceTraits& traits, int tile_rows) {
  if (traits.async_copy) return tile_rows <= 16 ? 6 : tile_rows <= 32 ? 5 : tile_rows <= 64 ? 4 : 5;
  return 3 * MatrixStageBytes(tile_rows) < traits.shared_bytes ? 3 : 2;
}
constexpr int MatrixSharedBytes(const DeviceTraits& traits, int tile_rows) {
  return MatrixStages(traits, tile_rows) * MatrixStageBytes(tile_rows);
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_MATRIX_GEOMETRY_H_
