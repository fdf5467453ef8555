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
  // What counts rows was written by earlier kernels.
  REPRISE_FN explicit StepFlags(const StepKernelArgs& a)
      : a_(a), rows_{*a.num_rows[0], *a.num_rows[1]} {
    static_assert(kStepCounts == 2);
  }

  REPRISE_FN uint32_t num_stages() const { return a_.num_stages; }
  REPRISE_FN const StepStage& Stage(uint32_t stage) const { return a_.stages[stage]; }

  // The live rows of a stage, and what its word comes to once all of it is done.
  REPRISE_FN uint32_t Rows(uint32_t stage) const { return RowsOf(Stage(stage).count); }
  REPRISE_FN uint32_t Target(uint32_t stage) const {
    const StepStage& s = Stage(stage);
    const uint32_t rows = RowsOf(s.count);
    return rows == 0 ? 0 : s.fixed + rows * s.per_row;
  }

  // Until all that comes before the stage is done. By every lane, so that each may read it.
  REPRISE_FN void WaitBefore(uint32_t stage) const {
    if (stage != 0) WaitFor(stage - 1, Target(stage - 1));
  }
  // The same, of a target that is known already.
  REPRISE_FN void WaitFor(uint32_t stage, uint32_t target) const {
    WaitAtLeast(a_.done + stage, target);
  }
  // What the warp has stored of a stage is a unit of what its word counts.
  REPRISE_FN void AddDone(uint32_t stage) const {
    SyncWarp();
    if (Lane() == 0) AtomicAddRelease(a_.done + stage, 1u);
  }

 private:
  REPRISE_FN uint32_t RowsOf(uint32_t count) const { return count == 0 ? rows_[0] : rows_[1]; }

  const StepKernelArgs& a_;
  const uint32_t rows_[kStepCounts];
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_FLAGS_H_
