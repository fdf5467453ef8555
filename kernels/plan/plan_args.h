// SPDX-License-Identifier: Apache-2.0
// Arguments of the plan. See plan.h.
#ifndef REPRISE_KERNELS_PLAN_PLAN_ARGS_H_
#define REPRISE_KERNELS_PLAN_PLAN_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/plan.h"
#include "kernels/step/rows.h"

namespace reprise::kernels {

struct PlanArgs {
  StepPlan plan;
  ResidentRows rows;
  AttentionPlanRule attention;
  uint32_t block_size = 0;  // tokens of a KV block
  uint32_t max_rows = 0;
};

// Byte offsets in the plan's shared memory.
struct PlanSharedLayout {
  uint32_t tree = 0;         // AttentionTree
  uint32_t dealt = 0;        // [max_rows] DealtRow, where there is a deal
  uint32_t first_token = 0;  // [max_rows] of each row, as StepPlan::query_start
  uint32_t first_item = 0;   // [max_rows] of each row among prefill_items
  size_t bytes = 0;
};
constexpr PlanSharedLayout PlanSharedLayoutOf(uint32_t max_rows, bool deals) {
  PlanSharedLayout l;
  l.dealt = (sizeof(AttentionTree) + 15) / 16 * 16;
  l.first_token = l.dealt + (deals ? max_rows * static_cast<uint32_t>(sizeof(DealtRow)) : 0);
  l.first_item = l.first_token + max_rows * static_cast<uint32_t>(sizeof(uint32_t));
  l.bytes = l.first_item + size_t{max_rows} * sizeof(uint32_t);
  return l;
}

struct SetAttentionTreeArgs {
  AttentionTree tree;
  AttentionTree* to = nullptr;  // in device memory
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PLAN_PLAN_ARGS_H_
