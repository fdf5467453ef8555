// SPDX-License-Identifier: Apache-2.0
#include "kernels/softcap/softcap.h"

#include <cmath>

#include "kernels/launch_check.h"
#include "kernels/softcap/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status Softcap(runtime::Stream& stream, const KernelSet& kernels, const SoftcapArgs& args,
                     uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("softcap", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("softcap", "columns", args.columns, 1));
  if (!std::isfinite(args.cap) || args.cap <= 0.0f)
    return absl::InvalidArgumentError(
        absl::StrCat("softcap: cap is ", args.cap, "; allowed: finite numbers above 0"));
  const LoadedKernel& kernel = kernels.Get(kSoftcap);
  const unsigned piece =
      kernel.threads * static_cast<unsigned>(kSoftcapPack * kSoftcapPacksPerThread);
  const unsigned pieces = (static_cast<unsigned>(args.columns) + piece - 1) / piece;
  return stream.Launch(
      kernel.kernel,
      {.grid_x = max_rows, .grid_y = pieces, .block = kernel.threads, .label = kernel.label()},
      args);
}

}  // namespace reprise::kernels
