// SPDX-License-Identifier: Apache-2.0
// The KV pool's geometry, layout and refusals.
#include "models/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/testing/any_device.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::models {
namespace {

using ::reprise::testing::StatusIs;

using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;

KvGeometry Geometry(int64_t block_size, runtime::DType dtype = runtime::DType::kBf16) {
  return {
      .num_layers = 3, .num_kv_heads = 2, .head_dim = 24, .block_size = block_size, .dtype = dtype};
}

TEST(KvGeometry, FollowsTheModel) {
  ModelSpec spec;
  spec.num_layers = 5;
  spec.num_heads = 12;
  spec.num_kv_heads = 3;
  spec.head_dim = 40;
  const KvGeometry g = KvGeometry::For(spec, 7, runtime::DType::kF32);
  EXPECT_EQ(g.BlockElements(), 2 * 3 * 7 * 40);
  EXPECT_EQ(g.BlockBytes(), 5u * 2 * 3 * 7 * 40 * 4);
  EXPECT_EQ(KvGeometry::For(spec, 7, runtime::DType::kF16).BlockBytes(), 5u * 2 * 3 * 7 * 40 * 2);
}

class KvPoolTest : public ::testing::TestWithParam<runtime::DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(KvPoolTest);

TEST_P(KvPoolTest, LayersAndBlocksTileThePoolWithoutGaps) {
  REPRISE_DEVICE_OR_SKIP(device);
  for (const int64_t block_size : {1, 5, 16}) {
    for (const runtime::DType dtype : {runtime::DType::kBf16, runtime::DType::kF32}) {
      const KvGeometry g = Geometry(block_size, dtype);
      ASSERT_OK_AND_ASSIGN(const KvPool pool, KvPool::Create(*device, g, 7));
      EXPECT_EQ(pool.num_blocks(), 7u);
      EXPECT_EQ(pool.bytes(), 7 * g.BlockBytes());
      EXPECT_EQ(pool.geometry().block_size, block_size);
      const auto* begin = static_cast<const std::byte*>(pool.Layer(0));
      const auto block_bytes = static_cast<size_t>(g.BlockElements()) * runtime::SizeOf(dtype);
      for (int64_t layer = 0; layer < 3; ++layer) {
        for (uint32_t block = 0; block < 7; ++block) {
          EXPECT_EQ(
              static_cast<const std::byte*>(pool.Block(layer, block)) - begin,
              static_cast<std::ptrdiff_t>((static_cast<size_t>(layer) * 7 + block) * block_bytes));
        }
      }
    }
  }
}

TEST_P(KvPoolTest, EveryByteCanBeWrittenAndRead) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(const KvPool pool, KvPool::Create(*device, Geometry(5), 3));
  std::vector<unsigned char> bytes(pool.bytes()), back(pool.bytes());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  ASSERT_OK(stream->CopyToDevice(pool.Layer(0), bytes.data(), bytes.size()));
  ASSERT_OK(stream->CopyToHost(back.data(), pool.Layer(0), back.size()));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(bytes, back);
}

TEST_P(KvPoolTest, RefusesWhatIsNoPool) {
  REPRISE_DEVICE_OR_SKIP(device);
  for (const uint64_t blocks : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 31) + 1})
    EXPECT_THAT(KvPool::Create(*device, Geometry(4), blocks), StatusIs(kInvalid, "allowed: 2"));
  EXPECT_THAT(KvPool::Create(*device, Geometry(0), 4), StatusIs(kInvalid, "block size 0"));
  EXPECT_THAT(KvPool::Create(*device, Geometry(-3), 4), StatusIs(kInvalid, "block size -3"));
  KvGeometry none = Geometry(4);
  none.num_layers = 0;
  EXPECT_THAT(KvPool::Create(*device, none, 4), StatusIs(kInvalid, "0 layers"));
  // Two wrongs that make a right number of elements.
  KvGeometry negative = Geometry(-4);
  negative.head_dim = -24;
  EXPECT_THAT(KvPool::Create(*device, negative, 4), StatusIs(kInvalid, "block size -4"));
}

TEST_P(KvPoolTest, MoreThanTheDeviceHasIsExhaustion) {
  REPRISE_DEVICE_OR_SKIP(device);
  KvGeometry large = Geometry(1024, runtime::DType::kF32);
  large.num_kv_heads = 1024;
  large.head_dim = 256;
  EXPECT_THAT(KvPool::Create(*device, large, 1 << 20), StatusIs(kExhausted, "bytes"));
  large.num_layers = int64_t{1} << 20;
  EXPECT_THAT(KvPool::Create(*device, large, uint64_t{1} << 31), StatusIs(kExhausted, "overflow"));
}

}  // namespace
}  // namespace reprise::models
