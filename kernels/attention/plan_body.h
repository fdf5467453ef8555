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

// ---- the deal of rows of one query token ----

// A leaf weighs its tokens, in units of kWeightTokens, and kLeafOverhead for beginning and ending
// it: as much as 64 tokens. Chosen, not tuned.
inline constexpr uint32_t kWeightTokens = 16, kLeafOverhead = 4;

REPRISE_FN uint32_t RoundUp(uint32_t x, uint32_t multiple) {
  return CeilDiv(x, multiple) * multiple;
}
REPRISE_FN uint32_t LeafWeight(uint32_t tokens) {
  return RoundUp(tokens, kLeafMultiple) / kWeightTokens + kLeafOverhead;
}

// How the rule cuts a row whose query token is at `position`.
REPRISE_FN DecodeRow CutRow(const AttentionPlanRule& rule, uint32_t position) {
  DecodeRow r{};
  r.kv_begin = FirstSeen(rule.window, position);
  r.kv_end = position + 1;
  r.origin = r.kv_begin / kLeafMultiple * kLeafMultiple;
  const uint32_t tokens = r.kv_end - r.origin;
  const uint32_t even = RoundUp(CeilDiv(tokens, rule.leaf.max_leaves), kLeafMultiple);
  r.leaf_tokens = even > rule.leaf.tokens ? even : rule.leaf.tokens;
  r.num_leaves = CeilDiv(tokens, r.leaf_tokens);
  const uint32_t before_last = r.num_leaves - 1;
  r.weight =
      before_last * LeafWeight(r.leaf_tokens) + LeafWeight(tokens - before_last * r.leaf_tokens);
  return r;
}

// The order of the deal, by weight.
struct DecodeDeal {
  const DealtRow* rows;  // of every entry
  uint32_t num_rows, num_kv_heads;
  uint64_t weight;  // of all

  // The first leaf that begins at or behind so much weight.
  REPRISE_FN DecodePlace At(uint64_t target) const {
    const DecodePlace end{num_rows, 0, 0, 0};
    if (target >= weight) return end;
    uint32_t low = 0, high = num_rows;  // the last entry that begins at or before it
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      if (uint64_t{rows[middle].weight_before} * num_kv_heads <= target) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const DealtRow row = rows[low];
    const auto in_row = static_cast<uint32_t>(target - uint64_t{row.weight_before} * num_kv_heads);
    DecodePlace p{low, in_row / row.weight, 0, 0};
    p.leaf = CeilDiv(in_row - p.kv_head * row.weight, LeafWeight(row.leaf_tokens));
    if (p.leaf < row.num_leaves) return p;
    p.leaf = 0;
    if (++p.kv_head < num_kv_heads) return p;
    p.kv_head = 0;
    // The next entry of any weight.
    while (++p.entry < num_rows && rows[p.entry].weight == 0) {
    }
    return p;
  }

  // floor(weight * share / shares), shares at most kMaxDecodeShares. In 32 bits where they do,
  // since 64 are slow to divide.
  REPRISE_FN uint64_t TargetOf(uint32_t share, uint32_t shares) const {
    const uint64_t each =
        weight >> 32 == 0 ? static_cast<uint32_t>(weight) / shares : weight / shares;
    const auto left = static_cast<uint32_t>(weight - each * shares);
    return each * share + left * share / shares;
  }
};

// Deals the leaves of rows of one query token to rule.num_shares blocks. A share's weight differs
// from the mean by less than a leaf's. query_start: as StepPlan's. scratch: DecodeDealBytes of
// shared memory.
template <typename Rows>
REPRISE_FN void PlanDecodeShares(Block& b, const AttentionPlanRule& rule, const Rows& rows,
                                 int num_rows, const uint32_t* query_start, DecodeRow* list,
                                 DecodeShare* shares, unsigned char* scratch) {
  auto* places = reinterpret_cast<DecodePlace*>(scratch);
  auto* dealt = reinterpret_cast<DealtRow*>(places + rule.num_shares + 1);
  const uint32_t row_weight = b.ExclusiveScan(
      num_rows,
      [&](int e) {
        DecodeRow row = CutRow(rule, rows.context_before(e));
        row.row = rows.row(e);
        row.query = query_start[e];
        if (rows.num_tokens(e) != 1) row.num_leaves = row.weight = 0;
        list[e] = row;
        dealt[e] = {0, row.weight, row.leaf_tokens, row.num_leaves};
        return row.weight;
      },
      [&](int e, uint32_t before) { dealt[e].weight_before = before; });
  const DecodeDeal deal{dealt, static_cast<uint32_t>(num_rows), rule.num_kv_heads,
                        uint64_t{row_weight} * rule.num_kv_heads};
  b.For(static_cast<int>(rule.num_shares) + 1, [&](int s) {
    places[s] = deal.At(deal.TargetOf(static_cast<uint32_t>(s), rule.num_shares));
  });
  b.Sync();
  b.For(static_cast<int>(rule.num_shares), [&](int s) {
    // A block with nothing to do looks at no row, so any will do.
    const uint32_t entry = places[s].entry, last = deal.num_rows - 1;
    shares[s].begin = places[s];
    shares[s].end = places[s + 1];
    if (deal.num_rows != 0) shares[s].row = list[entry < last ? entry : last];
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
