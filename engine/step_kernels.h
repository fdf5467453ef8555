// SPDX-License-Identifier: Apache-2.0
// StepKernels: the decode buckets whose layers run as one kernel (kernels/step_kernel), and the
// device memory that its launches work from. Made once, before capture; steps read it.
#ifndef REPRISE_ENGINE_STEP_KERNELS_H_
#define REPRISE_ENGINE_STEP_KERNELS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/kernel_set.h"
#include "kernels/step_kernel/stage_list.h"
#include "kernels/step_kernel/step_kernel.h"
#include "runtime/device.h"
#include "runtime/memory/arena.h"

namespace reprise::engine {

class StepKernels {
 public:
  // What enqueues a decode bucket's decoder, of so many rows.
  using EnqueueFn = std::function<absl::Status(runtime::Stream& stream, uint32_t rows)>;

  // For those of `buckets` with at most kernels::kStepTokens rows. Copies on `stream`, and waits
  // for it. Errors: InvalidArgument where no bucket is that small; Unimplemented names what the
  // step kernel does not do; those of `enqueue` and of memory.
  static absl::StatusOr<std::unique_ptr<StepKernels>> Create(runtime::Device& device,
                                                             runtime::Stream& stream,
                                                             const kernels::KernelSet& kernels,
                                                             std::span<const int64_t> buckets,
                                                             const EnqueueFn& enqueue);
  StepKernels(const StepKernels&) = delete;
  StepKernels& operator=(const StepKernels&) = delete;

  // Whether a bucket of so many rows runs so.
  bool Has(uint32_t rows) const { return Find(rows) != nullptr; }
  // REQUIRES: Has(rows).
  absl::Status Enqueue(runtime::Stream& stream, const kernels::KernelSet& kernels,
                       uint32_t rows) const;
  // What its kernel does, stage by stage. REQUIRES: Has(rows).
  std::vector<kernels::ListedStage> ListStages(uint32_t rows) const;
  // Rows of the largest such bucket.
  uint32_t max_rows() const;
  size_t bytes() const { return arena_.bytes(); }

 private:
  struct Bucket {
    uint32_t rows = 0;
    kernels::StepKernelPlan plan;
    kernels::StepStage* stages = nullptr;
  };

  StepKernels() = default;
  const Bucket* Find(uint32_t rows) const;
  absl::Status Upload(runtime::Device& device, runtime::Stream& stream);

  std::vector<Bucket> buckets_;
  uint32_t* done_ = nullptr;
  uint32_t* counters_ = nullptr;
  runtime::Arena arena_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_KERNELS_H_
