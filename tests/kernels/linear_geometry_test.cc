// SPDX-License-Identifier: Apache-2.0
// How weights lie, and how the launches of linear share them out.
#include "kernels/linear/linear_geometry.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/linear/group_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/packed_layout.h"
#include "tests/testing/packed_weight.h"

namespace reprise::kernels {
namespace {

using ::reprise::testing::PackedPlace;
using runtime::MatrixUnit;

TEST(PackedLayout, EveryElementHasAPlaceOfItsOwn) {
  for (const PackedLayout layout : {PackedLayout{1, 1}, PackedLayout{16, 64}, PackedLayout{17, 65},
                                    PackedLayout{40, 200}, PackedLayout{33, 8}}) {
    std::vector<bool> taken(static_cast<size_t>(layout.Elements()));
    for (int64_t row = 0; row < layout.out_features; ++row) {
      for (int64_t column = 0; column < layout.in_features; ++column) {
        const auto place = static_cast<size_t>(layout.Offset(row, column));
        ASSERT_EQ(place, PackedPlace(static_cast<size_t>(row), static_cast<size_t>(column),
                                     static_cast<size_t>(layout.in_features)));
        ASSERT_LT(place, taken.size());
        ASSERT_FALSE(taken[place]) << row << ", " << column;
        taken[place] = true;
      }
    }
  }
}

// Beyond what 32 bits count.
TEST(PackedLayout, LargeMatricesDoNotWrapAround) {
  const PackedLayout layout{200000, 65536};
  EXPECT_EQ(layout.Elements(), int64_t{200000} * 65536);
  EXPECT_EQ(layout.Offset(199984, 0), int64_t{199984} * 65536);
}

// Layers of Llama-3.1-8B on 132 multiprocessors: qkv, o and down, gate and up, the head. What was
// fastest on an H200, or within 6 % of it (docs/benchmarks/linear_8b_h200.json).
TEST(LinearGroupSpan, IsThatWhichWasFastest) {
  const auto span = [](int64_t outputs, int tokens, int token_tiles = 1) {
    return LinearGroupSpan(outputs / kPackedTileOutputs, tokens, token_tiles, 132);
  };
  for (const int tokens : {32, 64, 128}) {
    EXPECT_EQ(span(6144, tokens), 4);  // 96 blocks
    EXPECT_EQ(span(4096, tokens), 4);  // 64 blocks
  }
  EXPECT_EQ(span(28672, 32), 7);  // 256 spans, two turns
  EXPECT_EQ(span(28672, 64), 7);
  EXPECT_EQ(span(28672, 128), 8);
  EXPECT_EQ(span(128256, 128), 8);    // 1,002 spans, eight turns
  EXPECT_EQ(span(4096, 128, 2), 4);   // 128 blocks: both tiles of tokens at once
  EXPECT_EQ(span(6144, 128, 2), 8);   // 96 blocks
  EXPECT_EQ(span(4096, 128, 16), 8);  // 512 blocks
}

TEST(LinearGroupSpan, CostsLeast) {
  for (int64_t tiles = 1; tiles < 400; ++tiles) {
    for (const int64_t multiprocessors : {1, 3, 132}) {
      for (const int64_t token_tiles : {1, 2, 5}) {
        const auto cost = [&](int span) {
          return LinearGroupCost(tiles, 64, token_tiles, multiprocessors, span);
        };
        const int span = LinearGroupSpan(tiles, 64, token_tiles, multiprocessors);
        ASSERT_GE(span, 1);
        ASSERT_LE(span, kLinearGroupMaxSpan);
        for (int other = 1; other <= kLinearGroupMaxSpan; ++other)
          ASSERT_LE(cost(span), cost(other)) << tiles << " tiles, " << multiprocessors;
      }
    }
  }
}

// What a kernel's barriers and its turns count on.
TEST(LinearGeometry, SharedMemoryHoldsWhatItMust) {
  const DeviceTraits traits = TraitsOf(MatrixUnit::kMma);
  for (const int tokens : {32, 64, 128}) {
    for (int span = 1; span <= kLinearGroupMaxSpan; ++span) {
      EXPECT_GE(LinearGroupStages(traits.shared_bytes, tokens, span), kLinearGroupLoadWarps);
      EXPECT_LE(LinearGroupSharedBytes(traits.shared_bytes, tokens, span),
                static_cast<uint32_t>(traits.shared_bytes));
      EXPECT_EQ(LinearGroupStageBytes(tokens, span) % 1024, 0u);
    }
  }
  for (const int tokens : {8, 16})
    EXPECT_LE(StreamLayout(tokens).bytes, static_cast<uint32_t>(traits.shared_bytes));
}

}  // namespace
}  // namespace reprise::kernels
