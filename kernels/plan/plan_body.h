// SPDX-License-Identifier: Apache-2.0
// Body of the plan, block style: the rows' part (step/rows_body.h), then attention's
// (attention/plan_body.h), in one launch of a block per sliding window.
#ifndef REPRISE_KERNELS_PLAN_PLAN_BODY_H_
#define REPRISE_KERNELS_PLAN_PLAN_BODY_H_

#include "kernels/attention/plan_body.h"
#include "kernels/device/block.h"
#include "kernels/plan/plan_args.h"
#include "kernels/step/rows_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// What is found of a row, and what of it is summed over the rows before: that says where its
// entries of the lists begin.
struct PlannedRow {
  enum Count : uint8_t {
    kTokens,
    kSampled,
    kReported,
    kPromptLogprobs,
    kDecodeWork,
    kPrefillItems,
    kDealtRows,   // in the upper half those that are long
    kDealtLeaves  // their own
  };
  Vec<uint32_t, 8> counts;
  RunningRow row;
  RowWork work;
  PlannedToken token;  // of a row of one
};

REPRISE_FN QueryRow QueryRowOf(const RunningRow& row) {
  return {row.slot, row.num_tokens, row.context_before};
}

// As kDealtRows counts them. There are fewer than 2^16 rows: they fit shared memory.
REPRISE_FN uint32_t DealtRows(const RowWork& work) {
  if (work.weight == 0) return 0;
  return IsLong(work.dealt) ? 1u << 16 | 1u : 1u;
}

REPRISE_FN PlannedRow PlanRow(const PlanArgs& a, const RunningRow& row,
                              const AttentionDecisions& decide, const BatchChoice& of_batch,
                              uint32_t tile_tokens, bool reads_tokens) {
  PlannedRow r;
  r.row = row;
  // Asked for before the sums, which take as long.
  if (reads_tokens && row.num_tokens == 1)
    r.token = LoadToken(a.plan, a.rows, a.block_size, row, 0);
  r.work = decide.WorkOf(QueryRowOf(row), of_batch, tile_tokens);
  r.counts = {{row.num_tokens, NumSampled(row), NumReported(row), NumPromptLogprobs(row),
               r.work.decode_work(), r.work.prompt.count, DealtRows(r.work),
               r.work.dealt.num_own_leaves()}};
  return r;
}

