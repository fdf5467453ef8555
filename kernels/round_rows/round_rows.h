// SPDX-License-Identifier: Apache-2.0
// Rows as numbers of 8 bits, with a scale for each: what a linear layer reads whose weights are
// kE4m3Rounded.
#ifndef REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_H_
#define REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/round_rows/round_rows_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// scales[r] = max_i |x[r, i]| * (1 / 448), but 2^-100 at least. out[r, i] = x[r, i] * (1 /
// scales[r]) in f32, rounded to the nearest E4M3, ties to even, 448 at most. NaN stays NaN; beside
// an infinity, which becomes NaN, all else is 0. 16-byte aligned, 64-bit offsets. Grid: max_rows.
// Errors: InvalidArgument on shapes. Source of the rule, one scale for each token: Kuzmin et al.
// 2022, "FP8 Quantization: The Power of the Exponent"; compressed-tensors calls it the dynamic
// strategy 'token'.
absl::Status RoundRows(runtime::Stream& stream, const KernelSet& kernels, const RoundRowsArgs& args,
                       uint32_t max_rows);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_H_
