// SPDX-License-Identifier: Apache-2.0
#include "kernels/step_kernel/stage_list.h"

namespace reprise::kernels {

std::string_view NameOf(StageKind kind) {
  switch (kind) {
    case StageKind::kLinear:
      return "linear";
    case StageKind::kNorm:
      return "norm";
    case StageKind::kRopeAppend:
      return "rope_append";
    case StageKind::kAttention:
      return "attention";
  }
  return "unknown";
}

std::vector<ListedStage> ListStages(const StepKernelPlan& plan) {
  std::vector<ListedStage> list;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StepStage& stage = plan.stages[i];
    ListedStage listed{.kind = stage.kind,
                       .op = plan.labels[i].op,
                       .num_tiles = stage.num_units,
                       .fixed = stage.fixed,
                       .per_row = stage.per_row,
                       .count = stage.count,
                       .from_table = plan.labels[i].from_table};
    if (stage.kind == StageKind::kLinear) {
      listed.out_features = stage.linear.out_features;
      listed.in_features = stage.linear.in_features;
      listed.first_tile = stage.first_unit;
    }
    if (i > 0) listed.waits_for = i - 1;
    list.push_back(listed);
  }
  return list;
}

}  // namespace reprise::kernels
