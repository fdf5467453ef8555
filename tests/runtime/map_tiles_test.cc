// SPDX-License-Identifier: Apache-2.0
// What maps of tiled matrices are made of, and what is refused.
#include "runtime/map_tiles.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

alignas(16) constexpr uint16_t kData[64] = {};

TiledMatrix Good() {
  return {.data = kData,
          .rank = 2,
          .sizes = {64, 3},
          .tile = {64, 8},
          .strides = {0, 128},
          .swizzled = true};
}

TEST(MapTiles, IsTheMatrixItselfOnTheHost) {
  ASSERT_OK_AND_ASSIGN(const TileMap map, MapTiles(DeviceKind::kHost, Good()));
  TiledMatrix matrix;
  std::memcpy(&matrix, map.bytes, sizeof(matrix));
  EXPECT_EQ(matrix.data, kData);
  EXPECT_EQ(matrix.rank, 2);
  EXPECT_EQ(matrix.sizes[1], 3);
  EXPECT_EQ(matrix.tile[1], 8);
  EXPECT_EQ(matrix.strides[1], 128);
  EXPECT_TRUE(matrix.swizzled);
}

TEST(MapTiles, RefusesWhatNoCopyTakes) {
  struct Case {
    std::function<void(TiledMatrix&)> change;
    std::string text;
  };
  const Case cases[] = {
      {[](TiledMatrix& m) { m.data = nullptr; }, "data is 0; allowed: an address that"},
      {[](TiledMatrix& m) { m.data = kData + 1; }, "allowed: an address that is a multiple of 16"},
      {[](TiledMatrix& m) { m.rank = 1; }, "rank is 1; allowed: 2 to 4"},
      {[](TiledMatrix& m) { m.rank = 5; }, "rank is 5; allowed: 2 to 4"},
      {[](TiledMatrix& m) { m.sizes[1] = 0; }, "sizes[1] is 0; allowed: at least 1"},
      {[](TiledMatrix& m) { m.tile[1] = 257; }, "tile[1] is 257; allowed: 1 to 256"},
      {[](TiledMatrix& m) { m.tile[1] = 0; }, "tile[1] is 0; allowed: 1 to 256"},
      {[](TiledMatrix& m) { m.strides[1] = 120; }, "strides[1] is 120; allowed: multiples of 16"},
      {[](TiledMatrix& m) { m.strides[1] = 0; }, "strides[1] is 0; allowed: multiples of 16"},
      {[](TiledMatrix& m) { m.tile[0] = 60; }, "tile[0] is 60; allowed: multiples of 8"},
      {[](TiledMatrix& m) { m.tile[0] = 32; }, "tile[0] is 32; allowed: 64 elements where it is"},
  };
  for (const DeviceKind kind : {DeviceKind::kHost, DeviceKind::kCuda, DeviceKind::kHip}) {
    for (const Case& c : cases) {
      TiledMatrix matrix = Good();
      c.change(matrix);
      EXPECT_THAT(MapTiles(kind, matrix), StatusIs(absl::StatusCode::kInvalidArgument, c.text));
    }
  }
}

TEST(MapTiles, SaysWhereDevicesCopyNone) {
  EXPECT_THAT(MapTiles(DeviceKind::kHip, Good()),
              StatusIs(absl::StatusCode::kUnimplemented, "HIP devices copy no tiles"));
}

TEST(MapTiles, NeedsADriverOnCuda) {
  const absl::StatusOr<TileMap> map = MapTiles(DeviceKind::kCuda, Good());
  if (CountCudaDevices(nullptr) > 0) {
    EXPECT_OK(map);
  } else {
    EXPECT_THAT(map, StatusIs(absl::StatusCode::kUnavailable, ""));
  }
}

}  // namespace
}  // namespace reprise::runtime
