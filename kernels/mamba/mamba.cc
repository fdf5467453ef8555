// SPDX-License-Identifier: Apache-2.0
#include "kernels/mamba/mamba.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/launch_check.h"
#include "kernels/mamba/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

absl::Status CheckScan(const MambaScanArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_scan", "num_heads", args.num_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_scan", "state_size", args.state_size, 1));
  REPRISE_RETURN_IF_ERROR(
      CheckAtLeast("mamba_scan", "projected_size", args.projected_size, args.num_heads));
  if (args.head_dim < 1 || args.head_dim > kMambaMaxHeadDim)
    return absl::InvalidArgumentError(absl::StrCat("mamba_scan: head_dim is ", args.head_dim,
                                                   "; allowed: 1 to ", kMambaMaxHeadDim));
  if (args.num_groups < 1 || args.num_heads % args.num_groups != 0)
    return absl::InvalidArgumentError(absl::StrCat("mamba_scan: num_groups is ", args.num_groups,
                                                   "; allowed: numbers that divide num_heads, ",
                                                   args.num_heads));
  if (!(args.min_dt >= 0.0f && args.min_dt <= args.max_dt))
    return absl::InvalidArgumentError(absl::StrCat("mamba_scan: min_dt is ", args.min_dt,
                                                   "; allowed: 0 to max_dt, ", args.max_dt));
  const int32_t max_state = MambaMaxStateSize(MambaScanWidth(args));
  if (args.state_size > max_state)
    return absl::InvalidArgumentError(absl::StrCat(
        "mamba_scan: state_size is ", args.state_size, "; allowed: 1 to ", max_state,
        max_state == MambaMaxStateSize(1) ? ", more where 4 divides it and all heads" : ""));
  return absl::OkStatus();
}

}  // namespace

absl::Status MambaConv(runtime::Stream& stream, const KernelSet& kernels, MambaConvArgs args,
                       uint32_t max_rows, uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_conv", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_conv", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_conv", "channels", args.channels, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_conv", "width", args.width, 2));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_conv", "offset", args.offset, 0));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_conv", "projected_size", args.projected_size,
                                       int64_t{args.offset} + args.channels));
  const LoadedKernel& kernel = kernels.Get(kMambaConv);
  const int32_t pieces = (args.channels + kMambaConvChannels - 1) / kMambaConvChannels;
  args.max_rows = static_cast<int32_t>(max_rows);
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_rows + (max_tokens + kMambaConvTokens - 1) / kMambaConvTokens,
                        .grid_y = static_cast<unsigned>(pieces),
                        .block = kernel.threads,
                        .label = kernel.label()},
                       args);
}

absl::Status MambaScan(runtime::Stream& stream, const KernelSet& kernels, const MambaScanArgs& args,
                       uint32_t max_rows, uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_scan", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_scan", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckScan(args));
  const LoadedKernel& kernel = kernels.Get(kMambaScan);
  const int32_t dim = MambaScanDim(MambaScanPacks(args));
  const int32_t blocks = args.num_heads * ((args.head_dim + dim - 1) / dim);  // of a row
  runtime::LaunchShape shape{.grid_x = static_cast<unsigned>(blocks),
                             .grid_y = max_rows,
                             .block = kernel.threads,
                             .shared_bytes = MambaScanSharedBytes(args),
                             .label = kernel.label()};
  if (max_tokens > max_rows) {
    const int multiprocessors = kernels.device.num_multiprocessors;
    shape.grid_y = std::min(max_rows, kMambaPromptRows);
    shape.shared_bytes = MambaPromptSharedBytes(args, kernels.traits().shared_bytes,
                                                (blocks + multiprocessors - 1) / multiprocessors);
  }
  return stream.Launch(kernel.kernel, shape, args);
}

absl::Status MambaNorm(runtime::Stream& stream, const KernelSet& kernels, const MambaNormArgs& args,
                       uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_norm", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("mamba_norm", "size", args.size, 1));
  REPRISE_RETURN_IF_ERROR(
      CheckAtLeast("mamba_norm", "projected_size", args.projected_size, args.size));
  const LoadedKernel& kernel = kernels.Get(kMambaNorm);
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_tokens, .block = kernel.threads, .label = kernel.label()},
                       args);
}

}  // namespace reprise::kernels
