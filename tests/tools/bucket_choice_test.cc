// SPDX-License-Identifier: Apache-2.0
// The cheapest buckets for given steps, against all sets that there are.
#include "tools/advise/bucket_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

double Room(const StepGroup&, int64_t capacity) { return static_cast<double>(capacity); }

StepGroup Group(int64_t size, double weight) { return {.size = size, .weight = weight}; }

TEST(BucketChoice, TakesTheSizesThatStepsHave) {
  const std::vector<StepGroup> groups = {Group(3, 10), Group(5, 1), Group(9, 10)};
  const std::vector<int64_t> candidates = {1, 2, 3, 4, 5, 8, 9, 16};
  const auto choices = ChooseBuckets(groups, candidates, 4, Room);
  ASSERT_THAT(choices, SizeIs(4));
  EXPECT_THAT(choices[0].buckets, ElementsAre(16));
  EXPECT_EQ(choices[0].cost, 21 * 16);
  EXPECT_THAT(choices[1].buckets, ElementsAre(9, 16));
  EXPECT_THAT(choices[2].buckets, ElementsAre(3, 9, 16));
  EXPECT_EQ(choices[2].cost, 10 * 3 + 9 + 10 * 9);
  EXPECT_THAT(choices[3].buckets, ElementsAre(3, 5, 9, 16));
}

TEST(BucketChoice, KeepsTheLargestAndNoMoreThanThereAre) {
  const std::vector<StepGroup> groups = {Group(1, 1)};
  const std::vector<int64_t> candidates = {1, 64};
  const auto choices = ChooseBuckets(groups, candidates, 9, Room);
  ASSERT_THAT(choices, SizeIs(2));
  EXPECT_THAT(choices[1].buckets, ElementsAre(1, 64));
  EXPECT_THAT(ChooseBuckets({}, candidates, 1, Room)[0].buckets, ElementsAre(64));
}

TEST(BucketChoice, LeavesOutWhatItsCostDoesNotTell) {
  const std::vector<StepGroup> groups = {Group(2, 1), Group(4, 1)};
  const std::vector<int64_t> candidates = {2, 4, 64};
  const auto cost = [](const StepGroup&, int64_t capacity) {
    return capacity > 8 ? std::numeric_limits<double>::infinity() : static_cast<double>(capacity);
  };
  const auto choices = ChooseBuckets(groups, candidates, 3, cost);
  EXPECT_EQ(choices[0].cost, std::numeric_limits<double>::infinity());
  EXPECT_THAT(choices[1].buckets, ElementsAre(4, 64));
  EXPECT_EQ(choices[1].cost, 8);
}

TEST(CostOf, IsInfiniteWhereAStepFitsNone) {
  const std::vector<StepGroup> groups = {Group(2, 3), Group(4, 1)};
  const std::vector<int64_t> fit = {3, 4}, small = {3};
  EXPECT_EQ(CostOf(groups, fit, Room), 3 * 3 + 4);
  EXPECT_EQ(CostOf(groups, small, Room), std::numeric_limits<double>::infinity());
}

// The least cost of any set of `count` of the candidates that has the largest.
double LeastOfAll(const std::vector<StepGroup>& groups, const std::vector<int64_t>& candidates,
                  int count, const BucketCostFn& cost) {
  double least = std::numeric_limits<double>::infinity();
  const uint32_t largest = 1u << (candidates.size() - 1);
  for (uint32_t bits = largest; bits < 2 * largest; ++bits) {
    if (__builtin_popcount(bits) != count) continue;
    std::vector<int64_t> set;
    for (size_t i = 0; i < candidates.size(); ++i)
      if ((bits >> i & 1) != 0) set.push_back(candidates[i]);
    least = std::min(least, CostOf(groups, set, cost));
  }
  return least;
}

// Costs that rise and fall, so that a larger bucket may be the cheaper one.
TEST(BucketChoice, IsTheBestOfAllSets) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<StepGroup> groups;
    std::vector<int64_t> candidates;
    std::vector<double> price(40);
    for (double& p : price) p = 1 + random() % 100;
    for (int64_t size = 1; size < 40; ++size) {
      if (random() % 2 == 0) groups.push_back(Group(size, 1 + random() % 7));
      if (random() % 4 == 0) candidates.push_back(size);
    }
    candidates.push_back(40);
    const auto cost = [&price](const StepGroup& group, int64_t capacity) {
      return price[static_cast<size_t>(capacity - 1)] + static_cast<double>(group.size % 3);
    };
    const auto choices = ChooseBuckets(groups, candidates, 5, cost);
    for (size_t k = 0; k < choices.size(); ++k) {
      EXPECT_THAT(choices[k].buckets, SizeIs(k + 1));
      EXPECT_DOUBLE_EQ(choices[k].cost, CostOf(groups, choices[k].buckets, cost));
      EXPECT_DOUBLE_EQ(choices[k].cost,
                       LeastOfAll(groups, candidates, static_cast<int>(k) + 1, cost));
    }
  }
}

}  // namespace
}  // namespace reprise::tools
