// SPDX-License-Identifier: Apache-2.0
// Maps of tiled matrices as CUDA's tensor copies read them; part of map_tiles.cc's implementation.
#ifndef REPRISE_RUNTIME_CUDA_CUDA_TILE_MAP_H_
#define REPRISE_RUNTIME_CUDA_CUDA_TILE_MAP_H_

#include "absl/status/status.h"
#include "runtime/tile_map.h"

namespace reprise::runtime {

// REQUIRES: a matrix that MapTiles has checked. Errors: Unavailable without a driver, or with one
// that knows no such maps; Internal with the driver's error.
absl::Status EncodeCudaTileMap(const TiledMatrix& matrix, TileMap* map);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_CUDA_CUDA_TILE_MAP_H_
