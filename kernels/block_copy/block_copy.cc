// SPDX-License-Identifier: Apache-2.0
#include "kernels/block_copy/block_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/block_copy/instances.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status BlockCopy(runtime::Stream& stream, const KernelSet& kernels,
                       const BlockCopyArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("block_copy", "count", args.count, 1));
  if (args.count > kMaxCopyPairs) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_copy: count is ", args.count, "; allowed: at most ", kMaxCopyPairs));
  }
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("block_copy", "layers", args.layers, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("block_copy", "block_bytes", args.block_bytes, 1));
  if (args.from == nullptr || args.to == nullptr)
    return absl::InvalidArgumentError("block_copy: from or to is null; allowed: device memory");
  const int64_t pieces = (args.block_bytes + kBlockCopyPiece - 1) / kBlockCopyPiece;
  // A few thread blocks per multiprocessor at most.
  const int64_t blocks =
      std::min<int64_t>(pieces * args.count * args.layers, 16 * kernels.device.num_multiprocessors);
  const LoadedKernel& kernel = kernels.Get(kBlockCopy);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = static_cast<unsigned>(blocks), .block = kernel.threads, .label = kernel.label()},
      args);
}

absl::Status NotifyHost(runtime::Stream& stream, const KernelSet& kernels,
                        const NotifyHostArgs& args) {
  if (args.word == nullptr)
    return absl::InvalidArgumentError("notify_host: word is null; allowed: mapped memory");
  const LoadedKernel& kernel = kernels.Get(kNotifyHost);
  return stream.Launch(kernel.kernel,
                       {.grid_x = 1, .block = kernel.threads, .label = kernel.label()}, args);
}

}  // namespace reprise::kernels
