// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tune_batches.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/bench/batches.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TuneBatches, AreFewWhereSizesAreSmallAndFitTheLimits) {
  const TuneGrid grid{.max_rows = 4, .max_context = 100, .max_blocks = 20, .chunk = 20};
  const TuneBatches batches = MakeTuneBatches(grid);
  EXPECT_FALSE(batches.rows.empty());
  EXPECT_FALSE(batches.prompts.empty());
  EXPECT_THAT(batches.deal, IsEmpty());
  EXPECT_GE(batches.held_out.size(), 10u);
  EXPECT_FALSE(batches.held_out_prompts.empty());
  for (const BenchCell& cell : batches.cells) {
    EXPECT_LE(cell.rows.size(), 4u);
    EXPECT_LE(cell.longest(), 100u) << cell.name;
    EXPECT_LE(cell.Blocks(16), 20u) << cell.name;
  }
  EXPECT_OK(CheckCells(batches.cells, 100));  // every name once
}

TEST(TuneBatches, CoverAllSizesEarly) {
  const TuneBatches batches = MakeTuneBatches({.dealt = true});
  EXPECT_EQ(batches.rows.size(), 8 * 17u);
  std::set<size_t> rows;
  std::set<uint32_t> lengths;
  for (size_t i = 0; i < 12; ++i) {
    const BenchCell& cell = batches.cells[batches.rows[i]];
    EXPECT_EQ(cell.kind, BatchKind::kUniform);
    EXPECT_FALSE(cell.mixed());
    rows.insert(cell.rows.size());
    lengths.insert(cell.longest());
  }
  EXPECT_EQ(batches.cells[batches.rows[0]].name, "b1 x 128");
  EXPECT_GE(rows.size(), 4u);
  EXPECT_GE(lengths.size(), 4u);
  std::set<BatchKind> kinds;
  for (size_t i = 0; i < 12; ++i) kinds.insert(batches.cells[batches.deal[i]].kind);
  EXPECT_EQ(kinds.size(), 4u);
}

TEST(TuneBatches, HoldOutWhatIsNotFittedOnByTheSeed) {
  const TuneBatches batches = MakeTuneBatches({.seed = 5});
  EXPECT_EQ(batches.held_out.size(), 30u);
  EXPECT_EQ(batches.held_out_prompts.size(), 8u);
  for (const size_t i : batches.held_out) {
    EXPECT_FALSE(batches.cells[i].mixed());
    for (const size_t fitted : batches.rows)
      EXPECT_NE(batches.cells[i].rows, batches.cells[fitted].rows);
  }
  for (const size_t i : batches.held_out_prompts) EXPECT_TRUE(batches.cells[i].mixed());
  const auto rows_of = [](const TuneBatches& b) { return b.cells[b.held_out[1]].rows; };
  EXPECT_EQ(rows_of(MakeTuneBatches({.seed = 5})), rows_of(batches));
  EXPECT_NE(rows_of(MakeTuneBatches({.seed = 6})), rows_of(batches));
}

TEST(TuneBatches, HaveNoChunksWhereAllRowsDecode) {
  const TuneBatches batches = MakeTuneBatches({.decode_shares = {100}});
  EXPECT_THAT(batches.prompts, IsEmpty());
  EXPECT_THAT(batches.held_out_prompts, IsEmpty());
  for (const BenchCell& cell : batches.cells) EXPECT_FALSE(cell.mixed());
}

TEST(TuneBatches, HaveRowsOfAFewQueryTokensWhereTheseMayBeCut) {
  const auto few = [](const TuneBatches& batches, const std::vector<size_t>& list) {
    return std::count_if(list.begin(), list.end(), [&](size_t i) {
      const auto& rows = batches.cells[i].rows;
      return std::any_of(rows.begin(), rows.end(), [](const BatchRow& row) {
        return row.query_tokens > 1 && row.query_tokens <= 16;
      });
    });
  };
  const TuneBatches whole = MakeTuneBatches({});
  EXPECT_EQ(few(whole, whole.prompts), 0);
  for (const std::vector<uint32_t>& shares : {std::vector<uint32_t>{50}, {100}}) {
    const TuneBatches batches = MakeTuneBatches({.decode_shares = shares, .cut_prompts = true});
    EXPECT_EQ(few(batches, batches.prompts), 32);
    EXPECT_EQ(few(batches, batches.held_out_prompts), 8);
    EXPECT_OK(CheckCells(batches.cells, 32768));
  }
  EXPECT_OK(CheckCells(MakeTuneBatches({.max_context = 10, .cut_prompts = true}).cells, 10));
}

TEST(TuneBatches, HaveTheStandardCellsInTheirOrder) {
  EXPECT_THAT(MakeTuneBatches({}).standard, IsEmpty());
  const TuneBatches batches = MakeTuneBatches({.standard = true, .seed = 3});
  const std::vector<BenchCell> cells = StandardCells(3);
  ASSERT_EQ(batches.standard.size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(batches.cells[batches.standard[i]].name, cells[i].name);
    EXPECT_EQ(batches.cells[batches.standard[i]].rows, cells[i].rows);
  }
  EXPECT_LT(MakeTuneBatches({.max_context = 4096, .standard = true}).standard.size(), cells.size());
  EXPECT_EQ(MakeTuneBatches({.max_rows = 8, .standard = true}).standard.size(), 8u);
}

TEST(Features, CountWhatThePlanCounts) {
  const BenchCell cell{.name = "x", .rows = {{99, 1}, {40, 10}, {5, 1}}};
  EXPECT_THAT(FeaturesOf(cell, 0, 0), ElementsAre(100, 1, 3, 106, 100, 10));
  EXPECT_THAT(FeaturesOf(cell, 0, 1), ElementsAre(50, 10, 3, 106, 100, 10));
  EXPECT_THAT(FeaturesOf(cell, 20, 1), ElementsAre(29, 10, 3, 26, 20, 10));
  EXPECT_EQ(LongestRow(cell, 0, true), 0u);
  EXPECT_EQ(LongestRow(cell, 0, false), 1u);
}

}  // namespace
}  // namespace reprise::tools
