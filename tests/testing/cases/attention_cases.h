// SPDX-License-Identifier: Apache-2.0
// The shapes and row lengths at which paged attention is checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_ATTENTION_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_ATTENTION_CASES_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/attention/plan.h"

namespace reprise::kernels {

// One row of a step: KV tokens before it, query tokens in it. Rows of one group, other than 0,
// share the KV of their first shared_tokens tokens, whole blocks.
struct AttentionRow {
  uint32_t context_before;
  uint32_t num_tokens;
  uint32_t group = 0;
  uint32_t shared_tokens = 0;
};

struct AttentionCase {
  const char* name;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  SplitRule split;
  std::span<const AttentionRow> rows;
  // See AttentionArgs.
  uint32_t window = 0;
  float softcap = 0.0f;
  bool alibi = false, sinks = false;
  // See RowChoice; there is room for split.max_splits.
  uint32_t prompt_splits = 1;
};

// Small splits, so that short rows have several.
inline constexpr SplitRule kSmallSplits = {
    .min_split_tokens = 8, .max_splits = 4, .split_multiple = 4};
inline constexpr SplitRule kOddSplits = {
    .min_split_tokens = 5, .max_splits = 7, .split_multiple = 3};

inline constexpr AttentionRow kOneToken[] = {{0, 1}};
// Lengths 1, 2, a split less one, a split, one more, two splits, and as many as there are.
inline constexpr AttentionRow kDecodeRows[] = {{0, 1},  {1, 1},  {6, 1},  {7, 1},  {8, 1},  {15, 1},
                                               {30, 1}, {31, 1}, {32, 1}, {63, 1}, {130, 1}};
inline constexpr AttentionRow kLongDecodeRows[] = {{299, 1}, {1030, 1}, {0, 1}};
// A whole prompt, a chunk behind history, a chunk of two tokens, one longer than an item.
inline constexpr AttentionRow kChunkRows[] = {{0, 9}, {37, 20}, {5, 2}, {64, 70}};
inline constexpr AttentionRow kMixedRows[] = {{40, 1}, {0, 33}, {7, 1},   {17, 5},
                                              {0, 1},  {90, 1}, {3, 129}, {129, 1}};
// Of heads so wide that a block with 64 KB of shared memory does an item in several passes.
inline constexpr AttentionRow kWideHeadRows[] = {{0, 66}, {21, 40}, {9, 1}};
inline constexpr AttentionRow kWideGroupRows[] = {{40, 1}, {3, 5}};

// Around windows of 7 and 8 tokens: shorter, as long, one more, and chunks within, over and beyond.
inline constexpr AttentionRow kWindowRows[] = {{0, 1},  {6, 1},   {7, 1},  {8, 1}, {14, 1},
                                               {40, 1}, {300, 1}, {0, 6},  {0, 8}, {0, 70},
                                               {5, 3},  {9, 130}, {200, 2}};

// Prompts beyond windows of 24 and 90 tokens: whole, and a chunk whose window begins within a tile.
inline constexpr AttentionRow kLongChunkRows[] = {{0, 131}, {70, 75}};

inline constexpr AttentionRow kSwitchRows[] = {{0, 1}, {40, 1}, {150, 1}, {0, 20}, {33, 9}};

// Lengths of one token, a block less one, a block, one more, and two chunks over the end of one.
inline constexpr AttentionRow kBlocksOf16[] = {{0, 1}, {14, 1}, {15, 1}, {16, 1}, {90, 1}, {12, 7}};
inline constexpr AttentionRow kBlocksOf32[] = {{0, 1}, {30, 1}, {31, 1}, {32, 1}, {0, 3}, {29, 6}};
inline constexpr AttentionRow kBlocksOf48[] = {{0, 1},  {46, 1},  {47, 1},
                                               {48, 1}, {130, 1}, {44, 5}};
inline constexpr AttentionRow kBlocksOf544[] = {{0, 1}, {542, 1}, {543, 1}, {544, 1}, {541, 5}};
inline constexpr SplitRule kLongSplits = {
    .min_split_tokens = 64, .max_splits = 12, .split_multiple = 64};

// Drafted tokens to verify: few query tokens behind histories of less and more than a split, at its
// borders, and of several.
inline constexpr AttentionRow kVerifyRows[] = {{0, 2},   {61, 2},  {62, 2},  {63, 3},  {127, 1},
                                               {130, 4}, {190, 2}, {300, 4}, {330, 8}, {200, 30}};
// The same of groups and heads so wide that a block has to take the query rows of one of them in
// several passes. All of the above would be half of what all cases together compute.
inline constexpr AttentionRow kWideVerifyRows[] = {{0, 2}, {61, 2}, {63, 3}, {130, 4}, {90, 8}};
inline constexpr SplitRule kVerifySplits = {
    .min_split_tokens = 20, .max_splits = 32, .split_multiple = 4};

inline constexpr AttentionCase kAttentionCases[] = {
    {"one_token", 1, 1, 8, 1, kSmallSplits, kOneToken},
    {"mha_decode_8", 3, 3, 8, 1, kSmallSplits, kDecodeRows},
    {"gqa_decode_64", 8, 2, 64, 16, kSmallSplits, kDecodeRows},
    {"gqa_decode_128_odd_blocks", 8, 2, 128, 3, kOddSplits, kDecodeRows},
    {"mqa_decode_80", 6, 1, 80, 24, kSmallSplits, kDecodeRows},
    {"mqa_decode_24_wide_group", 16, 1, 24, 16, kOddSplits, kDecodeRows},
    {"mha_decode_256", 2, 2, 256, 16, kSmallSplits, kDecodeRows},
    {"gqa_decode_odd_dim", 4, 2, 20, 5, kSmallSplits, kDecodeRows},
    {"mqa_decode_wider_than_a_tile", 20, 1, 32, 16, kSmallSplits, kDecodeRows},
    {"gqa_long_decode_128", 8, 2, 128, 16, SplitRule{}, kLongDecodeRows},
    {"mha_long_decode_64",
     2,
     2,
     64,
     24,
     {.min_split_tokens = 64, .max_splits = 16, .split_multiple = 64},
     kLongDecodeRows},
    {"gqa_long_decode_128_blocks_of_48", 4, 2, 128, 48, SplitRule{}, kLongDecodeRows},
    {"gqa_long_decode_192", 6, 2, 192, 32, SplitRule{}, kLongDecodeRows},
    {"mqa_long_decode_256", 8, 1, 256, 16, SplitRule{}, kLongDecodeRows},
    {"gqa_long_window_128", 8, 1, 128, 16, SplitRule{}, kLongDecodeRows, 500},
    {"mha_prefill_24", 3, 3, 24, 3, kSmallSplits, kChunkRows},
    {"gqa_prefill_128", 8, 2, 128, 16, kSmallSplits, kChunkRows},
    {"mqa_prefill_80", 7, 1, 80, 1, kSmallSplits, kChunkRows},
    {"gqa_prefill_odd_dim", 6, 2, 20, 24, kSmallSplits, kChunkRows},
    {"mha_mixed_112", 2, 2, 112, 16, kSmallSplits, kWideHeadRows},
    {"gqa_mixed_256", 4, 2, 256, 16, kSmallSplits, kWideHeadRows},
    {"mqa_mixed_256_wide_group", 32, 1, 256, 16, kSmallSplits, kWideGroupRows},
    {"mha_mixed_8", 2, 2, 8, 16, kOddSplits, kMixedRows},
    {"mha_more_items_than_a_block_resolves_at_once", 48, 48, 8, 16, kSmallSplits, kMixedRows},
    {"gqa_mixed_64", 8, 2, 64, 24, kSmallSplits, kMixedRows},
    {"gqa_mixed_80", 6, 2, 80, 3, kOddSplits, kMixedRows},
    {"mqa_mixed_128", 4, 1, 128, 1, kSmallSplits, kMixedRows},
    {"gqa_window_64", 8, 2, 64, 16, kSmallSplits, kWindowRows, 8},
    {"gqa_window_128_odd_blocks", 4, 2, 128, 3, kOddSplits, kWindowRows, 7},
    {"mqa_window_200", 3, 1, 200, 16, kOddSplits, kWindowRows, 8},
    {"mha_window_of_one", 2, 2, 24, 5, kOddSplits, kWindowRows, 1},
    {"mqa_window_wider_than_tiles", 3, 1, 32, 24, kSmallSplits, kWindowRows, 90},
    {"gqa_prefill_window_64", 4, 2, 64, 16, kSmallSplits, kLongChunkRows, 24},
    {"mqa_prefill_window_128", 2, 1, 128, 24, kSmallSplits, kLongChunkRows, 90},
    {"gqa_long_window_80",
     4,
     2,
     80,
     16,
     {.min_split_tokens = 64, .max_splits = 16, .split_multiple = 64},
     kLongDecodeRows,
     500},
    {"gqa_mixed_switches_64", 4, 2, 64, 16, kOddSplits, kSwitchRows, 45, 4.0f, true, true},
    {.name = "gqa_verify_64",
     .num_heads = 4,
     .num_kv_heads = 2,
     .head_dim = 64,
     .block_size = 16,
     .split = kVerifySplits,
     .rows = kVerifyRows,
     .prompt_splits = 32},
    {.name = "mqa_verify_128_window_and_switches",
     .num_heads = 8,
     .num_kv_heads = 1,
     .head_dim = 128,
     .block_size = 24,
     .split = kVerifySplits,
     .rows = kVerifyRows,
     .window = 150,
     .softcap = 6.0f,
     .alibi = true,
     .sinks = true,
     .prompt_splits = 3},
    {.name = "mqa_verify_256_in_passes",
     .num_heads = 16,
     .num_kv_heads = 1,
     .head_dim = 256,
     .block_size = 16,
     .split = kVerifySplits,
     .rows = kWideVerifyRows,
     .prompt_splits = 32},
};

// Of the oracle alone: every kernel with each switch by itself, and with all of them. Heads of 64,
// 128, 192 and 256 in groups of at most 8 and blocks of a multiple of 16 are the bulk decode
// kernel's where there is one; all others are decoded on matrix units. Splits and leaves are short,
// so that rows of two blocks have several.
inline constexpr AttentionCase kAttentionSwitchCases[] = {
    {"mha_64_cap", 2, 2, 64, 16, kSmallSplits, kBlocksOf16, 0, 2.0f},
    {"mha_64_alibi", 2, 2, 64, 16, kSmallSplits, kBlocksOf16, 0, 0.0f, true},
    {"mha_64_sinks", 2, 2, 64, 16, kSmallSplits, kBlocksOf16, 0, 0.0f, false, true},
    {"mqa_128_groups_of_2", 2, 1, 128, 32, kOddSplits, kBlocksOf32, 20, 50.0f, true},
    {"gqa_192_groups_of_4", 8, 2, 192, 48, kSmallSplits, kBlocksOf48, 0, 0.0f, true, true},
    {"mqa_256_groups_of_5", 5, 1, 256, 16, kSmallSplits, kBlocksOf16, 0, 3.0f, false, true},
    {"mqa_128_groups_of_8", 8, 1, 128, 48, kOddSplits, kBlocksOf48, 33, 0.0f, false, true},
    {"mqa_64_groups_of_8", 8, 1, 64, 544, kLongSplits, kBlocksOf544, 0, 6.0f, true, true},
    {"mqa_80_groups_of_12", 12, 1, 80, 16, kSmallSplits, kBlocksOf16, 0, 2.5f},
    {"mqa_80_groups_of_16", 16, 1, 80, 32, kOddSplits, kBlocksOf32, 24, 0.0f, true},
    {"mqa_96_groups_of_5", 5, 1, 96, 48, kSmallSplits, kBlocksOf48, 0, 0.0f, false, true},
    {"gqa_96_groups_of_2", 4, 2, 96, 32, kOddSplits, kBlocksOf32, 0, 8.0f, true, true},
    {"mqa_96_one_block", 3, 1, 96, 544, kLongSplits, kBlocksOf544, 300, 0.0f, true, true},
    {"mqa_128_groups_of_16", 16, 1, 128, 16, kSmallSplits, kBlocksOf16, 9, 5.0f, true, true},
    {"mqa_256_groups_of_12", 12, 1, 256, 32, kOddSplits, kBlocksOf32, 0, 30.0f, true, true},
    {"mha_20_odd_dim", 3, 3, 20, 5, kSmallSplits, kBlocksOf16, 12, 1.5f, true, true},
};

// Groups of two rows, of more than fit a tile, and of one; rows of no group between them; rows that
// end with the prefix and behind it, one that is not as long as the prefix, and a chunk, which both
// go alone.
inline constexpr AttentionRow kTwoSharing[] = {{130, 1, 1, 128}, {64, 1}, {150, 1, 1, 128}};
inline constexpr AttentionRow kManySharing[] = {
    {70, 1, 1, 64}, {64, 1, 1, 64}, {65, 1, 1, 64},  {80, 1, 1, 64}, {91, 1, 1, 64},
    {77, 1, 1, 64}, {140, 1},       {66, 1, 1, 64},  {72, 1, 1, 64}, {85, 1, 1, 64},
    {69, 1, 1, 64}, {73, 1, 1, 64}, {128, 1, 1, 64}, {64, 1, 1, 64}, {99, 1, 1, 64},
    {68, 1, 1, 64}, {71, 1, 1, 64}, {74, 1, 1, 64},  {75, 1, 1, 64}, {76, 1, 1, 64}};
// More than the 32 members of a full tile, where every query head has a KV head of its own.
inline constexpr auto kFullTileSharing = [] {
  std::array<AttentionRow, 34> rows{};
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = {64 + 5 * i % 21, 1, 1, 64};
  return rows;
}();
inline constexpr AttentionRow kGroupsSharing[] = {
    {400, 1, 1, 336}, {200, 1, 2, 192}, {63, 1},          {336, 1, 1, 336}, {192, 1, 2, 192},
    {210, 1, 2, 192}, {100, 1, 3, 96},  {350, 1, 1, 336}, {340, 3, 1, 336}, {300, 1, 2, 192}};
inline constexpr AttentionRow kLongSharing[] = {
    {1100, 1, 1, 1088}, {1500, 1, 1, 1088}, {1088, 1, 1, 1088}, {1090, 1, 1, 1088}};
inline constexpr SplitRule kSharedSplits = {
    .min_split_tokens = 64, .max_splits = 10, .split_multiple = 64};

inline constexpr AttentionCase kAttentionPrefixCases[] = {
    {"mha_64", 2, 2, 64, 16, kSharedSplits, kTwoSharing},
    {"mha_64_many", 1, 1, 64, 32, kSharedSplits, kManySharing},
    {"mha_64_full_tile", 1, 1, 64, 16, kSharedSplits, kFullTileSharing},
    {"gqa_64_groups_of_2_many", 4, 2, 64, 16, kSharedSplits, kManySharing, 0, 2.0f, true, true},
    {"mqa_128_groups_of_4", 4, 1, 128, 16, kSharedSplits, kManySharing},
    {"mqa_128_groups_of_4_switches", 4, 1, 128, 48, kSharedSplits, kGroupsSharing, 0, 20.0f, true,
     true},
    {"gqa_128_groups_of_3_window", 6, 2, 128, 16, kSharedSplits, kGroupsSharing, 205},
    {"mqa_128_groups_of_8", 8, 1, 128, 16, kSharedSplits, kGroupsSharing, 0, 0.0f, true, true},
    {"mqa_128_groups_of_4_long", 4, 1, 128, 64, kSharedSplits, kLongSharing},
    {"mqa_192_groups_of_5", 5, 1, 192, 16, kSharedSplits, kGroupsSharing, 0, 3.0f},
    {"mqa_256_groups_of_2", 2, 1, 256, 16, kSharedSplits, kTwoSharing, 0, 0.0f, true},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_ATTENTION_CASES_H_
