// SPDX-License-Identifier: Apache-2.0
// The soft cap of logits.
#ifndef REPRISE_KERNELS_SOFTCAP_SOFTCAP_H_
#define REPRISE_KERNELS_SOFTCAP_SOFTCAP_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/softcap/softcap_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// x[r, i] = cap * tanh(x[r, i] / cap), f32; NaN stays NaN. 16-byte aligned, 64-bit offsets. Grid:
// max_rows x pieces of a row. Errors: InvalidArgument on shapes, and on a cap that is not a finite
// number above 0. Source: Gemma Team 2024 (Gemma 2).
absl::Status Softcap(runtime::Stream& stream, const KernelSet& kernels, const SoftcapArgs& args,
                     uint32_t max_rows);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SOFTCAP_SOFTCAP_H_
