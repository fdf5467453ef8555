// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_mul/silu_mul.h"

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status SiluMul(runtime::Stream& stream, const KernelSet& kernels, const SiluMulArgs& args,
                     uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("silu_mul", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("silu_mul", "intermediate", args.intermediate, 1));
  // One pass of a block's threads over 16-byte packs covers 2048 elements.
  const unsigned pieces = static_cast<unsigned>((args.intermediate + 2047) / 2048);
  return stream.Launch(
      kernels.silu_mul,
      {.grid_x = max_tokens, .grid_y = pieces, .block = 256, .label = {.op = "silu_mul"}}, args);
}

}  // namespace reprise::kernels
