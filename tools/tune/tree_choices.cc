// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tree_choices.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::AttentionTreeLimits;
using kernels::BatchChoice;
using kernels::ChoiceTree;
using kernels::RowChoice;
using kernels::TreeBranch;
using kernels::TreeNode;

constexpr uint32_t kMinSplitTokens[] = {64, 128, 256, 512, 1024};
constexpr uint32_t kMaxSplits[] = {16, 32};
constexpr uint32_t kPromptSplits[] = {2, 4, 8, 16};
constexpr uint32_t kOverheads[] = {64, 0, 128, 256};

template <typename T>
void AddOnce(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// Appends `from` with its leaves made choices; returns the branch to its root.
template <typename Choice, typename MakeChoice>
TreeBranch Append(const CostTree& from, const MakeChoice& make, ChoiceTree<Choice>& to) {
  const uint32_t first_node = to.num_nodes, first_leaf = to.num_leaves;
  const auto moved = [&](TreeBranch branch) {
    return branch.is_leaf() ? TreeBranch::ToLeaf(branch.index() + first_leaf)
                            : TreeBranch::ToNode(branch.index() + first_node);
  };
  for (uint32_t i = 0; i < from.num_nodes; ++i) {
    TreeNode node = from.nodes[i];
    node.below = moved(node.below);
    node.at_least = moved(node.at_least);
    to.nodes[to.num_nodes++] = node;
  }
  for (uint32_t i = 0; i < from.num_leaves; ++i)
    to.leaves[to.num_leaves++] = make(from.leaves[i].index);
  return moved(from.root);
}

ChoiceTree<RowChoice> JoinRows(const FittedParts& parts, const AttentionTreeLimits& limits) {
  const std::vector<RowChoice> splits = SplitCandidates(limits);
  const std::vector<PromptChoice> prompts = PromptCandidates(limits, /*cut=*/true);
  const PromptChoice& first = prompts[parts.prompts.leaves[0].index];
  const bool one = parts.prompts.num_leaves == 1 && first.splits == 1;
  ChoiceTree<RowChoice> rows;
  rows.num_leaves = 0;
  const auto split = [&](uint32_t index) {
    RowChoice choice = splits[index];
    if (one) choice.prompt_q_tokens = first.q_tokens;
    return choice;
  };
  if (one) {
    rows.root = Append(parts.splits, split, rows);
    return rows;
  }
  rows.root = TreeBranch::ToNode(rows.num_nodes++);
  TreeNode node{AttentionFeature::kQueryTokens, 2, {}, {}};
  node.below = Append(parts.splits, split, rows);
  node.at_least = Append(
      parts.prompts,
      [&](uint32_t index) {
        RowChoice choice = splits[0];
        choice.prompt_q_tokens = prompts[index].q_tokens;
        choice.prompt_splits = prompts[index].splits;
        return choice;
      },
      rows);
  rows.nodes[0] = node;
  return rows;
}

// "64 x 32", "64 x 32 (2)", ...
template <typename Choice>
std::vector<std::string> NamesOfLeaves(const ChoiceTree<Choice>& tree) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < tree.num_leaves; ++i) {
    const std::string name = NameOf(tree.leaves[i]);
    std::string unique = name;
    for (int n = 2; std::find(names.begin(), names.end(), unique) != names.end(); ++n)
      unique = absl::StrCat(name, " (", n, ")");
    names.push_back(unique);
  }
  return names;
}

// The values of features that lead somewhere: [low, high).
struct Way {
  std::array<uint32_t, kernels::kNumAttentionFeatures> low = {}, high = {};  // high 0: no end

  Way With(const TreeNode& node, bool below) const {
    const auto feature = static_cast<uint32_t>(node.feature);
    Way way = *this;
    uint32_t& end = below ? way.high[feature] : way.low[feature];
    const bool tighter = below ? end == 0 || node.threshold < end : node.threshold > end;
    if (tighter) end = node.threshold;
    return way;
  }

  std::string Text() const {
    std::string text;
    for (uint32_t f = 0; f < low.size(); ++f) {
      if (low[f] == 0 && high[f] == 0) continue;
      const std::string name(kernels::AttentionFeatureNames()[f]);
      absl::StrAppend(&text, text.empty() ? "" : ", ",
                      low[f] != 0 && high[f] != 0
                          ? absl::StrCat(low[f], " <= ", name, " < ", high[f])
                      : high[f] != 0 ? absl::StrCat(name, " < ", high[f])
                                     : absl::StrCat(name, " >= ", low[f]));
    }
    return text.empty() ? "always" : text;
  }
};

template <typename Choice>
void FindWays(const ChoiceTree<Choice>& tree, TreeBranch at, const Way& way,
              std::vector<std::string>& ways) {
  if (at.is_leaf()) {
    ways[at.index()] = way.Text();
    return;
  }
  const TreeNode& node = tree.nodes[at.index()];
  FindWays(tree, node.below, way.With(node, true), ways);
  FindWays(tree, node.at_least, way.With(node, false), ways);
}
template <typename Choice>
std::vector<std::string> WaysToLeaves(const ChoiceTree<Choice>& tree) {
  std::vector<std::string> ways(tree.num_leaves);
  FindWays(tree, tree.root, Way(), ways);
  return ways;
}

}  // namespace

