// SPDX-License-Identifier: Apache-2.0
// LinearTimer: which kernels may take a linear layer with so many rows, and how long one of them
// takes. The tuner knows no device beside it.
#ifndef REPRISE_TOOLS_TUNE_LINEAR_TIMER_H_
#define REPRISE_TOOLS_TUNE_LINEAR_TIMER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernel_instance.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear_weights.h"
#include "runtime/device.h"
#include "tools/bench/linear_bench.h"
#include "tools/bench/linear_candidates.h"
#include "tools/bench/linear_shapes.h"

namespace reprise::tools {

class LinearTimer {
 public:
  virtual ~LinearTimer() = default;
  // What a launch takes without a table. Errors: Unimplemented where nothing reads such weights.
  virtual absl::StatusOr<const kernels::KernelInstance*> BuiltIn(size_t shape, uint32_t rows) = 0;
  // Others that may take its place: their bits are the same, and they can do what it can beside
  // (norms and sums that layers leave to it).
  virtual absl::StatusOr<std::vector<const kernels::KernelInstance*>> Rivals(size_t shape,
                                                                             uint32_t rows) = 0;
  // Nanoseconds of one call, from one replay. Errors: the device's.
  virtual absl::StatusOr<double> Time(size_t shape, uint32_t rows,
                                      const kernels::KernelInstance& kernel) = 0;
  // Nothing more is asked of this shape with so many rows.
  virtual void Finish() = 0;
};

// On a device. Memory for weights is taken, and filled, when the first time is asked for.
class BenchLinearTimer : public LinearTimer {
 public:
  // candidate: how weights lie. `device` must outlive the timer. Errors: those of KernelSet::Load.
  static absl::StatusOr<std::unique_ptr<BenchLinearTimer>> Create(
      runtime::Device& device, std::vector<LinearShape> shapes,
      const LinearCandidateEntry& candidate, const LinearBenchOptions& options);

  absl::StatusOr<const kernels::KernelInstance*> BuiltIn(size_t shape, uint32_t rows) override;
  absl::StatusOr<std::vector<const kernels::KernelInstance*>> Rivals(size_t shape,
                                                                     uint32_t rows) override;
  absl::StatusOr<double> Time(size_t shape, uint32_t rows,
                              const kernels::KernelInstance& kernel) override;
  void Finish() override;

 private:
  BenchLinearTimer(runtime::Device& device, std::vector<LinearShape> shapes,
                   const LinearCandidateEntry& candidate, const LinearBenchOptions& options)
      : device_(device), shapes_(std::move(shapes)), candidate_(candidate), options_(options) {}
  kernels::LinearWeights WeightsOf(size_t shape) const;

  runtime::Device& device_;
  const std::vector<LinearShape> shapes_;
  const LinearCandidateEntry& candidate_;
  LinearBenchOptions options_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::unique_ptr<LinearBench> bench_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_LINEAR_TIMER_H_
