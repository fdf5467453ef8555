// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/cases/step_cases.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::AttentionTreeLimits;
using kernels::CheckAttentionTree;
using kernels::TreeBranch;

constexpr AttentionTreeLimits kDealt = {.num_shares = 264, .max_prompt_q_tokens = 16};

// A tree that asks, with one thing wrong that `spoil` does.
template <typename Spoil>
absl::Status CheckSpoilt(const Spoil& spoil, const AttentionTreeLimits& limits = kDealt) {
  AttentionTree tree = kernels::BushyTree(/*batch_invariant=*/true);
  spoil(tree);
  return CheckAttentionTree(tree, limits);
}

TEST(CheckAttentionTree, PassesTheDefaultAndTreesThatAsk) {
  EXPECT_OK(CheckAttentionTree(AttentionTree(), {}));
  EXPECT_OK(CheckAttentionTree(AttentionTree(), kDealt));
  EXPECT_OK(CheckSpoilt([](AttentionTree&) {}));
}

TEST(CheckAttentionTree, RefusesWalksThatDoNotEnd) {
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.nodes[1].below = TreeBranch::ToNode(1); }),
              StatusIs(kInvalid, "rows: node 1: a node is 1; allowed: those behind it, below 3"));
  EXPECT_THAT(
      CheckSpoilt([](AttentionTree& t) { t.batch.nodes[2].at_least = TreeBranch::ToNode(0); }),
      StatusIs(kInvalid, "batch: node 2: a node is 0"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.root = TreeBranch::ToNode(3); }),
              StatusIs(kInvalid, "rows: root: a node is 3"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.nodes[2].below = TreeBranch::ToLeaf(4); }),
              StatusIs(kInvalid, "rows: node 2: a leaf is 4; allowed: below 4"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.batch.root = TreeBranch::ToLeaf(5); }),
              StatusIs(kInvalid, "batch: root: a leaf is 5; allowed: below 5"));
}

TEST(CheckAttentionTree, RefusesImpossibleSizes) {
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.num_leaves = 0; }),
              StatusIs(kInvalid, "rows: number of leaves is 0; allowed: 1 to 16"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.batch.num_leaves = 17; }),
              StatusIs(kInvalid, "batch: number of leaves is 17"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.batch.num_nodes = 16; }),
              StatusIs(kInvalid, "batch: number of nodes is 16; allowed: 0 to 15"));
}

TEST(CheckAttentionTree, RefusesFeaturesThatAreNoneOrNotOfTheTree) {
  const auto unknown = static_cast<AttentionFeature>(6);
  EXPECT_THAT(CheckSpoilt([&](AttentionTree& t) { t.rows.nodes[0].feature = unknown; }),
              StatusIs(kInvalid, "rows: node 0: feature is 6; allowed: below 6"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) {
                t.batch.nodes[1].feature = AttentionFeature::kQueryTokens;
              }),
              StatusIs(kInvalid, "batch: node 1: feature is query_tokens; allowed: features of"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.asks_for_batch = 0; }),
              StatusIs(kInvalid, "asks_for_batch is 0; allowed: 1"));
}

TEST(CheckAttentionTree, RefusesChoicesThatKernelsCannotDo) {
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.leaves[2].split.min_split_tokens = 100; }),
              StatusIs(kInvalid,
                       "rows: leaf 2: min_split_tokens is 100; allowed: 64 to 1048576, "
                       "multiples of 64"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.leaves[0].split.split_multiple = 0; }),
              StatusIs(kInvalid, "rows: leaf 0: split_multiple is 0"));
  EXPECT_THAT(
      CheckSpoilt([](AttentionTree& t) { t.rows.leaves[1].split.min_split_tokens = 1u << 21; }),
      StatusIs(kInvalid, "rows: leaf 1: min_split_tokens is 2097152"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.leaves[1].split.max_splits = 33; }),
              StatusIs(kInvalid, "rows: leaf 1: max_splits is 33; allowed: 1 to 32"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.leaves[1].split.max_splits = 0; }),
              StatusIs(kInvalid, "rows: leaf 1: max_splits is 0"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.leaves[3].prompt_q_tokens = 17; }),
              StatusIs(kInvalid, "rows: leaf 3: prompt_q_tokens is 17; allowed: 0 to 16"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.rows.leaves[0].prompt_splits = 0; }),
              StatusIs(kInvalid, "rows: leaf 0: prompt_splits is 0; allowed: 1 to 32"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.batch.leaves[4].shares = 265; }),
              StatusIs(kInvalid, "batch: leaf 4: shares is 265; allowed: 0 to 264"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.batch.leaves[0].leaf_overhead = 8; }),
              StatusIs(kInvalid,
                       "batch: leaf 0: leaf_overhead is 8; allowed: 0 to 4096, "
                       "multiples of 16"));
  EXPECT_THAT(CheckSpoilt([](AttentionTree& t) { t.batch.leaves[0].leaf_overhead = 4112; }),
              StatusIs(kInvalid, "batch: leaf 0: leaf_overhead is 4112"));
}

// Where rows are not dealt, splits may have any length, and shares mean nothing.
TEST(CheckAttentionTree, KnowsDevicesThatDealNothing) {
  const AttentionTreeLimits items = {.max_prompt_q_tokens = 16};
  const auto odd = [](AttentionTree& t) {
    t.rows.leaves[2].split = {.min_split_tokens = 5, .max_splits = 3, .split_multiple = 7};
    for (kernels::BatchChoice& choice : t.batch.leaves) choice.shares = 0;
  };
  EXPECT_OK(CheckSpoilt(odd, items));
  EXPECT_THAT(CheckSpoilt([](AttentionTree&) {}, items),
              StatusIs(kInvalid, "batch: leaf 0: shares is 3; allowed: 0 to 0"));
}

TEST(CheckAttentionTree, NamesLeavesThatHaveNames) {
  AttentionTree tree;
  tree.rows.leaves[0].split.max_splits = 0;
  const std::vector<std::string> names = {"all rows"};
  EXPECT_THAT(CheckAttentionTree(tree, {}, {.rows = names}),
              StatusIs(kInvalid, "rows: leaf \"all rows\": max_splits is 0"));
}

TEST(CheckAttentionTree, KeepsRowsFromTheBatchUnlessToldOtherwise) {
  const AttentionTree tree = kernels::BushyTree(/*batch_invariant=*/false);
  EXPECT_FALSE(IsBatchInvariant(tree));
  EXPECT_TRUE(IsBatchInvariant(kernels::BushyTree(true)));
  AttentionTreeLimits limits = kDealt;
  EXPECT_THAT(CheckAttentionTree(tree, limits), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                         "bits would depend on their neighbours"));
  limits.batch_invariant = false;
  EXPECT_OK(CheckAttentionTree(tree, limits));
}

}  // namespace
}  // namespace reprise::testing
