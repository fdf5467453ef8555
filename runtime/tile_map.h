// SPDX-License-Identifier: Apache-2.0
// A matrix in device memory, cut into tiles that a thread of a kernel copies to shared memory as a
// whole (CopyTile in kernels/device/matrix_group.h), and what such copies know of it. A kernel gets
// the map as part of its arguments; MapTiles (map_tiles.h) makes it. For host and device code.
#ifndef REPRISE_RUNTIME_TILE_MAP_H_
#define REPRISE_RUNTIME_TILE_MAP_H_

#include <cstdint>

namespace reprise::runtime {

inline constexpr int kMaxTileRank = 4;

struct TiledMatrix {
  const void* data = nullptr;  // the first element, at a multiple of 16 bytes
  // Elements are of 16 bits. Of each dimension, that of neighbours in memory first: how many there
  // are, how many a tile has (1 to 256), and from the second dimension on how many bytes lie from
  // one to the next, a multiple of 16. A tile has whole 16 bytes along the first.
  int32_t rank = 0;  // 2 to kMaxTileRank
  int32_t sizes[kMaxTileRank] = {};
  int32_t tile[kMaxTileRank] = {};
  int64_t strides[kMaxTileRank] = {};
  // Tiles have rows of 128 bytes, and 16-byte chunk c of row r lands at c ^ (r % 8).
  bool swizzled = false;
};
inline constexpr int32_t kTileElementBytes = 2;

// What copies read. Its form is the device's own.
struct alignas(64) TileMap {
  unsigned char bytes[128] = {};
};
static_assert(sizeof(TiledMatrix) <= sizeof(TileMap));

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_TILE_MAP_H_
