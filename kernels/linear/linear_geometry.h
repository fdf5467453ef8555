// SPDX-License-Identifier: Apache-2.0
// Shapes of linear, as its kernels and its launch both need them.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/kernel_instance.h"
#include "kernels/packed_layout.h"

namespace reprise::kernels {

// Weights of kE4m3Rounded, where bodies are written for a type of elements: those and x are E4M3.
struct RoundedE4m3 {};

// ---- portable ----

constexpr int kPortableTileRows = 8;
constexpr int kPortableTileFeatures = 32;
constexpr int kPortableTileK = 64;
// One word of padding per row keeps neighbouring rows in different banks.
constexpr int kPortablePitch = kPortableTileK + 1;
constexpr size_t kPortableSharedBytes =
    sizeof(float) * (kPortableTileRows * kPortablePitch + kPortableTileFeatures * kPortablePitch +
                     kPortableTileRows * kPortableTileFeatures);

// ---- the host's own ----

constexpr int kNativeTileFeatures = 32;  // output features of a block

// ---- matrix units ----

constexpr int kMatrixTileFeatures = 128;  // output features of a tile
constexpr int kMatrixChunkK = 64;  // input features of one pipeline stage: 128 bytes of a row
constexpr int kMatrixLinearThreads = 256;

constexpr int MatrixStageBytes(int tile_rows) {
  return (kMatrixTileFeatures + tile_rows) * kMatrixChunkK * 2;
}

// The widest tile: two stages, and a word for the last arriver, fit shared memory. Larger batches:
// blocks own whole tiles instead of segments.
constexpr int MatrixMaxSplitRows(const DeviceTraits& traits) {
  return 2 * MatrixStageBytes(128) < traits.shared_bytes ? 128 : 64;
}
// Whether a device has a tile of so many rows.
constexpr bool HasMatrixTile(const DeviceTraits& traits, int tile_rows) {
  return OnMatrixUnits(traits, tile_rows) && tile_rows >= traits.matrix_columns &&
         tile_rows <= MatrixMaxSplitRows(traits);
}
// Stages. With asynchronous copies: what fits 227 KB of a multiprocessor that runs the blocks that
// instances.h asks for (and, one block at a time, the 163 KB of sm_80); 160 KB of weights are in
// flight where tiles of rows are small. Without: two or three, what fits.
constexpr int MatrixStages(const DeviceTraits& traits, int tile_rows) {
  if (traits.async_copy) return tile_rows <= 16 ? 6 : tile_rows <= 32 ? 5 : tile_rows <= 64 ? 4 : 5;
  return 3 * MatrixStageBytes(tile_rows) < traits.shared_bytes ? 3 : 2;
}
constexpr int MatrixSharedBytes(const DeviceTraits& traits, int tile_rows) {
  return MatrixStages(traits, tile_rows) * MatrixStageBytes(tile_rows);
}

// ---- matrix units, packed weights ----

// The K order of packed weights: a sum is made of parts of so many input features, each an f32
// accumulation in ascending k, added in order. It depends on K alone: not on the device, nor on who
// sums.
constexpr int kPackedPartTiles = 8;  // tiles of the layout
constexpr int kPackedPartK = kPackedPartTiles * kPackedTileInputs;

// Tiles of linear_packed_body.h: outputs of a tile of so many tokens, and stages, within 96 KB
// where copies are asynchronous and a multiprocessor runs two blocks, 72 KB where three may, of
// weights with scales.
constexpr int PackedTileFeatures(int tile_rows) {
  return tile_rows > 16 && tile_rows <= 64 ? 64 : 128;
}
// Of weights of 4 bits, scales of a chunk: of kLeastScaleInputs two for each output, of more inputs
// one.
inline constexpr int kPackedChunkScales = kMatrixChunkK / kLeastScaleInputs;
constexpr int PackedStageBytes(int tile_rows, int weight_bits) {
  const int features = PackedTileFeatures(tile_rows);
  const int scales = weight_bits == 4 ? features * kPackedChunkScales * 4 : 0;  // bytes
  return (features * weight_bits + tile_rows * 16) * kMatrixChunkK / 8 + scales;
}
constexpr int PackedStages(const DeviceTraits& traits, int tile_rows, int weight_bits) {
  if (traits.async_copy)
    return tile_rows <= 16   ? (weight_bits == 16 ? 5 : 7)
           : tile_rows <= 32 ? 8
           : tile_rows <= 64 ? 6
                             : 5;
  return 3 * PackedStageBytes(tile_rows, weight_bits) < traits.shared_bytes ? 3 : 2;
}
constexpr int PackedSharedBytes(const DeviceTraits& traits, int tile_rows, int weight_bits) {
  return PackedStages(traits, tile_rows, weight_bits) * PackedStageBytes(tile_rows, weight_bits);
}
// The widest tile of tokens; larger batches are several of them. Weights with scales have a third
// set of sums, those of a scale, for which a wider one leaves no registers.
constexpr int PackedMaxRows(const DeviceTraits& traits, int weight_bits) {
  return weight_bits == 16 && 2 * PackedStageBytes(128, 16) < traits.shared_bytes ? 128 : 64;
}
constexpr bool HasPackedTile(const DeviceTraits& traits, int tile_rows) {
  return OnMatrixUnits(traits, tile_rows) && tile_rows <= PackedMaxRows(traits, 16);
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GEOMETRY_H_
