// SPDX-License-Identifier: Apache-2.0
#include "kernels/stamp/stamp.h"

namespace reprise::kernels {

absl::Status Stamp(runtime::Stream& stream, const KernelSet& kernels, const StampArgs& args) {
  if (args.out == nullptr)
    return absl::InvalidArgumentError("stamp: out is null; allowed: device memory");
  return stream.Launch(kernels.stamp, {.grid_x = 1, .block = 64, .label = {.op = "stamp"}}, args);
}

}  // namespace reprise::kernels