// The largest e with first[e] <= i, for ascending first[0..n) with first[0] == 0.
REPRISE_FN uint32_t OwnerOf(const uint32_t* first, uint32_t n, uint32_t i) {
  uint32_t low = 0, high = n;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (first[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Lists that rows have several entries of, all threads together, where one thread a row would take
// long: tokens of rows of several, and work items.
struct ListWriter {
  const PlanArgs& a;
  const AttentionDecisions& decide;
  const BatchChoice& of_batch;
  const RunningRow* running;
  uint32_t num_rows;

  REPRISE_FN void Tokens(Block& b, const uint32_t* first, uint32_t count) const {
    b.For(static_cast<int>(count), [&](int t) {
      const auto token = static_cast<uint32_t>(t);
      const uint32_t e = OwnerOf(first, num_rows, token);
      const RunningRow row = running[e];
      if (row.num_tokens <= 1) return;
      StoreToken(b, a.plan, a.rows, row, token,
                 LoadToken(a.plan, a.rows, a.block_size, row, token - first[e]));
    });
  }
  // item(row, entry, its work, which of its items).
  template <typename Item>
  REPRISE_FN void Items(Block& b, const uint32_t* first, uint32_t count, AttentionWorkItem* items,
                        Item item) const {
    b.For(static_cast<int>(count), [&](int i) {
      const auto index = static_cast<uint32_t>(i);
      const uint32_t e = OwnerOf(first, num_rows, index);
      const QueryRow row = QueryRowOf(running[e]);
      items[i] = item(row, e, decide.WorkOf(row, of_batch, 0), index - first[e]);
    });
  }
};

// A chain of memory accesses and barriers as short as possible, since one block does it while the
// device waits: a row is one thread's, in registers, and all sums over rows are one scan. Block w
// makes the lists of window w; the first one does the rows' part as well, and all others read
// nothing that it writes, so that they need not wait for it.
REPRISE_FN void PlanBody(Block& b, const PlanArgs& a) {
  const StepPlan& p = a.plan;
  const AttentionPlanRule& rule = a.attention;
  const int w = b.x();
  const bool leads = w == 0;
  const uint32_t window = rule.windows[w];
  const AttentionLists& lists = p.attention[w];
  const PlanSharedLayout layout = PlanSharedLayoutOf(a.max_rows, rule.num_shares);
  auto* const dealt = b.Shared<DealtRow>(layout.dealt);
  auto* const running = b.Shared<RunningRow>(layout.running);
  auto* const first_token = b.Shared<uint32_t>(layout.first_token);
  auto* const first_item = b.Shared<uint32_t>(layout.first_item);
  auto* const first_split = b.Shared<uint32_t>(layout.first_split);

  const AttentionTree& tree = LoadTree(b, rule, b.Shared<AttentionTree>(layout.tree));
  const uint32_t num_rows = p.counts->num_rows;
  const int rows = static_cast<int>(num_rows);
  b.For(rows, [&](int e) { running[e] = LoadRow(p, a.rows, e, leads); });
  b.Sync();  // the tree is there
  AttentionDecisions decide{tree, rule, window, {}};
  if (tree.asks_for_batch != 0) {
    decide.batch = b.Combine(
        rows, BatchFeatures{}, [&](int e) { return FeaturesOf(window, QueryRowOf(running[e])); },
        Together);
  }
  const BatchChoice of_batch = tree.batch.leaves[decide.BatchLeaf()];

  const int num_members =
      rule.tile_members == 0 ? 0 : static_cast<int>(p.counts->num_prefix_members);
  const bool has_tiles = rule.num_shares != 0 && num_members != 0;
  auto* const tile_tokens = b.Shared<uint32_t>(layout.tile_tokens);
  const auto row_of = [&](int e) { return QueryRowOf(running[e]); };
  const TilePlan<decltype(row_of)> tiles{decide, p.prefix, num_members, row_of, tile_tokens};
  if (has_tiles) tiles.Choose(b, rows, lists.prefix_members);

  const auto sums = b.ScanTogether(
      rows,
      [&](int e) {
        return PlanRow(a, running[e], decide, of_batch, has_tiles ? tile_tokens[e] : 0, leads);
      },
      [&](int e, const PlannedRow& r, const Vec<uint32_t, 8>& before) {
        const uint32_t token = before.v[PlannedRow::kTokens];
        const uint32_t work = before.v[PlannedRow::kDecodeWork];
        first_token[e] = token;
        first_item[e] = before.v[PlannedRow::kPrefillItems];
        if (leads) {
          p.query_start[e] = token;
          p.attention_leaf[e] = r.work.leaf;
          PlanSampled(p, r.row, e, token, before.v[PlannedRow::kSampled],
                      before.v[PlannedRow::kReported]);
          if (r.row.num_tokens == 1) StoreToken(b, p, a.rows, r.row, token, r.token);
        }
        if (rule.num_shares == 0) {
          first_split[e] = work;
        } else {
          DecodeRow cut = r.work.dealt;
          cut.query = token;
          lists.decode_rows[e] = cut;
          dealt[e] = {work, r.work.weight, cut.leaf_tokens, cut.num_own_leaves()};
        }
      });
  const uint32_t num_tokens = sums.v[PlannedRow::kTokens];
  const uint32_t num_sampled = sums.v[PlannedRow::kSampled];
  const uint32_t num_prompt = p.prompt_target == nullptr ? 0 : sums.v[PlannedRow::kPromptLogprobs];
  const uint32_t num_items = sums.v[PlannedRow::kPrefillItems];
  const uint32_t decode_work = sums.v[PlannedRow::kDecodeWork];

  if (rule.num_shares != 0) {
    uint32_t num_dealt = num_rows, weight = decode_work;
    if (has_tiles)
      num_dealt += tiles.List(b, of_batch.leaf_overhead, lists.decode_rows + num_rows,
                              dealt + num_rows, &weight);
    const DecodeDeal<uint64_t> deal{dealt, num_dealt, rule.num_kv_heads, of_batch.leaf_overhead,
                                    uint64_t{weight} * rule.num_kv_heads};
    uint32_t taking = of_batch.shares;
    if (taking == 0 && weight != decode_work) taking = rule.num_shares;  // tiles are dealt, too
    if (taking == 0) {
      const uint32_t dealt_rows = sums.v[PlannedRow::kDealtRows];
      taking = NumTaking(
          b, rule, {dealt_rows & 0xffffu, dealt_rows >> 16, sums.v[PlannedRow::kDealtLeaves]});
    }
    PlanDecodeShares(b, rule, taking, deal, lists.decode_rows, b.Shared<DecodePlace>(layout.places),
                     lists.decode_shares);
  }
  const ListWriter list{a, decide, of_batch, running, num_rows};
  if (rule.num_shares == 0) {
    list.Items(b, first_split, decode_work, lists.decode_items,
               [](const QueryRow& row, uint32_t e, const RowWork& work, uint32_t i) {
                 return DecodeItem(row, e, work.splits, i);
               });
  }
  if (num_items != 0) {
    if (leads) list.Tokens(b, first_token, num_tokens);
    list.Items(b, first_item, num_items, lists.prefill_items,
               [&](const QueryRow& row, uint32_t e, const RowWork& work, uint32_t i) {
                 return PrefillItem(window, row, e, work.prompt, i);
               });
  }
  if (leads && num_prompt != 0) PlanPromptLogprobs(b, p, running, rows, num_sampled);
  b.Once([&] {
    p.counts->num_decode_items[w] = rule.num_shares == 0 ? decode_work : 0;
    p.counts->num_prefill_items[w] = num_items;
    if (!leads) return;
    p.query_start[num_rows] = num_tokens;  // for the kernels that follow
    p.counts->num_tokens = num_tokens;     // without those of stopped rows
    p.counts->num_sampled = num_sampled;
    p.counts->num_prompt_logprobs = num_prompt;
    p.counts->num_logits = num_sampled + num_prompt;
    p.counts->attention_leaf = decide.BatchLeaf();
  });
}

REPRISE_FN void SetAttentionTreeBody(Block& b, const SetAttentionTreeArgs& a) {
  const auto* from = reinterpret_cast<const uint32_t*>(&a.tree);
  auto* to = reinterpret_cast<uint32_t*>(a.to);
  b.For(static_cast<int>(sizeof(AttentionTree) / sizeof(uint32_t)),
        [&](int i) { to[i] = from[i]; });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_PLAN_PLAN_BODY_H_
