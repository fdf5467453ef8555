// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm/rms_norm.h"

#include "kernels/launch_check.h"
#include "kernels/rms_norm/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// By the row's width alone, as the order of the sum follows from it. A row that 256 threads can
// keep is left to them: small blocks overlap better.
unsigned BlockThreads(const LoadedKernel& kernel, int32_t hidden, size_t element_bytes) {
  constexpr unsigned kSmall = 256;
  const bool kept =
      static_cast<size_t>(hidden) * element_bytes <= kNormPacksPerThread * kSmall * 16;
  return kept ? kSmall : kernel.threads;
}

absl::Status Launch(runtime::Stream& stream, const KernelSet& kernels, const KernelFamily& family,
                    RmsNormArgs args, uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rms_norm", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rms_norm", "hidden", args.hidden, 1));
  args.share = 1.0f / static_cast<float>(args.hidden);
  const LoadedKernel& kernel = kernels.Get(family);
  const unsigned threads = BlockThreads(kernel, args.hidden, runtime::SizeOf(kernels.dtype));
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_rows, .block = threads, .label = kernel.label()}, args);
}

}  // namespace

absl::Status RmsNorm(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                     uint32_t max_rows) {
  return Launch(stream, kernels, args.row_scales != nullptr ? kRmsNormRounded : kRmsNorm, args,
                max_rows);
}

absl::Status RmsNormAdd(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                        uint32_t max_rows) {
  if (args.branch == nullptr || args.residual_out == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("rms_norm_add: got no ", args.branch == nullptr ? "branch" : "residual_out",
                     "; allowed: both"));
  return Launch(stream, kernels, kRmsNormAdd, args, max_rows);
}

}  // namespace reprise::kernels
