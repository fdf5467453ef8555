// SPDX-License-Identifier: Apache-2.0
// Body of the plan, block style: the rows' part (step/rows_body.h), then attention's
// (attention/plan_body.h), in one launch of one block.
#ifndef REPRISE_KERNELS_PLAN_PLAN_BODY_H_
#define REPRISE_KERNELS_PLAN_PLAN_BODY_H_

#include "kernels/attention/plan_body.h"
#include "kernels/device/block.h"
#include "kernels/plan/plan_args.h"
#include "kernels/step/rows_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The rows that run, as attention's plan asks for them.
struct PlannedRows {
  const StepPlan& plan;

  REPRISE_FN uint32_t num_tokens(int e) const { return plan.entries[e].num_tokens; }
  REPRISE_FN uint32_t context_before(int e) const { return plan.context_before[e]; }
  REPRISE_FN uint32_t row(int e) const { return plan.entries[e].slot; }
};

REPRISE_FN void PlanBody(Block& b, const PlanArgs& a) {
  const StepPlan& p = a.plan;
  const uint32_t num_rows = p.counts->num_rows;
  const int rows = static_cast<int>(num_rows);

  // Asked for early, since it is not needed before long.
  const AttentionTree& tree = LoadTree(b, a.attention);
  PlanRows(b, p, a.rows, rows);
  const uint32_t num_tokens = b.ExclusiveScan(
      rows, [&](int e) { return p.entries[e].num_tokens; },
      [&](int e, uint32_t start) { p.query_start[e] = start; });
  b.Once([&] { p.query_start[num_rows] = num_tokens; });  // for the kernels that follow
  PlanTokens(b, p, a.rows, a.block_size, num_rows, num_tokens);
  const uint32_t num_sampled = PlanSampled(b, p, rows);
  const uint32_t num_prompt =
      p.prompt_target == nullptr ? 0 : PlanPromptLogprobs(b, p, rows, num_sampled);

  const PlannedRows planned{p};
  b.Sync();  // the tree is there
  const auto decide = Decide(b, a.attention, tree, planned, rows);
  b.For(rows, [&](int e) { p.attention_leaf[e] = decide.RowLeaf(e); });
  uint32_t num_decode = 0;
  if (a.attention.num_shares == 0) {
    num_decode = PlanDecodeItems(b, decide, rows, p.decode_items);
  } else {
    const PlannedPrefixes prefixes{p.prefix, static_cast<int>(p.counts->num_prefix_members),
                                   p.prefix_members};
    PlanDecodeShares(b, a.attention, decide, rows, a.max_rows, p.query_start, prefixes,
                     p.decode_rows, p.decode_shares, b.Shared<unsigned char>(kPlanTreeBytes));
  }
  const uint32_t num_prefill = PlanPrefillItems(b, a.attention, decide, rows, p.prefill_items);
  b.Once([&] {
    p.counts->num_tokens = num_tokens;  // without those of stopped rows
    p.counts->num_sampled = num_sampled;
    p.counts->num_prompt_logprobs = num_prompt;
    p.counts->num_logits = num_sampled + num_prompt;
    p.counts->num_decode_items = num_decode;
    p.counts->num_prefill_items = num_prefill;
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
