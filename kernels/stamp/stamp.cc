// SPDX-License-Identifier: Apache-2.0
#include "kernels/stamp/stamp.h"

#include "kernels/stamp/instances.h"

namespace reprise::kernels {

absl::Status Stamp(runtime::Stream& stream, const KernelSet& kernels, const StampArgs& args) {
  if (args.out == nullptr)
    return absl::InvalidArgumentError("stamp: out is null; allowed: device memory");
  const LoadedKernel& kernel = kernels.Get(kStamp);
  return stream.Launch(kernel.kernel,
                       {.grid_x = 1, .block = kernel.threads, .label = kernel.label()}, args);
}

}  // namespace reprise::kernels
