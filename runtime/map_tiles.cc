// SPDX-License-Identifier: Apache-2.0
#include "runtime/map_tiles.h"

#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#if REPRISE_WITH_CUDA
#include "runtime/cuda/cuda_tile_map.h"
#endif

namespace reprise::runtime {
namespace {

constexpr int64_t kChunkBytes = 16;
constexpr int32_t kMaxTile = 256;
constexpr int64_t kSwizzledRowBytes = 128;

absl::Status Refuse(absl::string_view what, int64_t got, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("a tiled matrix: ", what, " is ", got, "; allowed: ", allowed));
}

absl::Status CheckDimension(const TiledMatrix& matrix, int i) {
  const auto what = [&](absl::string_view field) { return absl::StrCat(field, "[", i, "]"); };
  if (matrix.sizes[i] < 1) return Refuse(what("sizes"), matrix.sizes[i], "at least 1");
  if (matrix.tile[i] < 1 || matrix.tile[i] > kMaxTile)
    return Refuse(what("tile"), matrix.tile[i], "1 to 256");
  if (i > 0 && (matrix.strides[i] < kChunkBytes || matrix.strides[i] % kChunkBytes != 0))
    return Refuse(what("strides"), matrix.strides[i], "multiples of 16 bytes");
  return absl::OkStatus();
}

absl::Status Check(const TiledMatrix& matrix) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(matrix.data));
  if (matrix.data == nullptr || address % kChunkBytes != 0)
    return Refuse("data", address, "an address that is a multiple of 16");
  if (matrix.rank < 2 || matrix.rank > kMaxTileRank) return Refuse("rank", matrix.rank, "2 to 4");
  for (int i = 0; i < matrix.rank; ++i) REPRISE_RETURN_IF_ERROR(CheckDimension(matrix, i));
  const int64_t row_bytes = int64_t{matrix.tile[0]} * kTileElementBytes;
  if (row_bytes % kChunkBytes != 0)
    return Refuse("tile[0]", matrix.tile[0], "multiples of 8 elements");
  if (matrix.swizzled && row_bytes != kSwizzledRowBytes)
    return Refuse("tile[0]", matrix.tile[0], "64 elements where it is swizzled");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TileMap> MapTiles(DeviceKind kind, const TiledMatrix& matrix) {
  REPRISE_RETURN_IF_ERROR(Check(matrix));
  TileMap map;
  switch (kind) {
    case DeviceKind::kHost:
      static_assert(std::is_trivially_copyable_v<TiledMatrix>);
      std::memcpy(map.bytes, &matrix, sizeof(matrix));
      return map;
    case DeviceKind::kCuda:
#if REPRISE_WITH_CUDA
      REPRISE_RETURN_IF_ERROR(EncodeCudaTileMap(matrix, &map));
      return map;
#else
      return absl::UnavailableError("a tiled matrix: this build carries no CUDA code");
#endif
    case DeviceKind::kHip:
      break;
  }
  return absl::UnimplementedError("a tiled matrix: HIP devices copy no tiles; allowed: cuda, host");
}

}  // namespace reprise::runtime
