// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm/rms_norm.h"

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status RmsNorm(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                     uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rms_norm", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rms_norm", "hidden", args.hidden, 1));
  const size_t shared = static_cast<size_t>(args.hidden) * sizeof(float);
  return stream.Launch(kernels.rms_norm, {.grid_x = max_rows, .block = 256, .shared_bytes = shared},
                       args);
}

}  // namespace reprise::kernels