std::vector<RowChoice> SplitCandidates(const AttentionTreeLimits& limits) {
  std::vector<RowChoice> list = {RowChoice()};
  list[0].split.max_splits = std::min(list[0].split.max_splits, limits.max_splits);
  for (const uint32_t tokens : kMinSplitTokens)
    for (const uint32_t splits : kMaxSplits)
      if (splits <= limits.max_splits)
        AddOnce(list, {.split = {.min_split_tokens = tokens, .max_splits = splits}});
  return list;
}

std::vector<PromptChoice> PromptCandidates(const AttentionTreeLimits& limits, bool cut) {
  std::vector<PromptChoice> list = {PromptChoice()};
  for (const uint32_t part : {2u, 4u})
    if (limits.max_prompt_q_tokens / part >= 1)
      AddOnce(list, {.q_tokens = limits.max_prompt_q_tokens / part});
  // An item of one query token leaves nothing to cut.
  if (!cut || limits.max_prompt_q_tokens < 2) return list;
  for (const uint32_t splits : kPromptSplits)
    if (splits <= limits.max_splits / 2) AddOnce(list, {.splits = splits});
  return list;
}

std::vector<BatchChoice> DealCandidates(const AttentionTreeLimits& limits) {
  std::vector<BatchChoice> list = {BatchChoice()};
  if (limits.num_shares == 0) return list;
  for (const uint32_t quarters : {0u, 4u, 3u, 2u, 1u}) {
    const auto shares = static_cast<uint32_t>(uint64_t{limits.num_shares} * quarters / 4);
    if (quarters != 0 && shares == 0) continue;
    for (const uint32_t overhead : kOverheads)
      AddOnce(list, {.shares = shares, .leaf_overhead = overhead});
  }
  return list;
}

AttentionTree JoinParts(const FittedParts& parts, const AttentionTreeLimits& limits) {
  const std::vector<BatchChoice> deal = DealCandidates(limits);
  AttentionTree tree;
  tree.rows = JoinRows(parts, limits);
  tree.batch.num_leaves = 0;
  tree.batch.root = Append(
      parts.deal, [&](uint32_t index) { return deal[index]; }, tree.batch);
  tree.asks_for_batch = kernels::AsksForBatch(tree) ? 1 : 0;
  return tree;
}

namespace {

std::vector<AttentionTree> TreesOf(FittedParts parts, CostTree FittedParts::*part,
                                   size_t num_candidates, const AttentionTreeLimits& limits) {
  std::vector<AttentionTree> trees;
  for (size_t c = 0; c < num_candidates; ++c) {
    parts.*part = CostTree();
    (parts.*part).leaves[0].index = static_cast<uint32_t>(c);
    trees.push_back(JoinParts(parts, limits));
  }
  return trees;
}

}  // namespace

std::vector<AttentionTree> SplitTrees(const FittedParts& parts, const AttentionTreeLimits& limits) {
  return TreesOf(parts, &FittedParts::splits, SplitCandidates(limits).size(), limits);
}
std::vector<AttentionTree> PromptTrees(const FittedParts& parts, const AttentionTreeLimits& limits,
                                       bool cut) {
  return TreesOf(parts, &FittedParts::prompts, PromptCandidates(limits, cut).size(), limits);
}
std::vector<AttentionTree> DealTrees(const FittedParts& parts, const AttentionTreeLimits& limits) {
  return TreesOf(parts, &FittedParts::deal, DealCandidates(limits).size(), limits);
}

std::string NameOf(const RowChoice& choice) {
  std::string name = absl::StrCat(choice.split.min_split_tokens, " x ", choice.split.max_splits);
  if (choice.prompt_q_tokens != 0) absl::StrAppend(&name, ", prompts ", choice.prompt_q_tokens);
  if (choice.prompt_splits != 1)
    absl::StrAppend(&name, choice.prompt_q_tokens != 0 ? ", cut in " : ", prompts cut in ",
                    choice.prompt_splits);
  return name;
}

std::string NameOf(const PromptChoice& choice) {
  if (choice.splits != 1) return absl::StrCat("prompts cut in ", choice.splits);
  return choice.q_tokens == 0 ? "prompts whole" : absl::StrCat("prompts ", choice.q_tokens);
}

std::string NameOf(const BatchChoice& choice) {
  return absl::StrCat(choice.shares == 0 ? "even" : absl::StrCat(choice.shares, " blocks"),
                      ", overhead ", choice.leaf_overhead);
}

engine::NamedAttentionTree NameLeaves(const AttentionTree& tree) {
  engine::NamedAttentionTree named;
  named.tree = tree;
  named.row_leaves = NamesOfLeaves(tree.rows);
  named.batch_leaves = NamesOfLeaves(tree.batch);
  return named;
}

std::vector<std::string> WaysToRowLeaves(const AttentionTree& tree) {
  return WaysToLeaves(tree.rows);
}
std::vector<std::string> WaysToBatchLeaves(const AttentionTree& tree) {
  return WaysToLeaves(tree.batch);
}

}  // namespace reprise::tools
