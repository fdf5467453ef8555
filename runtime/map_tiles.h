// SPDX-License-Identifier: Apache-2.0
// Maps of tiled matrices (tile_map.h), made on the host, for the arguments of launches.
#ifndef REPRISE_RUNTIME_MAP_TILES_H_
#define REPRISE_RUNTIME_MAP_TILES_H_

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/tile_map.h"

namespace reprise::runtime {

// The map of `matrix` in the form of devices of that kind; on the host the matrix as it is. Looks
// at no memory, enqueues nothing, allocates nothing; may be called while a stream is capturing.
// Errors: InvalidArgument (what, got, allowed); Unimplemented where devices copy no tiles (HIP);
// Unavailable without a driver; Internal, the driver's refusal. Thread: any.
absl::StatusOr<TileMap> MapTiles(DeviceKind kind, const TiledMatrix& matrix);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MAP_TILES_H_
