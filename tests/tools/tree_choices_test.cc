// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tree_choices.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::AttentionTreeLimits;
using ::testing::ElementsAre;

constexpr AttentionTreeLimits kDealing = {
    .max_splits = 32, .num_shares = 200, .max_prompt_q_tokens = 16, .batch_invariant = false};
constexpr AttentionTreeLimits kNotDealing = {
    .max_splits = 32, .num_shares = 0, .max_prompt_q_tokens = 16, .batch_invariant = false};

TEST(Choices, BeginWithTheBuiltInOneAndKeepToTheLimits) {
  const auto splits = SplitCandidates(kDealing);
  EXPECT_EQ(splits.size(), 10u);
  EXPECT_EQ(splits[0], kernels::RowChoice());
  for (const kernels::RowChoice& choice : SplitCandidates({.max_splits = 16}))
    EXPECT_LE(choice.split.max_splits, 16u);
  EXPECT_THAT(PromptCandidates(kDealing, false),
              ElementsAre(PromptChoice{0}, PromptChoice{8}, PromptChoice{4}));
  // Behind the others, which keep their places.
  EXPECT_THAT(PromptCandidates(kDealing, true),
              ElementsAre(PromptChoice{0}, PromptChoice{8}, PromptChoice{4}, PromptChoice{0, 2},
                          PromptChoice{0, 4}, PromptChoice{0, 8}, PromptChoice{0, 16}));
  EXPECT_EQ(PromptCandidates({.max_splits = 8, .max_prompt_q_tokens = 16}, true).size(), 5u);
  EXPECT_THAT(PromptCandidates({.max_prompt_q_tokens = 1}, true), ElementsAre(PromptChoice{0}));
  const auto deal = DealCandidates(kDealing);
  EXPECT_EQ(deal.size(), 20u);
  EXPECT_EQ(deal[0], kernels::BatchChoice());
  for (const uint32_t shares : {0u, 200u, 150u, 100u, 50u})
    EXPECT_EQ(std::count_if(deal.begin(), deal.end(), [&](auto c) { return c.shares == shares; }),
              4);
  EXPECT_EQ(NameOf(deal[0]), "even, overhead 64");
  EXPECT_EQ(NameOf(kernels::BatchChoice{.shares = 200}), "200 blocks, overhead 64");
  EXPECT_EQ(DealCandidates(kNotDealing).size(), 1u);
}

CostTree TwoLeaves(AttentionFeature feature, uint32_t threshold, uint32_t below,
                   uint32_t at_least) {
  CostTree tree;
  tree.num_nodes = 1;
  tree.num_leaves = 2;
  tree.root = kernels::TreeBranch::ToNode(0);
  tree.nodes[0] = {feature, threshold, kernels::TreeBranch::ToLeaf(0),
                   kernels::TreeBranch::ToLeaf(1)};
  tree.leaves[0].index = below;
  tree.leaves[1].index = at_least;
  return tree;
}

TEST(Choices, OfPartsMakeOneTreeThatFilesCanHold) {
  FittedParts parts;
  EXPECT_EQ(JoinParts(parts, kDealing), AttentionTree());
  parts.splits = TwoLeaves(AttentionFeature::kVisibleTokens, 512, 1, 2);
  parts.prompts = TwoLeaves(AttentionFeature::kQueryTokens, 64, 1, 2);
  parts.deal = TwoLeaves(AttentionFeature::kBatchRows, 9, 3, 4);
  const AttentionTree tree = JoinParts(parts, kDealing);
  EXPECT_OK(kernels::CheckAttentionTree(tree, kDealing));
  const engine::NamedAttentionTree named = NameLeaves(tree);
  ASSERT_OK_AND_ASSIGN(const auto read, engine::ParseAttentionTree(AttentionTreeText(named)));
  EXPECT_EQ(read.tree, tree);
  EXPECT_THAT(named.row_leaves,
              ElementsAre("64 x 16", "64 x 32", "256 x 32, prompts 8", "256 x 32, prompts 4"));
  EXPECT_THAT(WaysToRowLeaves(tree), ElementsAre("visible_tokens < 512, query_tokens < 2",
                                                 "visible_tokens >= 512, query_tokens < 2",
                                                 "2 <= query_tokens < 64", "query_tokens >= 64"));
  EXPECT_THAT(WaysToBatchLeaves(tree), ElementsAre("batch_rows < 9", "batch_rows >= 9"));
}

TEST(Choices, PromptsThatAreCutKeepToTheBuiltInSplit) {
  FittedParts parts;
  parts.splits.leaves[0].index = 1;
  parts.prompts.leaves[0].index = 4;
  const AttentionTree tree = JoinParts(parts, kNotDealing);
  EXPECT_OK(kernels::CheckAttentionTree(tree, kNotDealing));
  EXPECT_THAT(NameLeaves(tree).row_leaves, ElementsAre("64 x 16", "256 x 32, prompts cut in 4"));
  EXPECT_THAT(WaysToRowLeaves(tree), ElementsAre("query_tokens < 2", "query_tokens >= 2"));
  EXPECT_EQ(NameOf(PromptChoice{8, 1}), "prompts 8");
  EXPECT_EQ(NameOf(PromptChoice{}), "prompts whole");
  EXPECT_EQ(PromptTrees(parts, kNotDealing, false).size(), 3u);
  EXPECT_EQ(PromptTrees(parts, kNotDealing, true)[4], tree);
}

TEST(Choices, PromptsOfOneLeafNeedNoNode) {
  FittedParts parts;
  parts.splits = TwoLeaves(AttentionFeature::kVisibleTokens, 512, 1, 1);
  parts.prompts.leaves[0].index = 1;
  const AttentionTree tree = JoinParts(parts, kNotDealing);
  EXPECT_EQ(tree.rows.num_nodes, 1u);
  EXPECT_EQ(tree.rows.leaves[0].prompt_q_tokens, 8u);
  EXPECT_THAT(NameLeaves(tree).row_leaves,
              ElementsAre("64 x 16, prompts 8", "64 x 16, prompts 8 (2)"));
}

}  // namespace
}  // namespace reprise::tools
