// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/linear_timer.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear_choice.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

using kernels::KernelInstance;
using kernels::LoadedKernel;

absl::StatusOr<std::unique_ptr<BenchLinearTimer>> BenchLinearTimer::Create(
    runtime::Device& device, std::vector<LinearShape> shapes, const LinearCandidateEntry& candidate,
    const LinearBenchOptions& options) {
  std::unique_ptr<BenchLinearTimer> timer(
      new BenchLinearTimer(device, std::move(shapes), candidate, options));
  timer->options_.room_for_all = true;
  REPRISE_ASSIGN_OR_RETURN(timer->kernels_, kernels::KernelSet::Load(device, options.dtype));
  return timer;
}

// Without addresses, of which no choice depends.
kernels::LinearWeights BenchLinearTimer::WeightsOf(size_t shape) const {
  const LinearShape& of = shapes_[shape];
  return {.format = of.format,
          .layout = candidate_.layout,
          .out_features = of.out_features,
          .in_features = of.in_features,
          .group_size = of.group_size};
}

absl::StatusOr<const KernelInstance*> BenchLinearTimer::BuiltIn(size_t shape, uint32_t rows) {
  const LoadedKernel* const kernel =
      kernels::BuiltInLinearKernel(*kernels_, WeightsOf(shape), rows);
  if (kernel != nullptr) return kernel->instance;
  const LinearShape& of = shapes_[shape];
  return absl::UnimplementedError(
      absl::StrCat(of.name, ": got weights of ", std::string(kernels::NameOf(of.format)),
                   " with activations of ", std::string(runtime::NameOf(options_.dtype)),
                   ", allowed: a format that a kernel reads"));
}

absl::StatusOr<std::vector<const KernelInstance*>> BenchLinearTimer::Rivals(size_t shape,
                                                                            uint32_t rows) {
  REPRISE_ASSIGN_OR_RETURN(const KernelInstance* const built_in, BuiltIn(shape, rows));
  std::vector<const KernelInstance*> rivals;
  for (const LoadedKernel* const loaded :
       kernels::LinearKernelsOfSameBits(*kernels_, WeightsOf(shape), rows)) {
    const KernelInstance* const kernel = loaded->instance;
    // What a norm of its own takes is not seen here, and is more than a kernel could save.
    const bool loses = kernels::TakesResidual(*built_in) && !kernels::TakesResidual(*kernel);
    if (kernel != built_in && !loses) rivals.push_back(kernel);
  }
  return rivals;
}

absl::StatusOr<double> BenchLinearTimer::Time(size_t shape, uint32_t rows,
                                              const KernelInstance& kernel) {
  if (bench_ == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(bench_,
                             LinearBench::Create(device_, shapes_, {&candidate_}, options_));
  }
  return bench_->TimeKernel(shape, rows, kernel);
}

void BenchLinearTimer::Finish() {
  if (bench_ != nullptr) bench_->DropKernelGraphs();
}

}  // namespace reprise::tools
