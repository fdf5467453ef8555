// SPDX-License-Identifier: Apache-2.0
// The batches of `reprise bench attention`: how long their rows are.
#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/bench/batches.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;

double Mean(const std::vector<uint32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
}

TEST(BatchLengths, UniformRowsAreEquallyLong) {
  EXPECT_THAT(BatchLengths(BatchKind::kUniform, 3, 100, 1), ElementsAre(100, 100, 100));
}

TEST(BatchLengths, LogUniformRowsFillEveryOctaveAlike) {
  const auto lengths = BatchLengths(BatchKind::kLogUniform, 70, 8192, 1);
  ASSERT_EQ(lengths.size(), 70u);
  for (uint32_t from = 64; from < 8192; from *= 2) {
    const auto in_octave = std::count_if(lengths.begin(), lengths.end(),
                                         [&](uint32_t n) { return n >= from && n < 2 * from; });
    EXPECT_NEAR(static_cast<double>(in_octave), 10, 1) << from;
  }
}

TEST(BatchLengths, OneSkewedRowIsLong) {
  auto lengths = BatchLengths(BatchKind::kSkewed, 32, 32768, 1);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_EQ(lengths.back(), 32768u);
  lengths.pop_back();
  EXPECT_THAT(lengths, Each(256u));
  EXPECT_THAT(BatchLengths(BatchKind::kSkewed, 1, 32768, 1), ElementsAre(32768));
}

TEST(BatchLengths, ShareGptRowsHaveTheMeanAndTheTail) {
  auto lengths = BatchLengths(BatchKind::kShareGpt, 128, 32768, 1);
  EXPECT_NEAR(Mean(lengths), kShareGptMean, 1);
  std::sort(lengths.begin(), lengths.end());
  // The median of a lognormal variable is its mean by exp(sigma^2 / 2).
  EXPECT_NEAR(lengths[64], kShareGptMean / 1.65, 25);
  EXPECT_GT(lengths.back(), 4000u);
  EXPECT_LT(lengths.front(), 40u);
  EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), 32768u);
  const auto cut = BatchLengths(BatchKind::kShareGpt, 128, 600, 1);
  EXPECT_EQ(*std::max_element(cut.begin(), cut.end()), 600u);
}

TEST(BatchLengths, ASeedIsRepeatableAndChangesTheOrderAlone) {
  for (const BatchKind kind : AllBatchKinds()) {
    auto lengths = BatchLengths(kind, 64, 4096, 7);
    EXPECT_EQ(BatchLengths(kind, 64, 4096, 7), lengths);
    auto other = BatchLengths(kind, 64, 4096, 8);
    if (kind != BatchKind::kUniform) {
      EXPECT_NE(other, lengths) << NameOf(kind);
    }
    std::sort(lengths.begin(), lengths.end());
    std::sort(other.begin(), other.end());
    EXPECT_EQ(other, lengths) << NameOf(kind);
  }
}

TEST(BatchLengths, ShortContextsHaveRowsOfAtLeastAToken) {
  for (const BatchKind kind : AllBatchKinds())
    EXPECT_THAT(BatchLengths(kind, 5, 1, 1), Each(1u)) << NameOf(kind);
}

TEST(Cells, ShareOfRowsDecodesAndTheOthersBringChunks) {
  const auto cells =
      MakeCells({.rows = {8}, .contexts = {100}, .decode_shares = {0, 50, 100}, .chunk = 32});
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].name, "b8 x 100, 0 % decode + 32");
  EXPECT_EQ(cells[0].num_decode_rows(), 0u);
  EXPECT_EQ(cells[0].query_tokens(), 8 * 32u);
  EXPECT_EQ(cells[1].num_decode_rows(), 4u);
  EXPECT_EQ(cells[1].longest(), 132u);
  EXPECT_EQ(cells[1].SeenTokens(0), 4 * 100 + 4 * 132u);
  EXPECT_TRUE(cells[1].mixed());
  EXPECT_EQ(cells[2].name, "b8 x 100");
  EXPECT_EQ(cells[2].rows[0], (BatchRow{99, 1}));
  EXPECT_FALSE(cells[2].mixed());
}

TEST(Cells, AreOneForEveryCombination) {
  const auto cells = MakeCells({.rows = {1, 4},
                                .contexts = {128, 2048, 3000},
                                .kinds = {BatchKind::kUniform, BatchKind::kSkewed},
                                .decode_shares = {50, 100}});
  EXPECT_EQ(cells.size(), 24u);
  EXPECT_OK(CheckCells(cells, 4096));
  EXPECT_EQ(cells[23].name, "b4 x 3000 skewed");
}

TEST(Cells, WindowsHideTokensAndBlocksRoundUp) {
  const BenchCell cell{.name = "x", .rows = {{99, 1}, {40, 10}, {5, 1}}};
  EXPECT_EQ(cell.SeenTokens(0), 100 + 50 + 6u);
  // 20; from position 21 on; all.
  EXPECT_EQ(cell.SeenTokens(20), 20 + 29 + 6u);
  EXPECT_EQ(cell.Blocks(16), 7 + 4 + 1u);
}

TEST(Cells, SharedTokensCountOnce) {
  const auto cells = MakeCells({.rows = {3}, .contexts = {100}, .shared_tokens = 64});
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].name, "b3 x 100 sharing 64");
  EXPECT_EQ(cells[0].SeenTokens(0), 64 + 3 * 36u);
  EXPECT_EQ(cells[0].SeenTokens(60), 24 + 3 * 36u);
  EXPECT_EQ(cells[0].SeenTokens(20), 3 * 20u);
  EXPECT_EQ(cells[0].Blocks(16), 4 + 3 * 3u);
  EXPECT_OK(CheckCells(cells, 100, 16));
  EXPECT_THAT(CheckCells(cells, 100, 48),
              StatusIs(absl::StatusCode::kInvalidArgument, "has 64, allowed: whole blocks"));
  EXPECT_THAT(CheckCells(MakeCells({.rows = {3}, .contexts = {64}, .shared_tokens = 64}), 100),
              StatusIs(absl::StatusCode::kOutOfRange, "a row with 63 tokens before its step"));
}

TEST(Cells, StandardOnesAreAllThereAndFit) {
  const auto cells = StandardCells(1);
  EXPECT_EQ(cells.size(), 21u);
  EXPECT_OK(CheckCells(cells, 32768));
  std::set<std::string> names;
  for (const BenchCell& cell : cells) names.insert(cell.name);
  for (const char* name : {"b1 x 128", "b1 x 32k", "b8 x 512", "b32 x 4k", "b128 x 4k",
                           "b64 ragged 64..8k", "skew 1 x 32k + 31 x 256", "b128 ShareGPT-like",
                           "31 x 1k + prompt 512", "31 x 1k + 2k on 8k"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
  const BenchCell& chunk = cells.back();
  EXPECT_EQ(chunk.rows.size(), 32u);
  EXPECT_EQ(chunk.num_decode_rows(), 31u);
  EXPECT_EQ(chunk.longest(), 10240u);
}

TEST(Cells, RefusesRowsThatAreTooLongAndCellsThatComeTwice) {
  EXPECT_THAT(CheckCells(MakeCells({.rows = {1}, .contexts = {128, 129}}), 128),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "cell \"b1 x 129\" has a row of 129 tokens, allowed: at most 128"));
  EXPECT_THAT(CheckCells(MakeCells({.rows = {1, 1}, .contexts = {128}}), 128),
              StatusIs(absl::StatusCode::kInvalidArgument, "got \"b1 x 128\" twice"));
}

}  // namespace
}  // namespace reprise::tools
