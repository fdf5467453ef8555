// SPDX-License-Identifier: Apache-2.0
// RMSNorm with an optional residual add in front and an optional gather of rows.
#ifndef REPRISE_KERNELS_RMS_NORM_RMS_NORM_H_
#define REPRISE_KERNELS_RMS_NORM_RMS_NORM_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// s[h] = T(residual[g, h] + branch_scale * branch[g, h]), g = gather[r] or r; kept in
// residual_out[g, h] if asked for out[r, h] = s[h] * weight[h] / sqrt(mean_h(s[h]^2) + eps), f32
// inside, rounded to T once All pointers 16-byte aligned. Grid: max_rows blocks. Errors:
// InvalidArgument on max_rows < 1 or hidden < 1. Source: Zhang & Sennrich 2019.
absl::Status RmsNorm(runtime::Stream& stream, const KernelSet& kernels, const RmsNormArgs& args,
                     uint32_t max_rows);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_RMS_NORM_RMS_NORM_H_
