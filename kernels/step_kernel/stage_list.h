// SPDX-License-Identifier: Apache-2.0
// What the step kernel will do, stage by stage, in words that people and programs read: made of a
// plan's data alone, on any machine.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STAGE_LIST_H_
#define REPRISE_KERNELS_STEP_KERNEL_STAGE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/step_kernel/step_kernel.h"
#include "kernels/step_kernel/step_stage.h"

namespace reprise::kernels {

// "linear", "norm", "rope_append", "attention".
std::string_view NameOf(StageKind kind);

struct ListedStage {
  StageKind kind = StageKind::kLinear;
  std::string_view op = {};  // of its launch: "linear_stream"; static storage
  int64_t out_features = 0;  // of a linear layer; 0 of others
  int64_t in_features = 0;
  // Tiles of 16 outputs, of a linear layer: how many, and the first among those of all stages,
  // which blocks take from one counter. 0 of others.
  uint32_t num_tiles = 0;
  uint32_t first_tile = 0;
  // What its word comes to, which the next stage waits for: `fixed`, and `per_row` for each live
  // row.
  uint32_t fixed = 0;
  uint32_t per_row = 0;
  uint32_t count = 0;  // by which of the launch's counts of live rows
  // The stage whose word it waits for; unset of the first. What a linear layer reads of weights
  // waits for nothing.
  std::optional<size_t> waits_for = {};
  bool from_table = false;  // LaunchLabel::from_table of its launch
  bool operator==(const ListedStage&) const = default;
};

// In the order in which they run.
std::vector<ListedStage> ListStages(const StepKernelPlan& plan);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_KERNEL_STAGE_LIST_H_
