// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm/rms_norm.h"

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// By the row's width alone, as the order of the sum follows from it. A row that 256 threads can
// keep is left to them: small blocks overlap better.
uint32_t BlockThreads(int32_t hidden, size_t element_bytes) {
  return static_cast<size_t>(hidden) * element_bytes <= kNormSlots * 256 * 16 ? 256 : 512;
}

}  // namespace

absl::Status RmsNorm(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                     uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rms_norm", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rms_norm", "hidden", args.hidden, 1));
  return stream.Launch(kernels.rms_norm,
                       {.grid_x = max_rows,
                        .block = BlockThreads(args.hidden, runtime::SizeOf(kernels.dtype)),
                        .label = {.op = "rms_norm"}},
                       args);
}

}  // namespace reprise::kernels
