// SPDX-License-Identifier: Apache-2.0
#include "kernels/round_rows/round_rows.h"

#include <algorithm>

#include "kernels/launch_check.h"
#include "kernels/round_rows/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status RoundRows(runtime::Stream& stream, const KernelSet& kernels, const RoundRowsArgs& args,
                       uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("round_rows", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("round_rows", "columns", args.columns, 1));
  const LoadedKernel& kernel = kernels.Get(kRoundRows);
  // As many threads as keep the row, in whole steps: small blocks begin sooner.
  constexpr unsigned kStep = 256;
  const auto of_step = kStep * static_cast<unsigned>(kRoundPacksPerThread) * 16 /
                       static_cast<unsigned>(runtime::SizeOf(kernels.dtype));
  const unsigned steps = (static_cast<unsigned>(args.columns) + of_step - 1) / of_step;
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_rows,
                        .block = std::min(kernel.threads, steps * kStep),
                        .label = kernel.label()},
                       args);
}

}  // namespace reprise::kernels
