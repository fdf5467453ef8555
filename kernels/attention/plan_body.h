// SPDX-License-Identifier: Apache-2.0
// Attention's part of the plan, block style: lists the work items of the rows that run. Rows come
// as an object of three functions of an entry's index: num_tokens (query tokens), context_before
// (KV tokens before them) and row (the resident row). plan/plan_body.h calls it.
#ifndef REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_
#define REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_

#include "kernels/attention/plan.h"
#include "kernels/device/block.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Tokens of one split of a row with `kv_length` tokens.
REPRISE_FN uint32_t SplitLength(const SplitRule& rule, uint32_t kv_length) {
  const uint32_t even = CeilDiv(kv_length, rule.max_splits);
  const uint32_t rounded = CeilDiv(even, rule.split_multiple) * rule.split_multiple;
  return rounded > rule.min_split_tokens ? rounded : rule.min_split_tokens;
}

// The splits of a row of one query token: `count` ranges of `length` tokens from `begin` on, the
// last one up to `end`.
struct RowSplits {
  uint32_t begin, end, length, count;
};
REPRISE_FN RowSplits SplitsOf(const AttentionPlanRule& rule, uint32_t position) {
  RowSplits s;
  s.begin = FirstSeen(rule.window, position);
  s.end = position + 1;
  s.length = SplitLength(rule.split, s.end - s.begin);
  s.count = CeilDiv(s.end - s.begin, s.length);
  return s;
}

// Rows of one query token: an item per split. Returns how many items there are.
template <typename Rows>
REPRISE_FN uint32_t PlanDecodeItems(Block& b, const AttentionPlanRule& rule, const Rows& rows,
                                    int num_rows, AttentionWorkItem* items) {
  return b.ExclusiveScan(
      num_rows,
      [&](int e) {
        return rows.num_tokens(e) == 1 ? SplitsOf(rule, rows.context_before(e)).count : 0u;
      },
      [&](int e, uint32_t first) {
        if (rows.num_tokens(e) != 1) return;
        const RowSplits row = SplitsOf(rule, rows.context_before(e));
        for (uint32_t s = 0; s < row.count; ++s) {
          const uint32_t begin = row.begin + s * row.length;
          const uint32_t end = row.end - begin > row.length ? begin + row.length : row.end;
          items[first + s] = AttentionWorkItem{
              static_cast<uint32_t>(e), 0, 1, begin, end, s, row.count, rows.row(e)};
        }
      });
}

// Rows of more: an item per group of query tokens. Returns how many items there are.
template <typename Rows>
REPRISE_FN uint32_t PlanPrefillItems(Block& b, const AttentionPlanRule& rule, const Rows& rows,
                                     int num_rows, AttentionWorkItem* items) {
  const uint32_t most = rule.prefill_q_tokens;
  return b.ExclusiveScan(
      num_rows,
      [&](int e) {
        const uint32_t n = rows.num_tokens(e);
        return n > 1 ? CeilDiv(n, most) : 0u;
      },
      [&](int e, uint32_t first) {
        const uint32_t n = rows.num_tokens(e);
        for (uint32_t q = 0, i = first; n > 1 && q < n; q += most, ++i) {
          const uint32_t count = n - q < most ? n - q : most;
          const uint32_t position = rows.context_before(e) + q;
          items[i] = AttentionWorkItem{
              static_cast<uint32_t>(e), q, count, FirstSeen(rule.window, position),
              position + count,         0, 1,     rows.row(e)};
        }
      });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_PLAN_BODY_H_
