// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/step_oracle.h"

#include <algorithm>
#include <limits>

namespace reprise::testing {

using kernels::AttentionItem;
using kernels::RowEntry;
using kernels::RowResult;
using kernels::SplitRule;
using kernels::TableUpdate;

OracleRows::OracleRows(uint32_t max_rows, uint32_t blocks)
    : context_length(max_rows, kNever),
      last_token(max_rows, kNever),
      temperature(max_rows, std::numeric_limits<float>::quiet_NaN()),
      seed(max_rows, ~uint64_t{0}),
      life(max_rows, kernels::RowLife{kNever, kNever, kNever, kNever}),
      block_table(size_t{max_rows} * blocks, kNever),
      max_blocks_per_row(blocks) {}

uint32_t OracleStep::num_tokens() const {
  uint32_t n = 0;
  for (const RowEntry& row : rows) n += row.num_tokens;
  return n;
}

void AddAttentionItems(uint32_t entry, uint32_t context_before, uint32_t num_tokens,
                       const SplitRule& split, uint32_t prefill_q_tokens, uint32_t window,
                       OraclePlan& plan) {
  // Where the window of the query token at this position begins.
  const auto window_begin = [&](uint32_t position) {
    const int64_t begin = window == 0 ? 0 : int64_t{position} + 1 - window;
    return static_cast<uint32_t>(std::max<int64_t>(0, begin));
  };
  if (num_tokens > 1) {
    for (uint32_t q = 0; q < num_tokens; q += prefill_q_tokens) {
      const uint32_t n = std::min(prefill_q_tokens, num_tokens - q);
      const uint32_t position = context_before + q;
      plan.prefill_items.push_back({entry, q, n, window_begin(position), position + n, 0, 1, 0});
    }
    return;
  }
  const uint32_t first = window_begin(context_before);
  const uint32_t kv = context_before + 1 - first;
  // The shortest multiple that cuts the row into at most max_splits pieces, or the least length if
  // that is longer.
  uint32_t length = split.split_multiple;
  while (uint64_t{length} * split.max_splits < kv) length += split.split_multiple;
  length = std::max(length, split.min_split_tokens);
  const uint32_t first_item = static_cast<uint32_t>(plan.decode_items.size());
  for (uint32_t begin = 0; begin < kv; begin += length)
    plan.decode_items.push_back(
        {entry, 0, 1, first + begin, first + std::min(begin + length, kv), begin / length, 0, 0});
  const uint32_t num_splits = static_cast<uint32_t>(plan.decode_items.size()) - first_item;
  for (size_t i = first_item; i < plan.decode_items.size(); ++i)
    plan.decode_items[i].num_splits = num_splits;
}

OraclePlan PlanStep(const OracleStep& step, uint32_t block_size, const SplitRule& split,
                    uint32_t prefill_q_tokens, uint32_t window, OracleRows& rows) {
  for (const TableUpdate& u : step.table_updates)
    for (uint32_t i = 0; i < u.count; ++i)
      rows.block_table[size_t{u.slot} * rows.max_blocks_per_row + u.first + i] =
          step.blocks[u.offset + i];

  OraclePlan plan;
  for (uint32_t e = 0; e < step.rows.size(); ++e) {
    const RowEntry& row = step.rows[e];
    if (row.flags & kernels::kRowReset) {
      rows.context_length[row.slot] = row.context_length;
      rows.temperature[row.slot] = row.temperature;
      rows.seed[row.slot] = row.seed;
      rows.life[row.slot] = kernels::RowLife{0, 0, kernels::kFinishNone, 0};
    }
    const uint32_t before = rows.context_length[row.slot];
    plan.query_start.push_back(static_cast<uint32_t>(plan.token_id.size()));
    plan.context_before.push_back(before);
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      const uint32_t position = before + i;
      plan.token_id.push_back((row.flags & kernels::kRowTokensGiven)
                                  ? step.given_tokens[row.given_offset + i]
                                  : rows.last_token[row.slot]);
      plan.token_position.push_back(position);
      plan.token_block.push_back(
          rows.block_table[size_t{row.slot} * rows.max_blocks_per_row + position / block_size]);
      plan.token_offset.push_back(position % block_size);
    }
    if (row.flags & kernels::kRowSample) {
      plan.sampled_entry.push_back(e);
      plan.sampled_token.push_back(static_cast<uint32_t>(plan.token_id.size()) - 1);
    }
    AddAttentionItems(e, before, row.num_tokens, split, prefill_q_tokens, window, plan);
  }
  plan.query_start.push_back(static_cast<uint32_t>(plan.token_id.size()));
  return plan;
}

std::vector<RowResult> PublishStep(const OracleStep& step, const OraclePlan& plan,
                                   const std::vector<uint32_t>& token,
                                   const std::vector<float>& logprob, OracleRows& rows) {
  std::vector<RowResult> results;
  for (uint32_t e = 0; e < step.rows.size(); ++e) {
    const RowEntry& row = step.rows[e];
    RowResult result;
    result.context_length = plan.context_before[e] + row.num_tokens;
    rows.context_length[row.slot] = result.context_length;
    for (size_t s = 0; s < plan.sampled_entry.size(); ++s) {
      if (plan.sampled_entry[s] != e) continue;
      result.token = rows.last_token[row.slot] = token[s];
      result.logprob = logprob[s];
      result.flags = kernels::kResultSampled;
      ++rows.life[row.slot].generated;
    }
    results.push_back(result);
  }
  return results;
}

}  // namespace reprise::testing
