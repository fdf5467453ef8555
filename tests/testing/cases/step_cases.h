// SPDX-License-Identifier: Apache-2.0
// The engine limits at which fetch, plan and publish are checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_STEP_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_STEP_CASES_H_

#include <cstdint>

#include "kernels/attention/plan.h"

namespace reprise::kernels {

struct StepCase {
  const char* name = "";
  uint32_t max_rows = 0;
  uint32_t max_step_tokens = 0;
  uint32_t max_blocks_per_row = 0;
  uint32_t block_size = 0;
  uint32_t prefill_q_tokens = 0;
  uint32_t depth = 0;  // entries of either ring
  SplitRule split = {};
  uint32_t num_steps = 0;
  uint64_t first_count = 0;  // steps published before the first
  uint32_t window = 0;       // see AttentionPlanRule
  // Rows with sampling features. 0: no row has any, and the plan has no room for them.
  uint32_t vocab = 0;
  uint32_t max_prompt_logprobs = 0;
  bool adjust_logits = true;  // see ResidentRows
  // Rows of one query token are dealt to so many blocks in place of items; see AttentionPlanRule.
  uint32_t num_shares = 0;
  uint32_t num_kv_heads = 0;
  LeafRule leaf = {};
};

inline constexpr StepCase kStepCases[] = {
    {"one_row",
     1,
     5,
     40,
     1,
     2,
     1,
     {.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2},
     30},
    {"few_rows_odd",
     5,
     37,
     9,
     3,
     4,
     3,
     {.min_split_tokens = 5, .max_splits = 7, .split_multiple = 3},
     40},
    {"past_32_bits",
     4,
     24,
     8,
     16,
     16,
     2,
     {.min_split_tokens = 8, .max_splits = 4, .split_multiple = 4},
     20,
     0xfffffff9u},
    {"many_rows",
     64,
     500,
     30,
     24,
     64,
     4,
     {.min_split_tokens = 64, .max_splits = 8, .split_multiple = 64},
     25},
    {"window_odd",
     9,
     60,
     20,
     3,
     4,
     2,
     {.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2},
     40,
     0,
     11},
    {"window_of_one", 3, 20, 12, 5, 3, 1, SplitRule{}, 20, 0, 1},
    {"window_of_many_blocks",
     20,
     500,
     40,
     16,
     16,
     2,
     {.min_split_tokens = 64, .max_splits = 4, .split_multiple = 64},
     20,
     0,
     300},
    {"more_rows_than_threads", 700, 2500, 20, 16, 16, 2, SplitRule{}, 6},
    {.name = "features_of_one_row",
     .max_rows = 1,
     .max_step_tokens = 6,
     .max_blocks_per_row = 12,
     .block_size = 3,
     .prefill_q_tokens = 4,
     .depth = 1,
     .split = {.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2},
     .num_steps = 60,
     .vocab = 5,
     .max_prompt_logprobs = 6},
    {.name = "features_of_few_rows",
     .max_rows = 9,
     .max_step_tokens = 60,
     .max_blocks_per_row = 9,
     .block_size = 5,
     .prefill_q_tokens = 4,
     .depth = 3,
     .split = {.min_split_tokens = 5, .max_splits = 7, .split_multiple = 3},
     .num_steps = 50,
     .window = 7,
     .vocab = 700,
     .max_prompt_logprobs = 20},
    {.name = "features_that_adjust_nothing",
     .max_rows = 12,
     .max_step_tokens = 50,
     .max_blocks_per_row = 6,
     .block_size = 8,
     .prefill_q_tokens = 16,
     .depth = 2,
     .split = {.min_split_tokens = 8, .max_splits = 4, .split_multiple = 4},
     .num_steps = 30,
     .vocab = 300,
     .max_prompt_logprobs = 50,
     .adjust_logits = false},
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
     .num_steps = 30,
     .num_shares = 5,
     .num_kv_heads = 2,
     .leaf = {.tokens = 64, .max_leaves = 8}},
    {.name = "dealt_to_many_blocks",
     .max_rows = 64,
     .max_step_tokens = 200,
     .max_blocks_per_row = 60,
     .block_size = 16,
     .prefill_q_tokens = 16,
     .depth = 3,
     .num_steps = 20,
     .window = 100,
     .num_shares = 264,
     .num_kv_heads = 8,
     .leaf = {.tokens = 128, .max_leaves = 4}},
    {.name = "one_row_dealt_to_more_blocks_than_it_has_leaves",
     .max_rows = 1,
     .max_step_tokens = 5,
     .max_blocks_per_row = 300,
     .block_size = 3,
     .prefill_q_tokens = 2,
     .depth = 1,
     .num_steps = 40,
     .num_shares = 100,
     .num_kv_heads = 1,
     .leaf = {.tokens = 64, .max_leaves = 32}},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_STEP_CASES_H_
