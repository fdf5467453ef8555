// SPDX-License-Identifier: Apache-2.0
#include "kernels/step/publish.h"

#include "kernels/launch_check.h"
#include "kernels/step/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status Publish(runtime::Stream& stream, const KernelSet& kernels, const PublishArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("publish", "depth", args.depth, 1));
  const LoadedKernel& kernel = kernels.Get(kPublish);
  return stream.Launch(kernel.kernel,
                       {.grid_x = 1, .block = kernel.threads, .label = kernel.label()}, args);
}

}  // namespace reprise::kernels
