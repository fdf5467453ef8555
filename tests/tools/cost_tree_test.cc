// SPDX-License-Identifier: Apache-2.0
// Fitting trees to made-up tables of costs.
#include "tools/tune/cost_tree.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr AttentionFeature kTokens = AttentionFeature::kVisibleTokens;
constexpr AttentionFeature kRows = AttentionFeature::kBatchRows;

CostSample Sample(uint32_t tokens, uint32_t rows, const std::vector<double>& times) {
  CostSample sample;
  sample.features[static_cast<uint32_t>(kTokens)] = tokens;
  sample.features[static_cast<uint32_t>(kRows)] = rows;
  sample.cost = CostsOf(times);
  return sample;
}

// 1, 2, 4, ... 128 rows at 128, 256, ... 32k tokens.
template <typename TimesOf>
std::vector<CostSample> Grid(const TimesOf& times_of) {
  std::vector<CostSample> samples;
  for (uint32_t rows = 1; rows <= 128; rows *= 2)
    for (uint32_t tokens = 128; tokens <= 32768; tokens *= 2)
      samples.push_back(Sample(tokens, rows, times_of(tokens, rows)));
  return samples;
}

uint32_t Chosen(const CostTree& tree, uint32_t tokens, uint32_t rows) {
  return tree.leaves[LeafOf(tree, Sample(tokens, rows, {1}).features)].index;
}

TEST(Costs, AreLogarithmsOfTimesByTheBest) {
  EXPECT_THAT(CostsOf(std::vector<double>{2, 1, 4}),
              ElementsAre(DoubleNear(std::log(2), 1e-12), 0.0, DoubleNear(std::log(4), 1e-12)));
}

TEST(CostTree, IsTheFirstCandidateWithoutSamples) {
  const CostTree tree = FitCostTree({}, {.features = {kTokens}});
  EXPECT_EQ(tree, CostTree());
  EXPECT_EQ(MeanCost(tree, {}), 0.0);
}

TEST(CostTree, FindsAPlantedThreshold) {
  const auto samples = Grid([](uint32_t tokens, uint32_t) {
    return tokens < 2048 ? std::vector<double>{2, 1, 3} : std::vector<double>{2, 3, 1};
  });
  const CostTree tree = FitCostTree(samples, {.features = {kRows, kTokens}});
  ASSERT_EQ(tree.num_nodes, 1u);
  ASSERT_EQ(tree.num_leaves, 2u);
  EXPECT_EQ(tree.nodes[0].feature, kTokens);
  // Between 1,024 and 2,048, at the geometric middle.
  EXPECT_EQ(tree.nodes[0].threshold, 1449u);
  EXPECT_EQ(tree.leaves[0].index, 1u);
  EXPECT_EQ(tree.leaves[1].index, 2u);
  EXPECT_EQ(MeanCost(tree, samples), 0.0);
}

TEST(CostTree, FindsTwoFeaturesAndTheirCorner) {
  const auto best = [](uint32_t tokens, uint32_t rows) -> uint32_t {
    return rows >= 16 ? 0 : tokens < 512 ? 1 : 2;
  };
  const auto samples = Grid([&](uint32_t tokens, uint32_t rows) {
    std::vector<double> times = {1.5, 1.5, 1.5};
    times[best(tokens, rows)] = 1;
    return times;
  });
  const CostTree tree = FitCostTree(samples, {.features = {kTokens, kRows}});
  EXPECT_EQ(tree.num_leaves, 3u);
  for (const uint32_t rows : {1u, 8u, 16u, 128u})
    for (const uint32_t tokens : {128u, 256u, 512u, 32768u})
      EXPECT_EQ(Chosen(tree, tokens, rows), best(tokens, rows)) << tokens << " " << rows;
}

TEST(CostTree, AsksForNothingButTheFeaturesThatItMayAskFor) {
  const auto samples = Grid([](uint32_t, uint32_t rows) {
    return rows < 8 ? std::vector<double>{1, 2} : std::vector<double>{3, 1};
  });
  const CostTree tree = FitCostTree(samples, {.features = {kTokens}});
  EXPECT_EQ(tree.num_leaves, 1u);
  EXPECT_EQ(tree.leaves[0].index, 1u);  // the better in the mean
}

TEST(CostTree, IgnoresNoiseBelowTheLeastGain) {
  std::mt19937_64 engine(1);
  const auto samples = Grid([&](uint32_t, uint32_t) {
    std::vector<double> times(10);
    for (double& time : times) time = 1 + 0.004 * static_cast<double>(engine() % 1000) / 1000;
    return times;
  });
  EXPECT_EQ(FitCostTree(samples, {.features = {kTokens, kRows}}).num_leaves, 1u);
  // It is there to be fitted.
  EXPECT_GT(FitCostTree(samples, {.features = {kTokens, kRows}, .min_gain = 0}).num_leaves, 1u);
}

