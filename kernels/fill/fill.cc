// SPDX-License-Identifier: Apache-2.0
#include "kernels/fill/fill.h"

#include <algorithm>

#include "kernels/fill/instances.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// A block per piece, and a few per multiprocessor at most.
template <typename Args>
absl::Status Launch(runtime::Stream& stream, const KernelSet& kernels, const KernelFamily& family,
                    const Args& args) {
  const LoadedKernel& kernel = kernels.Get(family);
  const int64_t pieces = (args.count + kFillPiece - 1) / kFillPiece;
  const int64_t blocks = std::min<int64_t>(pieces, 16 * kernels.device.num_multiprocessors);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = static_cast<unsigned>(blocks), .block = kernel.threads, .label = kernel.label()},
      args);
}

}  // namespace

absl::Status RandomFill(runtime::Stream& stream, const KernelSet& kernels,
                        const RandomFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("random_fill", "count", args.count, 1));
  return Launch(stream, kernels, kRandomFill, args);
}

absl::Status NanFill(runtime::Stream& stream, const KernelSet& kernels, const NanFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("nan_fill", "count", args.count, 1));
  return Launch(stream, kernels, kNanFill, args);
}

}  // namespace reprise::kernels
