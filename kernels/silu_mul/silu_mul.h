// SPDX-License-Identifier: Apache-2.0
// The gated activation of the MLP.
#ifndef REPRISE_KERNELS_SILU_MUL_SILU_MUL_H_
#define REPRISE_KERNELS_SILU_MUL_SILU_MUL_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/silu_mul/silu_mul_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// out[t, i] = gate / (1 + exp(-gate)) * up, gate = gate_up[t, i], up = gate_up[t, intermediate +
// i]; f32 inside, one rounding Grid: max_tokens x pieces of a row. Errors: InvalidArgument on
// shapes. Source: Shazeer 2020 (SwiGLU).
absl::Status SiluMul(runtime::Stream& stream, const KernelSet& kernels, const SiluMulArgs& args,
                     uint32_t max_tokens);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SILU_MUL_SILU_MUL_H_
