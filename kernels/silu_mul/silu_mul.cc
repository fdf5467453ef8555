// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_mul/silu_mul.h"

#include "absl/strings/str_cat.h"
#include "kernels/launch_check.h"
#include "kernels/silu_mul/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status SiluMul(runtime::Stream& stream, const KernelSet& kernels, const SiluMulArgs& args,
                     uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("silu_mul", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("silu_mul", "intermediate", args.intermediate, 1));
  if (!(args.limit >= 0.0f) || (args.limit != 0.0f && args.gelu != 0))
    return absl::InvalidArgumentError(absl::StrCat("silu_mul: limit is ", args.limit,
                                                   args.gelu != 0 ? " beside gelu" : "",
                                                   "; allowed: 0 (none), above 0 with SiLU"));
  const LoadedKernel& kernel = kernels.Get(kSiluMul);
  // What one pass of a block's threads over packs of 8 elements covers.
  const unsigned piece = kernel.threads * kSiluMulPack;
  const unsigned pieces = (static_cast<unsigned>(args.intermediate) + piece - 1) / piece;
  return stream.Launch(
      kernel.kernel,
      {.grid_x = max_tokens, .grid_y = pieces, .block = kernel.threads, .label = kernel.label()},
      args);
}

}  // namespace reprise::kernels
