// SPDX-License-Identifier: Apache-2.0
// The step kernel, thread style: all layers of a decode step of up to kStepTokens rows in one
// launch, whose blocks all run at once, one on each multiprocessor. A step's launches are stages, a
// list in device memory; warps have roles, and every role goes through the list by itself. What
// follows from another stage is waited for by a word of its own, never by a grid. Weights follow
// from nothing: they are on their way while a block waits.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_BODY_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_BODY_H_

#include "kernels/device/matrix_group.h"
#include "kernels/step_kernel/step_flags.h"
#include "kernels/step_kernel/step_linear.h"
#include "kernels/step_kernel/step_rows.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The last block to end leaves all words as they were.
REPRISE_FN void EndStepKernel(const StepKernelArgs& a) {
  SyncBlock();
  if (Warp() != 0) return;
  uint32_t is_last = 0;
  if (Lane() == 0)
    is_last =
        AtomicAddAcquireRelease(a.counters + 1, 1u) == static_cast<uint32_t>(GridX()) - 1 ? 1u : 0u;
  if (Shuffle(is_last, 0) == 0) return;
  SyncWarp();
  for (uint32_t i = static_cast<uint32_t>(Lane()); i < a.num_stages; i += kWarpSize) a.done[i] = 0;
  if (Lane() < 2) a.counters[Lane()] = 0;
}

template <typename T, int kHeadSize>
REPRISE_FN void StepKernelBody(const StepKernelArgs& a, unsigned char* shared) {
  BeginInOrder();
  const StepFlags flags(a);
  StepRows<T, kHeadSize> rows(flags, shared);
  const StepLinear<T, kHeadSize> linear(a, flags, shared);
  rows.Init();
  if (Warp() == kStepRequestingWarp) StepLinear<T, kHeadSize>::Init(shared);
  FenceBulkCopies();
  SyncBlock();
  if (Warp() < kStepRowWarps) {
    TakeRegisters<kStepRowRegisters>();
    rows.Run();
  } else if (Warp() < kStepFirstMultiplyingWarp) {
    GiveRegisters<kStepServingRegisters>();
    if (Warp() == kStepKvWarp) {
      rows.RequestKv();
    } else if (Warp() == kStepArrivalsWarp) {
      rows.CountArrivals();
    } else if (Warp() == kStepSummingWarp) {
      linear.Add();
    } else if (Lane() == 0) {
      linear.Request();
    }
  } else {
    GiveRegisters<kStepMultiplyRegisters>();
    linear.MultiplyParts();
  }
  EndStepKernel(a);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_BODY_H_
