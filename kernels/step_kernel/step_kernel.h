// SPDX-License-Identifier: Apache-2.0
// The step kernel: the layers of a decode step of few rows in one launch, whose blocks all run at
// once and read weights without a pause. It does what a stream of the layers' own kernels does, bit
// for bit, for those kernels that StepKernelPlan::Of knows: linear layers over packed weights
// (linear_stream, linear_group), RMSNorm, rope and KV append, and decode attention by bulk copies.
//
//   LaunchList list;
//   REPRISE_RETURN_IF_ERROR(decoder.Enqueue(inputs of `list`));
//   REPRISE_ASSIGN_OR_RETURN(StepKernelPlan plan, StepKernelPlan::Of(kernels, list.launches()));
//   ... copy plan.stages to device memory ...
//   REPRISE_RETURN_IF_ERROR(StepKernel(stream, kernels, plan, memory));
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/kernel_set.h"
#include "kernels/step_kernel/launch_list.h"
#include "kernels/step_kernel/step_stage.h"
#include "runtime/device.h"

namespace reprise::kernels {

struct StepKernelPlan {
  std::vector<ListedLaunch> head;            // launches ahead of the kernel, as they were
  std::vector<StepStage> stages;             // what the kernel does, at least one
  std::vector<runtime::LaunchLabel> labels;  // of the stages' launches; for stage_list.h
  uint32_t num_units = 0;                    // tiles of 16 outputs of all linear layers
  uint32_t first_linear = 0;                 // stage of the first of them
  std::vector<const uint32_t*> counts;       // live rows, of the stages: StepKernelArgs::num_rows
  const LoadedKernel* kernel = nullptr;

  // REQUIRES: launches of a step of at most kStepTokens rows. Those of other ops than the kernel's
  // may come first, and become `head`. Errors:
  // Unimplemented names the launch that the kernel does not do, or what the device lacks.
  static absl::StatusOr<StepKernelPlan> Of(const KernelSet& kernels,
                                           std::span<const ListedLaunch> launches);
};

// Device memory of a launch.
struct StepKernelMemory {
  const StepStage* stages = nullptr;  // the plan's, copied there
  // Zero before the first launch, and after every one; shared by all launches of one stream.
  uint32_t* done = nullptr;      // [at least the plan's stages]
  uint32_t* counters = nullptr;  // [2]
};

// Enqueues the head, then the kernel. Grid: a block for each multiprocessor; it is cooperative.
absl::Status StepKernel(runtime::Stream& stream, const KernelSet& kernels,
                        const StepKernelPlan& plan, const StepKernelMemory& memory);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_H_
