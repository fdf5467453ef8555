// SPDX-License-Identifier: Apache-2.0
// Columns in another order: what a linear layer reads whose weights were quantised in groups of
// inputs that are not neighbours.
#ifndef REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_H_
#define REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_H_

#include "absl/status/status.h"
#include "kernels/gather_columns/gather_columns_args.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::kernels {

// out[r, i] = x[r, order[i]], bit for bit. 16-byte aligned, 64-bit offsets; every entry of `order`
// must be below `columns`. Grid: max_rows x pieces of a row. Errors: InvalidArgument on shapes.
absl::Status GatherColumns(runtime::Stream& stream, const KernelSet& kernels,
                           const GatherColumnsArgs& args, uint32_t max_rows);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_H_
