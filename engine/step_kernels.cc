// SPDX-License-Identifier: Apache-2.0
#include "engine/step_kernels.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/step_kernel/step_kernel_geometry.h"
#include "runtime/check.h"
#include "runtime/memory/buffer_plan.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

absl::StatusOr<std::unique_ptr<StepKernels>> StepKernels::Create(runtime::Device& device,
                                                                 runtime::Stream& stream,
                                                                 const kernels::KernelSet& kernels,
                                                                 std::span<const int64_t> buckets,
                                                                 const EnqueueFn& enqueue) {
  std::unique_ptr<StepKernels> all(new StepKernels());
  for (const int64_t rows : buckets) {
    if (rows > kernels::kStepTokens) continue;
    kernels::LaunchList list;
    REPRISE_RETURN_IF_ERROR(enqueue(list, static_cast<uint32_t>(rows)));
    REPRISE_ASSIGN_OR_RETURN(auto plan, kernels::StepKernelPlan::Of(kernels, list.launches()));
    all->buckets_.push_back({.rows = static_cast<uint32_t>(rows), .plan = std::move(plan)});
  }
  if (all->buckets_.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("decode is step-kernel, and no decode bucket has ", kernels::kStepTokens,
                     " rows or fewer; allowed: such a bucket, or decode tuned or chain"));
  REPRISE_RETURN_IF_ERROR(all->Upload(device, stream));
  return all;
}

absl::Status StepKernels::Upload(runtime::Device& device, runtime::Stream& stream) {
  runtime::BufferPlan buffers;
  size_t most_stages = 0;
  for (Bucket& bucket : buckets_) {
    buffers.Add(&bucket.stages, bucket.plan.stages.size(),
                absl::StrCat("step_kernel.stages/", bucket.rows));
    most_stages = std::max(most_stages, bucket.plan.stages.size());
  }
  buffers.Add(&done_, most_stages, "step_kernel.done");
  buffers.Add(&counters_, 2, "step_kernel.counters");
  REPRISE_ASSIGN_OR_RETURN(arena_, buffers.Allocate(device));
  REPRISE_RETURN_IF_ERROR(stream.Fill(arena_.data(), 0, arena_.bytes()));
  for (const Bucket& bucket : buckets_) {
    const std::vector<kernels::StepStage>& stages = bucket.plan.stages;
    REPRISE_RETURN_IF_ERROR(
        stream.CopyToDevice(bucket.stages, stages.data(), stages.size() * sizeof(stages[0])));
  }
  return stream.Synchronize();
}

const StepKernels::Bucket* StepKernels::Find(uint32_t rows) const {
  for (const Bucket& bucket : buckets_)
    if (bucket.rows == rows) return &bucket;
  return nullptr;
}

absl::Status StepKernels::Enqueue(runtime::Stream& stream, const kernels::KernelSet& kernels,
                                  uint32_t rows) const {
  const Bucket* const bucket = Find(rows);
  REPRISE_CHECK(bucket != nullptr);
  return kernels::StepKernel(stream, kernels, bucket->plan,
                             {.stages = bucket->stages, .done = done_, .counters = counters_});
}

std::vector<kernels::ListedStage> StepKernels::ListStages(uint32_t rows) const {
  const Bucket* const bucket = Find(rows);
  REPRISE_CHECK(bucket != nullptr);
  return kernels::ListStages(bucket->plan);
}

uint32_t StepKernels::max_rows() const {
  uint32_t most = 0;
  for (const Bucket& bucket : buckets_) most = std::max(most, bucket.rows);
  return most;
}

}  // namespace reprise::engine
