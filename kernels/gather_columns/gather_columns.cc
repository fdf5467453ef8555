// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_columns/gather_columns.h"

#include "kernels/gather_columns/instances.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status GatherColumns(runtime::Stream& stream, const KernelSet& kernels,
                           const GatherColumnsArgs& args, uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("gather_columns", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("gather_columns", "columns", args.columns, 1));
  const LoadedKernel& kernel = kernels.Get(kGatherColumns);
  // What one pass of a block's threads over packs covers.
  const unsigned piece = kernel.threads * static_cast<unsigned>(kGatherPack);
  const unsigned pieces = (static_cast<unsigned>(args.columns) + piece - 1) / piece;
  return stream.Launch(
      kernel.kernel,
      {.grid_x = max_rows, .grid_y = pieces, .block = kernel.threads, .label = kernel.label()},
      args);
}

}  // namespace reprise::kernels
