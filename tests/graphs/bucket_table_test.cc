// SPDX-License-Identifier: Apache-2.0
// Buckets, in one dimension and in two.
#include "graphs/bucket_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ::reprise::testing::kInvalid;
constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;

std::vector<std::string> Names(const BucketTable& table) {
  std::vector<std::string> names;
  for (const Bucket& bucket : table.buckets()) names.push_back(bucket.name);
  return names;
}

TEST(BucketTable, SortsNamesAndRemovesDuplicates) {
  ASSERT_OK_AND_ASSIGN(const BucketTable table, BucketTable::Create({8, 1, 4, 8, 2, 1}, "decode"));
  EXPECT_THAT(Names(table), ElementsAre("decode/1", "decode/2", "decode/4", "decode/8"));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(table.buckets()[i].index, i);
  EXPECT_EQ(table.max_capacity(), 8);
}

TEST(BucketTable, RoundsUpToSmallestFittingBucket) {
  ASSERT_OK_AND_ASSIGN(const BucketTable table, BucketTable::Create({3, 7, 100}, "b"));
  const auto capacity_for = [&](int64_t size) { return (*table.SmallestThatFits(size))->capacity; };
  EXPECT_EQ(capacity_for(1), 3);
  EXPECT_EQ(capacity_for(3), 3);
  EXPECT_EQ(capacity_for(4), 7);
  EXPECT_EQ(capacity_for(7), 7);
  EXPECT_EQ(capacity_for(8), 100);
  EXPECT_EQ(capacity_for(100), 100);
}

TEST(BucketTable, RefusesSizesThatFitNoBucket) {
  ASSERT_OK_AND_ASSIGN(const BucketTable table, BucketTable::Create({4, 9}, "b"));
  EXPECT_THAT(table.SmallestThatFits(10),
              StatusIs(kOutOfRange, "size is 10; the largest bucket is 'b/9'"));
  EXPECT_THAT(table.SmallestThatFits(std::numeric_limits<int64_t>::max()),
              StatusIs(kOutOfRange, "'b/9'"));
  EXPECT_THAT(table.SmallestThatFits(0), StatusIs(kInvalid, "size is 0; allowed: 1 to 9"));
  EXPECT_THAT(table.SmallestThatFits(-3), StatusIs(kInvalid, "size is -3"));
}

TEST(BucketTable, RefusesNoBucketsAndCapacitiesBelowOne) {
  EXPECT_THAT(BucketTable::Create({}, "b"), StatusIs(kInvalid, "no buckets"));
  EXPECT_THAT(BucketTable::Create({4, 0}, "b"), StatusIs(kInvalid, "capacity is 0"));
  EXPECT_THAT(BucketTable::Create({-7, 4}, "b"), StatusIs(kInvalid, "capacity is -7"));
}

TEST(BucketTable, PowersOfTwoEndWithTheMaximumItself) {
  EXPECT_THAT(BucketTable::PowersOfTwoUpTo(1), ElementsAre(1));
  EXPECT_THAT(BucketTable::PowersOfTwoUpTo(2), ElementsAre(1, 2));
  EXPECT_THAT(BucketTable::PowersOfTwoUpTo(6), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(BucketTable::PowersOfTwoUpTo(8), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(BucketTable::PowersOfTwoUpTo(0), IsEmpty());
  EXPECT_EQ(BucketTable::PowersOfTwoUpTo(std::numeric_limits<int64_t>::max()).size(), 64u);
}

TEST(BucketTable, GridIsSortedByCellsThenRows) {
  ASSERT_OK_AND_ASSIGN(
      const BucketTable table,
      BucketTable::CreateGrid({{8, 16}, {1, 128}, {128, 1}, {1, 1}, {8, 16}}, "mixed"));
  EXPECT_THAT(Names(table), ElementsAre("mixed/1x1", "mixed/1x128", "mixed/8x16", "mixed/128x1"));
  EXPECT_EQ(table.max_capacity(), 128);
  EXPECT_EQ(table.buckets()[2].cells(), 128);
}

TEST(BucketTable, GridPicksTheFewestCellsThatHaveEnoughOfBoth) {
  ASSERT_OK_AND_ASSIGN(const BucketTable table,
                       BucketTable::CreateGrid({{1, 64}, {8, 1}, {8, 16}, {64, 64}}, "g"));
  const auto name_for = [&](int64_t rows, int64_t tokens) {
    return (*table.SmallestThatFits(BatchShape{rows, tokens}))->name;
  };
  EXPECT_EQ(name_for(1, 1), "g/8x1");
  EXPECT_EQ(name_for(1, 2), "g/1x64");
  EXPECT_EQ(name_for(2, 2), "g/8x16");
  EXPECT_EQ(name_for(9, 1), "g/64x64");
  EXPECT_EQ((*table.SmallestThatFits(8))->name, "g/8x1");
  EXPECT_THAT(table.SmallestThatFits(BatchShape{65, 1}),
              StatusIs(kOutOfRange, "size is 65x1; the largest bucket is 'g/64x64'"));
  EXPECT_THAT(table.SmallestThatFits(BatchShape{1, 0}),
              StatusIs(kInvalid, "size is 1x0; allowed: 1 to 64 rows of 1 to 64 tokens"));
}

TEST(BucketTable, OneDimensionHasOneTokenPerRow) {
  ASSERT_OK_AND_ASSIGN(const BucketTable table, BucketTable::Create({2, 4}, "b"));
  EXPECT_EQ((*table.SmallestThatFits(BatchShape{.rows = 3}))->capacity, 4);
  EXPECT_THAT(table.SmallestThatFits(BatchShape{3, 2}), StatusIs(kOutOfRange, "size is 3x2"));
}

TEST(BucketTable, GridRefusesSizesBelowOneAndProductsBeyondInt64) {
  EXPECT_THAT(BucketTable::CreateGrid({}, "g"), StatusIs(kInvalid, "no buckets"));
  EXPECT_THAT(BucketTable::CreateGrid({{4, 0}}, "g"),
              StatusIs(kInvalid, "bucket capacity is 4x0; allowed: at least 1 of both"));
  EXPECT_THAT(BucketTable::CreateGrid({{0, 4}}, "g"), StatusIs(kInvalid, "is 0x4"));
  EXPECT_THAT(BucketTable::CreateGrid({{int64_t{1} << 40, int64_t{1} << 40}}, "g"),
              StatusIs(kInvalid, "a product that fits 64 bits"));
}

}  // namespace
}  // namespace reprise::graphs
