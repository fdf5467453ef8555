// SPDX-License-Identifier: Apache-2.0
#include "kernels/fill/fill.h"

#include <algorithm>

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Pieces of 4096 elements, a few warps of blocks at most.
runtime::LaunchShape ShapeFor(const KernelSet& kernels, const char* op, int64_t count) {
  const int64_t pieces = (count + 4095) / 4096;
  const int64_t blocks = std::min<int64_t>(pieces, 16 * kernels.device.num_multiprocessors);
  return {.grid_x = static_cast<unsigned>(blocks), .block = 256, .label = {.op = op}};
}

}  // namespace

absl::Status RandomFill(runtime::Stream& stream, const KernelSet& kernels,
                        const RandomFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("random_fill", "count", args.count, 1));
  return stream.Launch(kernels.random_fill, ShapeFor(kernels, "random_fill", args.count), args);
}

absl::Status NanFill(runtime::Stream& stream, const KernelSet& kernels, const NanFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("nan_fill", "count", args.count, 1));
  return stream.Launch(kernels.nan_fill, ShapeFor(kernels, "nan_fill", args.count), args);
}

}  // namespace reprise::kernels
