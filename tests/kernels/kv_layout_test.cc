// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/kv_layout.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise::testing {
namespace {

using kernels::KvLayout;

// Every element of two blocks once, in the order of the documented dimensions.
TEST(KvLayout, IsBlockPartHeadPositionDim) {
  constexpr KvLayout kLayout{.num_kv_heads = 3, .head_dim = 4, .block_size = 5};
  int64_t next = 0;
  for (int block = 0; block < 2; ++block) {
    for (int part = 0; part < 2; ++part) {
      for (int head = 0; head < 3; ++head) {
        for (int position = 0; position < 5; ++position) {
          for (int dim = 0; dim < 4; ++dim)
            EXPECT_EQ(kLayout.Offset(block, part, head, position, dim), next++);
        }
      }
    }
  }
  EXPECT_EQ(kLayout.BlockElements(), next / 2);
}

// Panels of 64 elements, position by position; eight neighbouring positions have the same chunk of
// eight elements in eight different places.
TEST(KvLayout, SwizzledIsPanelPositionChunk) {
  constexpr KvLayout kLayout{
      .num_kv_heads = 2, .head_dim = 128, .block_size = 24, .swizzled = true};
  static_assert(kLayout.CanSwizzle());
  const int64_t head = kLayout.HeadOffset(5, kernels::kValues, 1);
  EXPECT_EQ(head, ((5 * 2 + 1) * 2 + 1) * 24 * 128);
  std::vector<bool> taken(24 * 128);
  for (int position = 0; position < 24; ++position) {
    for (int dim = 0; dim < 128; ++dim) {
      const int64_t at = kLayout.Offset(5, kernels::kValues, 1, position, dim) - head;
      const int chunk = dim % 64 / 8 ^ position % 8;
      EXPECT_EQ(at, dim / 64 * 24 * 64 + position * 64 + chunk * 8 + dim % 8);
      EXPECT_FALSE(taken[static_cast<size_t>(at)]);
      taken[static_cast<size_t>(at)] = true;
    }
  }
}

// Panels are of 128 bytes and chunks of 16, however many elements that is.
TEST(KvLayout, EightBitElementsSwizzleInPanelsOf128) {
  constexpr KvLayout kLayout{.num_kv_heads = 1,
                             .head_dim = 256,
                             .block_size = 24,
                             .dtype = runtime::DType::kE4m3,
                             .swizzled = true};
  static_assert(kLayout.CanSwizzle());
  EXPECT_EQ(kLayout.BlockElements(), 2 * 24 * 256);
  for (int position = 0; position < 24; ++position) {
    for (int dim = 0; dim < 256; ++dim) {
      const int chunk = dim % 128 / 16 ^ position % 8;
      EXPECT_EQ(kLayout.Offset(0, kernels::kKeys, 0, position, dim),
                dim / 128 * 24 * 128 + position * 128 + chunk * 16 + dim % 16);
    }
  }
  EXPECT_FALSE((KvLayout{.head_dim = 64, .dtype = runtime::DType::kE4m3}.CanSwizzle()));
}

TEST(KvLayout, SwizzlesWholePanelsOf16BitElements) {
  EXPECT_TRUE(KvLayout{.head_dim = 64}.CanSwizzle());
  EXPECT_FALSE(KvLayout{.head_dim = 80}.CanSwizzle());
  EXPECT_FALSE((KvLayout{.head_dim = 64, .dtype = runtime::DType::kF32}.CanSwizzle()));
}

TEST(KvLayout, OffsetsAreOf64Bits) {
  constexpr KvLayout kLayout{.num_kv_heads = 8, .head_dim = 128, .block_size = 16};
  constexpr int64_t kBlocks = int64_t{1} << 31;
  EXPECT_EQ(kLayout.Offset(kBlocks, kernels::kValues, 7, 15, 127),
            kBlocks * 2 * 8 * 16 * 128 + 2 * 8 * 16 * 128 - 1);
}

}  // namespace
}  // namespace reprise::testing
