// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of the plan. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_PLAN_INSTANCES_H_
#define REPRISE_KERNELS_PLAN_INSTANCES_H_

#include "kernels/kernel_instance.h"

#define REPRISE_PLAN_INSTANCES(X)                                                           \
  X(reprise_plan, kPlan, Block, PlanBody, PlanArgs, Threads(640), 0, None, None, None, 0,   \
    OnEveryDevice)                                                                          \
  X(reprise_plan_set_tree, kPlanSetTree, Block, SetAttentionTreeBody, SetAttentionTreeArgs, \
    Threads(256), 0, None, None, None, 0, OnEveryDevice)

namespace reprise::kernels {

inline constexpr KernelFamily kPlan = {"plan", "plan"};
inline constexpr KernelFamily kPlanSetTree = {"plan", "plan_set_tree"};

inline constexpr KernelInstance kPlanInstances[] = {
    REPRISE_PLAN_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PLAN_INSTANCES_H_
