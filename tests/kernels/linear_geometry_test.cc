// SPDX-License-Identifier: Apache-2.0
// How weights lie, and how the launches of linear share them out.
#include "kernels/linear/linear_geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/packed_layout.h"
#include "tests/testing/packed_weight.h"

namespace reprise::kernels {
namespace {

using ::reprise::testing::PackedFp8Place;
using ::reprise::testing::PackedInt4Place;
using ::reprise::testing::PackedPlace;
using ::reprise::testing::RowMajorInt4Place;
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

TEST(PackedLayout, EveryByteAndScaleHasAPlaceOfItsOwn) {
  for (const PackedLayout layout : {PackedLayout{1, 1}, PackedLayout{16, 64}, PackedLayout{17, 65},
                                    PackedLayout{40, 200}, PackedLayout{33, 8}}) {
    std::vector<bool> taken(static_cast<size_t>(layout.Elements()));
    std::vector<bool> scaled(static_cast<size_t>(layout.PackedScales()));
    for (int64_t row = 0; row < layout.out_features; ++row) {
      for (int64_t column = 0; column < layout.in_features; ++column) {
        const auto place = static_cast<size_t>(layout.ByteOffset(row, column));
        ASSERT_EQ(place, PackedFp8Place(static_cast<size_t>(row), static_cast<size_t>(column),
                                        static_cast<size_t>(layout.in_features)));
        ASSERT_LT(place, taken.size());
        ASSERT_FALSE(taken[place]) << row << ", " << column;
        taken[place] = true;
      }
      for (int64_t group = 0; group < layout.ScaleGroups(); ++group) {
        const auto place = static_cast<size_t>(layout.PackedScaleOffset(row, group));
        ASSERT_LT(place, scaled.size());
        ASSERT_FALSE(scaled[place]) << row << ", " << group;
        scaled[place] = true;
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

GroupFormat FormatOf(int bits) {
  return bits == 16 ? kGroup16 : GroupFormat(bits == 8 ? WeightFormat::kE4m3 : WeightFormat::kInt4);
}

// Layers of Llama-3.1-8B on 132 multiprocessors: qkv, o and down, gate and up, the head. What was
// fastest on an H200, or within 4 % of it (docs/benchmarks/README.md).
TEST(LinearGroupSpan, IsThatWhichWasFastest) {
  const auto span = [](int64_t outputs, int tokens, int token_tiles = 1) {
    return LinearGroupSpan(outputs / kPackedTileOutputs, tokens, token_tiles, 132, kGroup16);
  };
  for (const int tokens : {16, 32, 64, 128}) {
    EXPECT_EQ(span(6144, tokens), 3);   // 128 spans
    EXPECT_EQ(span(4096, tokens), 2);   // 128 spans
    EXPECT_EQ(span(28672, tokens), 7);  // 256 spans, two turns
    EXPECT_GE(span(128256, tokens), 7);
  }
  EXPECT_EQ(span(4096, 128, 2), 4);  // 64 spans, by two tiles of tokens
  EXPECT_EQ(span(6144, 128, 2), 6);
  EXPECT_EQ(span(28672, 128, 2), 7);
  EXPECT_EQ(span(4096, 128, 4), 8);  // 32 spans
  EXPECT_EQ(span(28672, 128, 4), 8);
}

// All blocks of a launch are there at once while there are more multiprocessors than tiles of
// tokens.
TEST(LinearGroupColumns, FillTheDeviceOnce) {
  for (int64_t tiles = 1; tiles < 400; tiles += 7) {
    for (int64_t token_tiles = 1; token_tiles < 200; ++token_tiles) {
      for (int span = 1; span <= LinearGroupMaxSpan(16, GroupFormat(WeightFormat::kE4m3)); ++span) {
        const int64_t columns = LinearGroupColumns(tiles, token_tiles, 132, span);
        ASSERT_GE(columns, 1);
        ASSERT_LE(columns * token_tiles, std::max<int64_t>(132, token_tiles));
        ASSERT_LE((columns - 1) * span, tiles - 1);
      }
    }
  }
}

// As measured: chunks of a stage in narrow, middle and wide spans.
TEST(LinearGroupStageChunks, AreAsManyAsLeaveRoomForOthers) {
  constexpr int kShared = TraitsOf(MatrixUnit::kMma).shared_bytes;
  const auto chunks = [](int tokens, int span, int bits = 16) {
    return LinearGroupStageChunks(kShared, tokens, span, FormatOf(bits));
  };
  EXPECT_EQ(chunks(16, 2), 4);
  EXPECT_EQ(chunks(64, 2), 4);
  EXPECT_EQ(chunks(64, 3), 2);
  EXPECT_EQ(chunks(128, 2), 2);
  EXPECT_EQ(chunks(128, 6), 2);
  EXPECT_EQ(chunks(128, 7), 1);
  EXPECT_EQ(chunks(64, 4, 8), 4);
  EXPECT_EQ(chunks(64, 5, 8), 2);
  EXPECT_EQ(chunks(128, 1, 8), 2);
  EXPECT_EQ(chunks(128, 8, 4), 2);
}

TEST(LinearGroupCopiedRows, AreHalfATileWhereManyRowsWouldLieBeyond) {
  EXPECT_EQ(LinearGroupCopiedRows(16, 9), 16);
  EXPECT_EQ(LinearGroupCopiedRows(64, 40), 64);
  EXPECT_EQ(LinearGroupCopiedRows(128, 96), 64);
  EXPECT_EQ(LinearGroupCopiedRows(128, 97), 128);
  EXPECT_EQ(LinearGroupCopiedRows(128, 192), 64);
  EXPECT_EQ(LinearGroupCopiedRows(128, 256), 128);
}

TEST(LinearGroupTakesFewRows, WhereItIsTheFasterOne) {
  const auto takes = [](int64_t in_features, int64_t out_features, int64_t rows, int bits) {
    const PackedLayout packed{out_features, in_features};
    return LinearGroupTakesFewRows(rows, packed.OutputTiles(), packed.InputTiles(), 132, bits);
  };
  // Few outputs and many inputs.
  EXPECT_TRUE(takes(14336, 4096, 16, 16));
  EXPECT_TRUE(takes(14336, 4096, 9, 16));
  EXPECT_FALSE(takes(14336, 4096, 8, 16));
  EXPECT_FALSE(takes(4096, 4096, 16, 16));
  EXPECT_FALSE(takes(14336, 8192, 16, 16));
  // Of fewer bits many outputs.
  for (const int bits : {4, 8}) {
    EXPECT_FALSE(takes(14336, 4096, 16, bits));
    EXPECT_FALSE(takes(4096, 4096, 9, bits));
    EXPECT_TRUE(takes(4096, 6144, 9, bits));
    EXPECT_TRUE(takes(4096, 28672, 16, bits));
    EXPECT_FALSE(takes(4096, 28672, 8, bits));
  }
}

TEST(LinearGroupTileRows, AreHalfOfTheRowsWhereOutputsAreFew) {
  const auto tile = [](int64_t out_features, int64_t rows, int bits) {
    return LinearGroupTileRows(rows, out_features / kPackedTileOutputs, 132, bits);
  };
  for (const int bits : {4, 8, 16}) {
    EXPECT_EQ(tile(4096, 128, bits), 64);
    EXPECT_EQ(tile(4096, 65, bits), 33);
    EXPECT_EQ(tile(4096, 64, bits), bits == 4 ? 32 : 64);
    EXPECT_EQ(tile(4096, 17, bits), bits == 4 ? 9 : 17);
    EXPECT_EQ(tile(4096, 16, bits), 16);
    EXPECT_EQ(tile(6144, 128, bits), 128);
    EXPECT_EQ(tile(6144, 40, bits), 40);
    // There are two tiles of tokens anyway.
    EXPECT_EQ(tile(4096, 129, bits), 128);
    EXPECT_EQ(tile(4096, 4096, bits), 128);
  }
}

// All clusters of a launch are there at once, and a warpgroup has room for a span.
TEST(LinearTakesCluster, WhereOutputsAreFewAndBothBlocksHaveParts) {
  const auto takes = [](int64_t in_features, int64_t out_features, int64_t rows,
                        int64_t multiprocessors = 132) {
    const PackedLayout packed{out_features, in_features};
    return LinearTakesCluster(rows, packed.OutputTiles(), packed.InputTiles(), multiprocessors);
  };
  for (const int64_t rows : {17, 64, 128}) EXPECT_TRUE(takes(14336, 4096, rows));
  for (const int64_t rows : {1, 16, 129, 256}) EXPECT_FALSE(takes(14336, 4096, rows));
  // A span of two tiles, and of three; four parts of K, and five.
  EXPECT_TRUE(takes(8192, 2048, 96));
  EXPECT_FALSE(takes(8192, 2048, 97));
  EXPECT_TRUE(takes(8192, 3072, 128));
  EXPECT_TRUE(takes(2048, 3072, 96));
  EXPECT_FALSE(takes(2048, 3072, 97));
  EXPECT_TRUE(takes(2049, 3072, 97));
  EXPECT_TRUE(takes(4096, 4224, 64));
  EXPECT_FALSE(takes(4096, 4225, 64));
  EXPECT_TRUE(takes(513, 4096, 64));
  EXPECT_FALSE(takes(512, 4096, 64));
  EXPECT_TRUE(takes(1024, 64, 64, 2));
  EXPECT_FALSE(takes(1024, 64, 64, 1));
  for (int64_t tiles = 1; tiles <= 4224 / kPackedTileOutputs; ++tiles) {
    const int64_t span = LinearClusterSpan(tiles, 132);
    ASSERT_LE(span, kLinearClusterMaxSpan);
    ASSERT_LE((tiles + span - 1) / span * kLinearClusterBlocks, 132);
  }
}

TEST(LinearGroupSpan, CostsLeast) {
  for (int64_t tiles = 1; tiles < 400; ++tiles) {
    for (const int64_t multiprocessors : {1, 3, 132}) {
      for (const int64_t token_tiles : {1, 2, 5}) {
        const GroupFormat format = FormatOf(4 << tiles % 3);
        const auto cost = [&](int span) {
          return LinearGroupCost(tiles, 64, token_tiles, multiprocessors, span, format);
        };
        const int span = LinearGroupSpan(tiles, 64, token_tiles, multiprocessors, format);
        ASSERT_GE(span, 1);
        ASSERT_LE(span, LinearGroupMaxSpan(64, format));
        for (int other = 1; other <= LinearGroupMaxSpan(64, format); ++other)
          ASSERT_LE(cost(span), cost(other)) << tiles << " tiles, " << multiprocessors;
      }
    }
  }
}

TEST(PackedLayout, EveryElementOfFourBitsHasAPlaceOfItsOwn) {
  for (const PackedLayout layout :
       {PackedLayout{1, 1, 32}, PackedLayout{17, 65, 64}, PackedLayout{40, 200, 128}}) {
    std::vector<bool> taken(static_cast<size_t>(layout.Elements()));
    std::vector<bool> row_major(
        static_cast<size_t>(layout.out_features * layout.Int4RowElements()));
    for (int64_t row = 0; row < layout.out_features; ++row) {
      for (int64_t column = 0; column < layout.in_features; ++column) {
        const auto r = static_cast<size_t>(row), c = static_cast<size_t>(column);
        const auto columns = static_cast<size_t>(layout.in_features);
        const auto place = static_cast<size_t>(layout.Int4Offset(row, column));
        ASSERT_EQ(place, PackedInt4Place(r, c, columns));
        ASSERT_FALSE(taken[place]) << row << ", " << column;
        taken[place] = true;
        const auto other = static_cast<size_t>(layout.Int4RowOffset(row, column));
        ASSERT_EQ(other, RowMajorInt4Place(r, c, columns));
        ASSERT_FALSE(row_major[other]) << row << ", " << column;
        row_major[other] = true;
      }
    }
  }
}

// Of inputs that fill up the last tile there may be scales.
TEST(PackedLayout, ScalesAreOfWholeTiles) {
  EXPECT_EQ((PackedLayout{16, 96, 32}.ScaleGroups()), 4);
  EXPECT_EQ((PackedLayout{16, 96, 64}.ScaleGroups()), 2);
  EXPECT_EQ((PackedLayout{16, 96, 128}.ScaleGroups()), 1);
  EXPECT_EQ((PackedLayout{16, 160}.ScaleGroups()), 2);
}

TEST(WeightFormat, AWordHasAScaleAndItsZeroPoint) {
  for (const float scale : {0.0f, 0x1p-24f, 0x1.ffcp-3f, 0x1.fep100f}) {  // f16, bf16
    for (const uint32_t zero : {0u, 8u, 15u}) {
      const uint32_t word = ScaleWord(scale, zero);
      EXPECT_EQ(ScaleOfWord(word), scale);
      EXPECT_EQ(ZeroPointOfWord(word), zero);
    }
  }
  EXPECT_NEAR(ScaleOfWord(ScaleWord(0.1f, 9)), 0.1, 0.1 * 0x1p-18);
}

// What a kernel's barriers and its turns count on.
TEST(LinearGeometry, SharedMemoryHoldsWhatItMust) {
  const DeviceTraits traits = TraitsOf(MatrixUnit::kMma);
  for (const WeightFormat weights : {WeightFormat::kInt4, WeightFormat::kE4m3, WeightFormat::kBf16,
                                     WeightFormat::kE4m3Rounded}) {
    const GroupFormat format(weights);
    for (const int tokens : {16, 32, 64, 128}) {
      for (int span = 1; span <= LinearGroupMaxSpan(tokens, format); ++span) {
        const int chunks = LinearGroupStageChunks(traits.shared_bytes, tokens, span, format);
        const int few = LinearGroupFewChunks(tokens, format);
        EXPECT_TRUE(chunks == few ||
                    (chunks == 2 * few && LinearGroupHasMoreChunks(tokens, format)));
        EXPECT_EQ(kPackedPartTiles % chunks, 0);
        EXPECT_GE(LinearGroupStages(traits.shared_bytes, tokens, span, chunks, format),
                  LinearGroupMinStages(tokens, format));
        EXPECT_LE(LinearGroupSharedBytes(traits.shared_bytes, tokens, span, chunks, format),
                  static_cast<uint32_t>(traits.shared_bytes));
        EXPECT_EQ(LinearGroupStageBytes(tokens, span, chunks, format) % 1024, 0u);
      }
    }
  }
  for (const int tokens : {32, 64, 128}) {
    for (int span = 1; span <= kLinearClusterMaxSpan; ++span) {
      const int chunks =
          LinearGroupStageChunks(traits.shared_bytes, tokens, span, kGroup16, kLinearClusterBlocks);
      EXPECT_GE(LinearGroupStages(traits.shared_bytes, tokens, span, chunks, kGroup16,
                                  kLinearClusterBlocks),
                LinearGroupMinStages(tokens, kGroup16));
      EXPECT_LE(LinearGroupSharedBytes(traits.shared_bytes, tokens, span, chunks, kGroup16,
                                       kLinearClusterBlocks),
                static_cast<uint32_t>(traits.shared_bytes));
    }
  }
  for (const int tokens : {kStreamFewTokens, 8, 16}) {
    for (const int bits : {16, 8, 4}) {
      for (const bool fine : {false, true}) {
        const StreamSharedLayout layout = StreamLayout(tokens, bits, fine);
        EXPECT_LE(layout.bytes, static_cast<uint32_t>(traits.shared_bytes));
        // Where tiles are swizzled, and where barriers may lie.
        EXPECT_EQ(layout.tokens % 1024, 0u);
        EXPECT_EQ(layout.barriers % 8, 0u);
      }
    }
  }
}

// A warp asks for its own first slot at most at once; the rest of the ring is left for the pace.
TEST(StreamGeometry, RequestsLessAheadOfWhatAShortKernelReads) {
  for (const int bits : {4, 8, 16}) {
    for (const int tokens : {kStreamFewTokens, 8, 16}) {
      for (const bool norms : {false, true}) {
        const int behind_long = StreamFirstRequests(tokens, bits, KernelAhead::kLong, norms);
        EXPECT_LE(behind_long, kStreamWarps);
        for (const KernelAhead ahead : {KernelAhead::kNorm, KernelAhead::kAttention}) {
          const int some = StreamFirstRequests(tokens, bits, ahead, norms);
          EXPECT_GT(some, 0);
          EXPECT_LE(some, behind_long);
        }
      }
      EXPECT_EQ(StreamFirstRequests(tokens, bits, KernelAhead::kLong, false), kStreamWarps);
      EXPECT_EQ(StreamFirstRequests(tokens, bits, KernelAhead::kAttention, false) < kStreamWarps,
                StreamGoesByKernelAhead(bits));
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
