// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/kv_layout.h"

#include <gtest/gtest.h>

#include <cstdint>

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
          EXPECT_EQ(kLayout.Row(block, part, head, position) * 4, next);
          for (int dim = 0; dim < 4; ++dim)
            EXPECT_EQ(kLayout.Offset(block, part, head, position, dim), next++);
        }
      }
    }
  }
  EXPECT_EQ(kLayout.BlockElements(), next / 2);
}

TEST(KvLayout, OffsetsAreOf64Bits) {
  constexpr KvLayout kLayout{.num_kv_heads = 8, .head_dim = 128, .block_size = 16};
  constexpr int64_t kBlocks = int64_t{1} << 31;
  EXPECT_EQ(kLayout.Offset(kBlocks, kernels::kValues, 7, 15, 127),
            kBlocks * 2 * 8 * 16 * 128 + 2 * 8 * 16 * 128 - 1);
}

}  // namespace
}  // namespace reprise::testing
