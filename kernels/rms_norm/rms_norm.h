// SPDX-License-Identifier: Apache-2.0
// RMSNorm with an optional residual add in front and an optional gather of rows, or with the add
// behind it.
#ifndef REPRISE_KERNELS_RMS_NORM_RMS_NORM_H_
#define REPRISE_KERNELS_RMS_NORM_RMS_NORM_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// s[h] = T(residual[g, h] + branch_scale * branch[g, h]), g = gather[r] or r; kept in
// residual_out[g, h] if asked for.
// out[r, h] = s[h] * (weight_offset + weight[h]) / sqrt(mean_h(s[h]^2) + eps), f32 inside, rounded
// to T once; with row_scales, what RoundRows would make of that. All pointers 16-byte aligned.
// Grid: max_rows blocks. Errors: InvalidArgument on max_rows < 1 or hidden < 1. Source: Zhang &
// Sennrich 2019.
absl::Status RmsNorm(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                     uint32_t max_rows);

// The norm of a branch, and then the sum, for models that norm behind a layer:
// n[h] = T(branch[r, h] * (weight_offset + weight[h]) / sqrt(mean_h(branch[r, h]^2) + eps))
// residual_out[r, h] = T(residual[r, h] + branch_scale * n[h]); out and gather are not looked at.
// Pointers, grid and errors as above, and InvalidArgument without a branch or a residual_out.
absl::Status RmsNormAdd(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                        uint32_t max_rows);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_RMS_NORM_RMS_NORM_H_
