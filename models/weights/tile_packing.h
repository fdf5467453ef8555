// SPDX-License-Identifier: Apache-2.0
// Outputs of a matrix, one after the other, into the tiles of outputs that hold them, as
// kernels/packed_layout.h lays them out. Part of weight_upload.cc's implementation, and what
// decides how long loading takes.
//
// `row`: of the tile; `tiles`: its first byte, behind which are those of the same outputs and the
// next inputs.
#ifndef REPRISE_MODELS_WEIGHTS_TILE_PACKING_H_
#define REPRISE_MODELS_WEIGHTS_TILE_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "kernels/packed_layout.h"

namespace reprise::models {

// elements: [inputs], any alignment. Inputs are filled up to whole tiles with zeros. Of 16 bits:
void PackOutput16(int64_t inputs, int row, const std::byte* elements, std::byte* tiles);
// And E4M3, for kE4m3 and for kE4m3Rounded:
void PackOutputE4m3(int64_t inputs, int row, const std::byte* elements, std::byte* tiles);
void PackOutputRounded(int64_t inputs, int row, const std::byte* elements, std::byte* tiles);
// A tile of 4-bit elements, a byte for each: [outputs, inputs].
using Int4Tile = uint8_t[kernels::kPackedTileOutputs][kernels::kPackedTileInputs];
void PackInt4Tile(const Int4Tile& elements, std::byte* tile);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_TILE_PACKING_H_
