// SPDX-License-Identifier: Apache-2.0
// AttentionTree: what attention's plan decides by. It lies in device memory, at an address that
// graphs are captured with; another tree may be copied there between two replays.
//
// It is two trees. That of rows is walked for every row and makes choices that can change a row's
// bits. That of the batch is walked once per step and makes choices that cannot. A tree is batch
// invariant if rows are asked for features of their own alone: then a row's bits do not depend on
// its neighbours.
#ifndef REPRISE_KERNELS_ATTENTION_DECISION_TREE_H_
#define REPRISE_KERNELS_ATTENTION_DECISION_TREE_H_

#include <cstdint>

namespace reprise::kernels {

// What a node asks for: a number, counted anew in every step.
enum class AttentionFeature : uint32_t {
  // Of a row:
  kVisibleTokens = 0,  // KV tokens that its query tokens see
  kQueryTokens,
  // Of the batch:
  kBatchRows,      // rows that run
  kDecodeTokens,   // visible tokens of all rows of one query token
  kLongestDecode,  // of the longest such row
  kPromptTokens,   // query tokens of all rows of more
};
inline constexpr uint32_t kNumAttentionFeatures = 6;
constexpr bool IsOfBatch(AttentionFeature feature) {
  return feature >= AttentionFeature::kBatchRows;
}

// Which way to go: to a node, or to a leaf, which ends the walk.
struct TreeBranch {
  uint32_t word = 0;

  static constexpr uint32_t kNode = 1u << 31;
  static constexpr TreeBranch ToNode(uint32_t index) { return {index | kNode}; }
  static constexpr TreeBranch ToLeaf(uint32_t index) { return {index}; }
  constexpr bool is_leaf() const { return (word & kNode) == 0; }
  constexpr uint32_t index() const { return word & ~kNode; }
  constexpr bool operator==(const TreeBranch&) const = default;
};

// To `below` where the feature is less than the threshold, to `at_least` where it is not.
struct TreeNode {
  AttentionFeature feature = AttentionFeature::kVisibleTokens;
  uint32_t threshold = 0;
  TreeBranch below = {}, at_least = {};

  constexpr bool operator==(const TreeNode&) const = default;
};

// How a row's KV is cut into splits: a rule of that row alone. For rows of `tokens` visible ones a
// split has max(min_split_tokens, ceil(tokens / max_splits) rounded up to split_multiple) tokens.
struct SplitRule {
  uint32_t min_split_tokens = 256;
  uint32_t max_splits = 32;
  uint32_t split_multiple = 64;

  constexpr bool operator==(const SplitRule&) const = default;
};

// A leaf of the rows' tree. May change a row's bits.
struct RowChoice {
  SplitRule split = {};          // of rows of one query token
  uint32_t prompt_q_tokens = 0;  // query tokens of a work item of the others; 0: the kernel's most
  // Into how many splits the KV of a row of several query tokens is cut at most, if one work item
  // holds them all: by `split`, of lengths that are multiples of kPromptSplitMultiple, and no more
  // splits than there is room for (AttentionPlanRule.max_splits). 1: not at all.
  uint32_t prompt_splits = 1;

  constexpr bool operator==(const RowChoice&) const = default;
};

// A leaf of the batch's tree. Changes no bits.
struct BatchChoice {
  // Blocks that decode rows are dealt to; 0: as many as come out even (NumTaking, plan_body.h).
  uint32_t shares = 0;
  // What beginning and ending a leaf of KV weighs in the deal, in tokens; a multiple of
  // kWeightTokens.
  uint32_t leaf_overhead = 64;

  constexpr bool operator==(const BatchChoice&) const = default;
};
// The unit of weights in the deal.
inline constexpr uint32_t kWeightTokens = 16;
// So that weights stay within 32 bits.
inline constexpr uint32_t kMaxLeafOverhead = 4096;
inline constexpr uint32_t kMaxSplitTokens = 1u << 20;
// Where splits of rows of several query tokens begin and end: as far apart as the tiles of
// attention_matrix_body.h are wide. A tile of the prefill kernel on products of warpgroups, twice
// as wide, may lie in two: each masks the other's half.
inline constexpr uint32_t kPromptSplitMultiple = 64;

inline constexpr uint32_t kMaxTreeLeaves = 16;
inline constexpr uint32_t kMaxTreeNodes = kMaxTreeLeaves - 1;

// One of the two. By default one leaf.
template <typename Choice>
struct ChoiceTree {
  TreeBranch root = TreeBranch::ToLeaf(0);
  uint32_t num_nodes = 0;
  uint32_t num_leaves = 1;
  TreeNode nodes[kMaxTreeNodes] = {};  // a node's branches lead to nodes behind it
  Choice leaves[kMaxTreeLeaves] = {};

  // The leaf that features lead to; features(AttentionFeature) is a number.
  template <typename Features>
  constexpr uint32_t LeafOf(const Features& features) const {
    TreeBranch at = root;
    while (!at.is_leaf()) {
      const TreeNode& node = nodes[at.index()];
      at = features(node.feature) < node.threshold ? node.below : node.at_least;
    }
    return at.index();
  }

  constexpr bool operator==(const ChoiceTree&) const = default;
};

struct AttentionTree {
  ChoiceTree<RowChoice> rows;
  ChoiceTree<BatchChoice> batch;
  // Whether any node asks for a feature of the batch, which then have to be counted.
  uint32_t asks_for_batch = 0;

  constexpr bool operator==(const AttentionTree&) const = default;
};
static_assert(sizeof(AttentionTree) % sizeof(uint32_t) == 0);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_DECISION_TREE_H_
