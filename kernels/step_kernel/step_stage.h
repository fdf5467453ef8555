// SPDX-License-Identifier: Apache-2.0
// What the step kernel is given: a decode step's launches as stages, in the order in which a stream
// would run them, each with the arguments that its own kernel would get. See step_kernel.h.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_STAGE_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_STAGE_H_

#include <cstdint>

#include "kernels/attention/attention_args.h"
#include "kernels/linear/linear_args.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "kernels/rope_append/rope_append_args.h"

namespace reprise::kernels {

enum class StageKind : uint32_t { kLinear, kNorm, kRopeAppend, kAttention };

// A stage waits for the one before it, and so for all. What it brings is counted in a word of its
// own: of a linear layer, tiles of 16 outputs; of a norm or rope, warps times rows; of attention,
// warps times rows times KV heads. Who comes to a stage finds all that it needs at once: no load
// that waits for another, and no branch.
struct alignas(16) StepStage {
  StageKind kind = StageKind::kLinear;
  uint32_t count = 0;  // which of StepKernelArgs::num_rows are its rows
  // What its word comes to: fixed + rows * per_row, or 0 without rows.
  uint32_t fixed = 0;
  uint32_t per_row = 0;
  // Of linear layers: tiles of the layers before it, its own, and the stage of the next layer, or
  // num_stages.
  uint32_t first_unit = 0;
  uint32_t num_units = 0;
  uint32_t next_linear = 0;
  uint32_t threads = 0;     // of a norm: those of its own kernel, whose order of sums it keeps
  uint32_t num_shares = 0;  // of attention: of the plan's deal
  // Of the kind alone.
  LinearArgs linear = {};
  RmsNormArgs norm = {};
  RopeAppendArgs rope = {};
  AttentionArgs attention = {};
};

inline constexpr int kStepCounts = 2;

struct StepKernelArgs {
  const StepStage* stages = nullptr;  // [num_stages]
  uint32_t num_stages = 0;
  uint32_t num_units = 0;     // of all linear layers
  uint32_t first_linear = 0;  // stage of the first of them
  // Live counts, of tokens and of what is sampled; never null.
  const uint32_t* num_rows[kStepCounts] = {};
  uint32_t* done = nullptr;      // [num_stages] zero before and after
  uint32_t* counters = nullptr;  // [2] zero before and after: units taken, blocks that have ended
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_STAGE_H_
