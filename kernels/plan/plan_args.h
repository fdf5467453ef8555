// SPDX-License-Identifier: Apache-2.0
// Arguments of the plan. See plan.h.
#ifndef REPRISE_KERNELS_PLAN_PLAN_ARGS_H_
#define REPRISE_KERNELS_PLAN_PLAN_ARGS_H_

#include <cstdint>

#include "kernels/attention/plan.h"
#include "kernels/step/rows.h"

namespace reprise::kernels {

struct PlanArgs {
  StepPlan plan;
  ResidentRows rows;
  AttentionPlanRule attention;
  uint32_t block_size = 0;  // tokens of a KV block
  uint32_t max_rows = 0;    // for a deal (AttentionPlanRule)
};

struct SetAttentionTreeArgs {
  AttentionTree tree;
  AttentionTree* to = nullptr;  // in device memory
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PLAN_PLAN_ARGS_H_
