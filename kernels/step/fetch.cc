// SPDX-License-Identifier: Apache-2.0
#include "kernels/step/fetch.h"

#include "kernels/launch_check.h"
#include "kernels/step/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
absl::Status Fetch(runtime::Stream& stream, const KernelSet& kernels, const FetchArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("fetch", "depth", args.depth, 1));
  const LoadedKernel& kernel = kernels.Get(kFetch);
  return stream.Launch(kernel.kernel,
                       {.grid_x = kernels.on_host() ? 1 : kFetchBlocks,
                        .block = kernel.threads,
                        .shared_bytes = kFetchAheadBytes,
                        .label = kernel.label()},
                       args);
}

}  // namespace reprise::kernels
