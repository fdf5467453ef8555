// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/ladder_trees.h"

#include <algorithm>

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::RowChoice;
using kernels::SplitRule;
using kernels::TreeBranch;

// Tokens that a split is a multiple of where their number is frozen: a tile of the kernels.
constexpr uint32_t kFrozenTile = 64;

uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Splits of a row of `tokens`.
uint32_t NumSplits(const SplitRule& rule, uint32_t tokens) {
  const uint32_t even =
      CeilDiv(CeilDiv(tokens, rule.max_splits), rule.split_multiple) * rule.split_multiple;
  return CeilDiv(tokens, std::max(rule.min_split_tokens, even));
}

// What the rows' tree chooses in a full batch of the longest rows.
RowChoice ChoiceAtCapture(const CapturedFor& captured, uint32_t query_tokens) {
  const auto feature = [&](AttentionFeature f) -> uint32_t {
    switch (f) {
      case AttentionFeature::kVisibleTokens:
      case AttentionFeature::kLongestDecode:
        return captured.max_visible;
      case AttentionFeature::kQueryTokens:
        return query_tokens;
      case AttentionFeature::kBatchRows:
        return captured.max_rows;
      case AttentionFeature::kDecodeTokens:
        return static_cast<uint32_t>(
            std::min<uint64_t>(uint64_t{captured.max_rows} * captured.max_visible, UINT32_MAX));
      case AttentionFeature::kPromptTokens:
        return query_tokens > 1 ? query_tokens : 0;
    }
    return 0;
  };
  return captured.tree.rows.leaves[captured.tree.rows.LeafOf(feature)];
}

// Rows of less than `threshold` of a feature come to one leaf, the others to another.
engine::NamedAttentionTree TwoLeaves(AttentionFeature feature, uint32_t threshold,
                                     const RowChoice& below, const RowChoice& at_least) {
  engine::NamedAttentionTree named;
  auto& rows = named.tree.rows;
  rows.num_nodes = 1;
  rows.num_leaves = 2;
  rows.root = TreeBranch::ToNode(0);
  rows.nodes[0] = {feature, threshold, TreeBranch::ToLeaf(0), TreeBranch::ToLeaf(1)};
  rows.leaves[0] = below;
  rows.leaves[1] = at_least;
  named.tree.asks_for_batch = kernels::IsOfBatch(feature) ? 1 : 0;
  named.batch_invariant = named.tree.asks_for_batch == 0;
  return named;
}

constexpr RowChoice kWhole = {.split = {.max_splits = 1}};

}  // namespace

engine::NamedAttentionTree WholeRowsTree(const CapturedFor&) {
  engine::NamedAttentionTree named;
  named.tree.rows.leaves[0] = kWhole;
  named.row_leaves = {"whole"};
  return named;
}

engine::NamedAttentionTree SegmentsTree(const CapturedFor& captured) {
  const RowChoice segments = {
      .split = {.min_split_tokens = captured.block_size,
                .max_splits = std::min(kLadderSegments, captured.max_splits),
                .split_multiple = captured.block_size}};
  engine::NamedAttentionTree named =
      TwoLeaves(AttentionFeature::kBatchRows,
                CeilDiv(captured.num_multiprocessors, captured.num_kv_heads), segments, kWhole);
  named.row_leaves = {"segments", "whole"};
  return named;
}

engine::NamedAttentionTree FrozenTree(const CapturedFor& captured) {
  RowChoice decode = ChoiceAtCapture(captured, 1);
  decode.split = {.min_split_tokens = kFrozenTile,
                  .max_splits = NumSplits(decode.split, captured.max_visible),
                  .split_multiple = kFrozenTile};
  const RowChoice prompt = ChoiceAtCapture(captured, captured.max_visible);
  engine::NamedAttentionTree named = TwoLeaves(AttentionFeature::kQueryTokens, 2, decode, prompt);
  named.row_leaves = {"decode, as captured", "prompt, as captured"};
  return named;
}

}  // namespace reprise::tools
