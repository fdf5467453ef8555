// SPDX-License-Identifier: Apache-2.0
// The stages of the step kernel as its warps see them: who waits for what, and how it is told.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_FLAGS_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_FLAGS_H_

#include "kernels/device/thread.h"
#include "kernels/step_kernel/step_kernel_geometry.h"
#include "kernels/step_kernel/step_stage.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

class StepFlags {
 public:
  REPRISE_FN explicit StepFlags(const StepKernelArgs& a) : a_(a) {}

  REPRISE_FN uint32_t num_stages() const { return a_.num_stages; }
  REPRISE_FN const StepStage& Stage(uint32_t stage) const { return a_.stages[stage]; }

  // The live rows of a stage. What counts them was written by earlier kernels.
  REPRISE_FN uint32_t Rows(uint32_t stage) const {
    const StepStage& s = Stage(stage);
    switch (s.kind) {
      case StageKind::kLinear:
        return *s.linear.num_rows;
      case StageKind::kNorm:
        return *s.norm.num_rows;
      case StageKind::kRopeAppend:
        return *s.rope.num_tokens;
      case StageKind::kAttention:
        // Rope, which always comes just before, has the same rows.
        return *Stage(stage - 1).rope.num_tokens;
    }
    return 0;
  }
  // What its word comes to once all of it is done.
  REPRISE_FN uint32_t Target(uint32_t stage) const {
    const StepStage& s = Stage(stage);
    const uint32_t rows = Rows(stage);
    switch (s.kind) {
      case StageKind::kLinear:
        return rows == 0 ? 0 : s.num_units;
      case StageKind::kNorm:
      case StageKind::kRopeAppend:
        return rows * kStepRowWarps;
      case StageKind::kAttention:
        return rows * static_cast<uint32_t>(s.attention.kv.num_kv_heads) * kStepRowWarps;
    }
    return 0;
  }

  // Until all that comes before the stage is done. By every lane, so that each may read it.
  REPRISE_FN void WaitBefore(uint32_t stage) const {
    if (stage == 0) return;
    WaitAtLeast(a_.done + stage - 1, Target(stage - 1));
  }
  // What the warp has stored of a stage is a unit of what its word counts.
  REPRISE_FN void AddDone(uint32_t stage) const {
    SyncWarp();
    if (Lane() == 0) AtomicAddRelease(a_.done + stage, 1u);
  }

 private:
  const StepKernelArgs& a_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_FLAGS_H_
