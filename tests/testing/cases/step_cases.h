// SPDX-License-Identifier: Apache-2.0
// The engine limits at which fetch, plan and publish are checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_STEP_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_STEP_CASES_H_

#include <cstdint>
#include <optional>

#include "kernels/attention/plan.h"

namespace reprise::kernels {

// A tree that cuts every row by one rule.
constexpr AttentionTree OneLeaf(const SplitRule& split) {
  AttentionTree tree;
  tree.rows.leaves[0].split = split;
  return tree;
}

// Trees in which every feature is asked for, with and without the batch's in that of rows.
constexpr AttentionTree BushyTree(bool batch_invariant) {
  using Branch = TreeBranch;
  AttentionTree tree;
  tree.asks_for_batch = 1;
  tree.rows = {
      .root = Branch::ToNode(0),
      .num_nodes = 3,
      .num_leaves = 4,
      .nodes = {{AttentionFeature::kVisibleTokens, 150, Branch::ToLeaf(3), Branch::ToNode(1)},
                {AttentionFeature::kQueryTokens, 4, Branch::ToNode(2), Branch::ToLeaf(0)},
                {batch_invariant ? AttentionFeature::kVisibleTokens : AttentionFeature::kBatchRows,
                 batch_invariant ? 400u : 4u, Branch::ToLeaf(2), Branch::ToLeaf(1)}},
      .leaves = {{.split = {64, 4, 64}, .prompt_q_tokens = 3},
                 {.split = {128, 32, 64}, .prompt_q_tokens = 2, .prompt_splits = 16},
                 {.split = {192, 8, 128}, .prompt_q_tokens = 4, .prompt_splits = 4},
                 {.split = {64, 32, 64}, .prompt_splits = 32}}};
  tree.batch = {
      .root = Branch::ToNode(0),
      .num_nodes = 4,
      .num_leaves = 5,
      .nodes = {{AttentionFeature::kPromptTokens, 5, Branch::ToNode(1), Branch::ToLeaf(0)},
                {AttentionFeature::kLongestDecode, 200, Branch::ToLeaf(1), Branch::ToNode(2)},
                {AttentionFeature::kDecodeTokens, 700, Branch::ToLeaf(2), Branch::ToNode(3)},
                {AttentionFeature::kBatchRows, 4, Branch::ToLeaf(3), Branch::ToLeaf(4)}},
      .leaves = {{.shares = 3, .leaf_overhead = 0},
                 {.shares = 1, .leaf_overhead = 16},
                 {.shares = 0, .leaf_overhead = 256},
                 {.shares = 4, .leaf_overhead = 4096},
                 {.shares = 5, .leaf_overhead = 64}}};
  return tree;
}

struct StepCase {
  const char* name = "";
  uint32_t max_rows = 0;
  uint32_t max_step_tokens = 0;
  uint32_t max_blocks_per_row = 0;
  uint32_t block_size = 0;
  uint32_t prefill_q_tokens = 0;
  uint32_t depth = 0;  // entries of either ring
  AttentionTree tree = {};
  uint32_t num_steps = 0;
  uint64_t first_count = 0;  // steps published before the first
  uint32_t window = 0;       // the first of AttentionPlanRule.windows
  // Rows with sampling features. 0: no row has any, and the plan has no room for them.
  uint32_t vocab = 0;
  uint32_t max_prompt_logprobs = 0;
  bool adjust_logits = true;      // see ResidentRows
  uint32_t max_draft_tokens = 0;  // of a step
  // Rows of one query token are dealt to so many blocks in place of items; see AttentionPlanRule.
  uint32_t num_shares = 0;
  uint32_t num_kv_heads = 0;
  uint32_t tile_members = 0;  // see AttentionPlanRule; 0: no row shares a prefix
  std::optional<uint32_t> second_window = std::nullopt;  // of AttentionPlanRule.windows
};

inline constexpr StepCase kStepCases[] = {
    {"one_row", 1, 5, 40, 1, 2, 1,
     OneLeaf({.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2}), 30},
    {"few_rows_odd", 5, 37, 9, 3, 4, 3,
     OneLeaf({.min_split_tokens = 5, .max_splits = 7, .split_multiple = 3}), 40},
    {"past_32_bits", 4, 24, 8, 16, 16, 2,
     OneLeaf({.min_split_tokens = 8, .max_splits = 4, .split_multiple = 4}), 20, 0xfffffff9u},
    {"many_rows", 64, 500, 30, 24, 64, 4,
     OneLeaf({.min_split_tokens = 64, .max_splits = 8, .split_multiple = 64}), 25},
    {"window_odd", 9, 60, 20, 3, 4, 2,
     OneLeaf({.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2}), 40, 0, 11},
    {"window_of_one", 3, 20, 12, 5, 3, 1, AttentionTree{}, 20, 0, 1},
    {"window_of_many_blocks", 20, 500, 40, 16, 16, 2,
     OneLeaf({.min_split_tokens = 64, .max_splits = 4, .split_multiple = 64}), 20, 0, 300},
    {"more_rows_than_threads", 700, 2500, 20, 16, 16, 2, AttentionTree{}, 6},
    {.name = "features_of_one_row",
     .max_rows = 1,
     .max_step_tokens = 6,
     .max_blocks_per_row = 12,
     .block_size = 3,
     .prefill_q_tokens = 4,
     .depth = 1,
     .tree = OneLeaf({.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2}),
     .num_steps = 60,
     .vocab = 5,
     .max_prompt_logprobs = 6,
     .max_draft_tokens = 4},
    {.name = "features_of_few_rows",
     .max_rows = 9,
     .max_step_tokens = 60,
     .max_blocks_per_row = 9,
     .block_size = 5,
     .prefill_q_tokens = 4,
     .depth = 3,
     .tree = OneLeaf({.min_split_tokens = 5, .max_splits = 7, .split_multiple = 3}),
     .num_steps = 50,
     .window = 7,
     .vocab = 700,
     .max_prompt_logprobs = 20,
     .max_draft_tokens = 12},
    {.name = "features_that_adjust_nothing",
     .max_rows = 12,
     .max_step_tokens = 50,
     .max_blocks_per_row = 6,
     .block_size = 8,
     .prefill_q_tokens = 16,
     .depth = 2,
     .tree = OneLeaf({.min_split_tokens = 8, .max_splits = 4, .split_multiple = 4}),
     .num_steps = 30,
     .vocab = 300,
     .max_prompt_logprobs = 50,
     .adjust_logits = false,
     .max_draft_tokens = 5},
    {.name = "features_of_more_rows_than_threads",
     .max_rows = 600,
     .max_step_tokens = 1500,
     .max_blocks_per_row = 6,
     .block_size = 16,
     .prefill_q_tokens = 16,
     .depth = 2,
     .num_steps = 5,
     .vocab = 33,
     .max_prompt_logprobs = 700},
    {.name = "dealt_to_few_blocks",
     .max_rows = 6,
     .max_step_tokens = 40,
     .max_blocks_per_row = 90,
     .block_size = 16,
     .prefill_q_tokens = 4,
     .depth = 2,
     .tree = OneLeaf({.min_split_tokens = 64, .max_splits = 8}),
     .num_steps = 30,
     .num_shares = 5,
     .num_kv_heads = 2},
    {.name = "prefixes_of_few_rows",
     .max_rows = 7,
     .max_step_tokens = 12,
     .max_blocks_per_row = 90,
     .block_size = 16,
     .prefill_q_tokens = 4,
     .depth = 2,
     .tree = OneLeaf({.min_split_tokens = 64, .max_splits = 8}),
     .num_steps = 30,
     .num_shares = 5,
     .num_kv_heads = 2,
     .tile_members = 2},
    {.name = "prefixes_of_many_rows",
     .max_rows = 64,
     .max_step_tokens = 90,
     .max_blocks_per_row = 20,
     .block_size = 48,
     .prefill_q_tokens = 16,
     .depth = 3,
     .tree = BushyTree(false),
     .num_steps = 15,
     .num_shares = 29,
     .num_kv_heads = 3,
     .tile_members = 8},
    {.name = "prefixes_and_a_window",
     .max_rows = 40,
     .max_step_tokens = 60,
     .max_blocks_per_row = 60,
     .block_size = 16,
     .prefill_q_tokens = 16,
     .depth = 1,
     .tree = OneLeaf({.min_split_tokens = 64, .max_splits = 5}),
     .num_steps = 15,
     .window = 500,
     .num_shares = 12,
     .num_kv_heads = 1,
     .tile_members = 4},
    {.name = "dealt_to_many_blocks",
     .max_rows = 64,
     .max_step_tokens = 200,
     .max_blocks_per_row = 60,
     .block_size = 16,
     .prefill_q_tokens = 16,
     .depth = 3,
     .tree = OneLeaf({.min_split_tokens = 128, .max_splits = 4}),
     .num_steps = 20,
     .window = 100,
     .num_shares = 264,
     .num_kv_heads = 8},
    {.name = "one_row_dealt_to_more_blocks_than_it_has_leaves",
     .max_rows = 1,
     .max_step_tokens = 5,
     .max_blocks_per_row = 300,
     .block_size = 3,
     .prefill_q_tokens = 2,
     .depth = 1,
     .tree = OneLeaf({.min_split_tokens = 64, .max_splits = 32}),
     .num_steps = 40,
     .num_shares = 100,
     .num_kv_heads = 1},
    {.name = "windows_in_turn_over_items",
     .max_rows = 9,
     .max_step_tokens = 60,
     .max_blocks_per_row = 20,
     .block_size = 5,
     .prefill_q_tokens = 4,
     .depth = 3,
     .tree = OneLeaf({.min_split_tokens = 4, .max_splits = 5, .split_multiple = 2}),
     .num_steps = 40,
     .vocab = 70,
     .max_prompt_logprobs = 40,
     .second_window = 11},
    {.name = "two_windows_and_a_tree",
     .max_rows = 30,
     .max_step_tokens = 200,
     .max_blocks_per_row = 40,
     .block_size = 16,
     .prefill_q_tokens = 8,
     .depth = 2,
     .tree = BushyTree(false),
     .num_steps = 20,
     .window = 300,
     .second_window = 70},
    {.name = "prefixes_and_windows_in_turn",
     .max_rows = 40,
     .max_step_tokens = 60,
     .max_blocks_per_row = 60,
     .block_size = 16,
     .prefill_q_tokens = 16,
     .depth = 2,
     .tree = BushyTree(true),
     .num_steps = 15,
     .num_shares = 12,
     .num_kv_heads = 2,
     .tile_members = 4,
     .second_window = 500},
    {.name = "tree_over_items",
     .max_rows = 7,
     .max_step_tokens = 40,
     .max_blocks_per_row = 50,
     .block_size = 16,
     .prefill_q_tokens = 4,
     .depth = 2,
     .tree = BushyTree(true),
     .num_steps = 30},
    {.name = "tree_over_a_deal",
     .max_rows = 7,
     .max_step_tokens = 40,
     .max_blocks_per_row = 50,
     .block_size = 16,
     .prefill_q_tokens = 4,
     .depth = 2,
     .tree = BushyTree(true),
     .num_steps = 30,
     .window = 450,
     .num_shares = 5,
     .num_kv_heads = 3},
    {.name = "tree_that_asks_rows_for_the_batch",
     .max_rows = 9,
     .max_step_tokens = 30,
     .max_blocks_per_row = 40,
     .block_size = 16,
     .prefill_q_tokens = 8,
     .depth = 2,
     .tree = BushyTree(false),
     .num_steps = 30,
     .num_shares = 6,
     .num_kv_heads = 2}};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_STEP_CASES_H_
