// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_tree.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/attention/decode_share.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

constexpr std::string_view kFeatureNames[] = {"visible_tokens", "query_tokens",   "batch_rows",
                                              "decode_tokens",  "longest_decode", "prompt_tokens"};
static_assert(std::size(kFeatureNames) == kNumAttentionFeatures);

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// "rows: leaf 2", "batch: leaf \"short\"".
std::string LeafName(const char* tree, uint32_t leaf, std::span<const std::string> names) {
  if (leaf < names.size()) return absl::StrCat(tree, ": leaf \"", names[leaf], "\"");
  return absl::StrCat(tree, ": leaf ", leaf);
}

absl::Status Refuse(const std::string& where, absl::string_view what, uint64_t got,
                    absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("attention tree: ", where, ": ", what, " is ", got, "; allowed: ", allowed));
}

// A branch of node `from`, or of none before the root.
template <typename Choice>
absl::Status CheckBranch(const char* name, const ChoiceTree<Choice>& tree, TreeBranch branch,
                         int64_t from) {
  const std::string where =
      from < 0 ? absl::StrCat(name, ": root") : absl::StrCat(name, ": node ", from);
  if (branch.is_leaf()) {
    if (branch.index() < tree.num_leaves) return absl::OkStatus();
    return Refuse(where, "a leaf", branch.index(), absl::StrCat("below ", tree.num_leaves));
  }
  if (branch.index() < tree.num_nodes && int64_t{branch.index()} > from) return absl::OkStatus();
  return Refuse(where, "a node", branch.index(),
                absl::StrCat("those behind it, below ", tree.num_nodes));
}

template <typename Choice>
absl::Status CheckWalks(const char* name, const ChoiceTree<Choice>& tree) {
  if (tree.num_leaves < 1 || tree.num_leaves > kMaxTreeLeaves)
    return Refuse(name, "number of leaves", tree.num_leaves, absl::StrCat("1 to ", kMaxTreeLeaves));
  if (tree.num_nodes > kMaxTreeNodes)
    return Refuse(name, "number of nodes", tree.num_nodes, absl::StrCat("0 to ", kMaxTreeNodes));
  REPRISE_RETURN_IF_ERROR(CheckBranch(name, tree, tree.root, -1));
  for (uint32_t i = 0; i < tree.num_nodes; ++i) {
    const TreeNode& node = tree.nodes[i];
    if (static_cast<uint32_t>(node.feature) >= kNumAttentionFeatures)
      return Refuse(absl::StrCat(name, ": node ", i), "feature",
                    static_cast<uint32_t>(node.feature),
                    absl::StrCat("below ", kNumAttentionFeatures));
    REPRISE_RETURN_IF_ERROR(CheckBranch(name, tree, node.below, i));
    REPRISE_RETURN_IF_ERROR(CheckBranch(name, tree, node.at_least, i));
  }
  return absl::OkStatus();
}

absl::Status CheckSplitTokens(const std::string& leaf, absl::string_view what, uint32_t tokens,
                              const AttentionTreeLimits& limits) {
  const uint32_t multiple = limits.num_shares != 0 ? kLeafMultiple : 1;
  if (tokens >= multiple && tokens <= kMaxSplitTokens && tokens % multiple == 0)
    return absl::OkStatus();
  return Refuse(leaf, what, tokens,
                absl::StrCat(multiple, " to ", kMaxSplitTokens, ", multiples of ", multiple));
}

absl::Status CheckRowChoice(const std::string& leaf, const RowChoice& choice,
                            const AttentionTreeLimits& limits) {
  REPRISE_RETURN_IF_ERROR(
      CheckSplitTokens(leaf, "min_split_tokens", choice.split.min_split_tokens, limits));
  REPRISE_RETURN_IF_ERROR(
      CheckSplitTokens(leaf, "split_multiple", choice.split.split_multiple, limits));
  if (choice.split.max_splits < 1 || choice.split.max_splits > limits.max_splits)
    return Refuse(leaf, "max_splits", choice.split.max_splits,
                  absl::StrCat("1 to ", limits.max_splits));
  if (choice.prompt_q_tokens > limits.max_prompt_q_tokens)
    return Refuse(leaf, "prompt_q_tokens", choice.prompt_q_tokens,
                  absl::StrCat("0 to ", limits.max_prompt_q_tokens));
  if (choice.prompt_splits < 1 || choice.prompt_splits > limits.max_splits)
    return Refuse(leaf, "prompt_splits", choice.prompt_splits,
                  absl::StrCat("1 to ", limits.max_splits));
  return absl::OkStatus();
}

absl::Status CheckBatchChoice(const std::string& leaf, const BatchChoice& choice,
                              const AttentionTreeLimits& limits) {
  if (choice.shares > limits.num_shares)
    return Refuse(leaf, "shares", choice.shares, absl::StrCat("0 to ", limits.num_shares));
  if (choice.leaf_overhead > kMaxLeafOverhead || choice.leaf_overhead % kWeightTokens != 0)
    return Refuse(leaf, "leaf_overhead", choice.leaf_overhead,
                  absl::StrCat("0 to ", kMaxLeafOverhead, ", multiples of ", kWeightTokens));
  return absl::OkStatus();
}

template <typename Choice>
bool AnyNodeAsksForBatch(const ChoiceTree<Choice>& tree) {
  return std::any_of(tree.nodes, tree.nodes + tree.num_nodes,
                     [](const TreeNode& node) { return IsOfBatch(node.feature); });
}

}  // namespace

std::span<const std::string_view> AttentionFeatureNames() { return kFeatureNames; }

bool IsBatchInvariant(const AttentionTree& tree) { return !AnyNodeAsksForBatch(tree.rows); }

bool AsksForBatch(const AttentionTree& tree) {
  return AnyNodeAsksForBatch(tree.rows) || AnyNodeAsksForBatch(tree.batch);
}

absl::Status CheckAttentionTree(const AttentionTree& tree, const AttentionTreeLimits& limits,
                                const AttentionTreeNames& names) {
  REPRISE_RETURN_IF_ERROR(CheckWalks("rows", tree.rows));
  REPRISE_RETURN_IF_ERROR(CheckWalks("batch", tree.batch));
  for (uint32_t i = 0; i < tree.rows.num_leaves; ++i)
    REPRISE_RETURN_IF_ERROR(
        CheckRowChoice(LeafName("rows", i, names.rows), tree.rows.leaves[i], limits));
  for (uint32_t i = 0; i < tree.batch.num_leaves; ++i)
    REPRISE_RETURN_IF_ERROR(
        CheckBatchChoice(LeafName("batch", i, names.batch), tree.batch.leaves[i], limits));
  for (uint32_t i = 0; i < tree.batch.num_nodes; ++i) {
    const AttentionFeature feature = tree.batch.nodes[i].feature;
    if (!IsOfBatch(feature))
      return absl::InvalidArgumentError(absl::StrCat(
          "attention tree: batch: node ", i, ": feature is ",
          View(kFeatureNames[static_cast<uint32_t>(feature)]), "; allowed: features of the batch"));
  }
  if (AsksForBatch(tree) != (tree.asks_for_batch != 0))
    return Refuse("all", "asks_for_batch", tree.asks_for_batch,
                  AsksForBatch(tree) ? "1, as a node asks for the batch" : "0, as none does");
  if (limits.batch_invariant && !IsBatchInvariant(tree))
    return absl::FailedPreconditionError(
        "attention tree: rows are asked for a feature of the batch, so that their bits would "
        "depend on their neighbours; allowed: features of rows, or an engine that is not batch "
        "invariant");
  return absl::OkStatus();
}

}  // namespace reprise::kernels