TEST(CostTree, FindsAThresholdThroughNoise) {
  std::mt19937_64 engine(2);
  const auto samples = Grid([&](uint32_t tokens, uint32_t) {
    std::vector<double> times =
        tokens < 2048 ? std::vector<double>{1, 1.1, 1.1} : std::vector<double>{1.1, 1.1, 1};
    for (double& time : times) time *= 1 + 0.02 * static_cast<double>(engine() % 1000) / 1000;
    return times;
  });
  const CostTree tree = FitCostTree(samples, {.features = {kTokens, kRows}});
  ASSERT_EQ(tree.num_leaves, 2u);
  EXPECT_EQ(tree.nodes[0].threshold, 1449u);
}

// Every octave wants its own.
TEST(CostTree, KeepsToTheLimitOfLeavesAndSplitsWhereItGainsMost) {
  const auto samples = Grid([](uint32_t tokens, uint32_t) {
    std::vector<double> times(9, 2);
    for (uint32_t octave = 0; octave < 9; ++octave)
      if (tokens == 128u << octave) times[octave] = 1;
    return times;
  });
  double before = 1;
  for (const size_t most : {1u, 2u, 3u, 6u, 9u, 16u}) {
    const CostTree tree = FitCostTree(samples, {.features = {kTokens}, .max_leaves = most});
    EXPECT_EQ(tree.num_leaves, std::min<size_t>(most, 9));
    EXPECT_EQ(tree.num_nodes, tree.num_leaves - 1);
    EXPECT_LT(MeanCost(tree, samples), before);
    before = MeanCost(tree, samples) + 1e-9;
  }
}

TEST(CostTree, TakesTheEarlierOfWhatCostsTheSame) {
  const auto samples = Grid([](uint32_t, uint32_t) { return std::vector<double>{1, 1, 1}; });
  const CostTree tree = FitCostTree(samples, {.features = {kTokens, kRows}, .min_gain = 0});
  EXPECT_EQ(tree, CostTree());
  // Both features part alike: the first is asked.
  const std::vector<CostSample> alike = {Sample(1, 10, {1, 2}), Sample(1, 10, {1, 2}),
                                         Sample(4, 40, {2, 1}), Sample(4, 40, {2, 1})};
  EXPECT_EQ(FitCostTree(alike, {.features = {kRows, kTokens}}).nodes[0].feature, kRows);
  EXPECT_EQ(FitCostTree(alike, {.features = {kTokens, kRows}}).nodes[0].feature, kTokens);
}

TEST(CostTree, KeepsTheFirstCandidateWhereAnotherGainsTooLittle) {
  const auto samples = Grid([](uint32_t, uint32_t) { return std::vector<double>{1.004, 1, 1}; });
  EXPECT_EQ(FitCostTree(samples, {.features = {kTokens}}).leaves[0].index, 0u);
  EXPECT_EQ(FitCostTree(samples, {.features = {kTokens}, .min_gain = 0}).leaves[0].index, 1u);
}

TEST(CostTree, MakesNoLeafOfTooFewSamples) {
  const std::vector<CostSample> samples = {Sample(1, 1, {9, 1}), Sample(2, 1, {1, 2}),
                                           Sample(3, 1, {1, 2}), Sample(4, 1, {1, 2})};
  const CostTree tree = FitCostTree(samples, {.features = {kTokens}, .min_samples = 1});
  EXPECT_EQ(tree.num_leaves, 2u);
  EXPECT_EQ(tree.nodes[0].threshold, 2u);
  EXPECT_EQ(
      FitCostTree(samples, {.features = {kTokens}, .max_leaves = 3, .min_samples = 3}).num_leaves,
      1u);
}

TEST(CostTree, IsTheSameEveryTimeAndInWalkingOrder) {
  std::mt19937_64 engine(3);
  const auto samples = Grid([&](uint32_t, uint32_t) {
    std::vector<double> times(6);
    for (double& time : times) time = 1 + static_cast<double>(engine() % 1000) / 1000;
    return times;
  });
  const CostTreeOptions options{.features = {kTokens, kRows}, .max_leaves = 16, .min_gain = 0};
  const CostTree tree = FitCostTree(samples, options);
  EXPECT_EQ(FitCostTree(samples, options), tree);
  EXPECT_GT(tree.num_leaves, 6u);
  std::vector<uint32_t> leaves;
  for (uint32_t i = 0; i < tree.num_nodes; ++i) {
    for (const kernels::TreeBranch branch : {tree.nodes[i].below, tree.nodes[i].at_least}) {
      if (branch.is_leaf()) leaves.push_back(branch.index());
      if (!branch.is_leaf()) {
        EXPECT_GT(branch.index(), i);
      }
    }
  }
  EXPECT_EQ(leaves.size(), tree.num_leaves);
}

}  // namespace
}  // namespace reprise::tools
