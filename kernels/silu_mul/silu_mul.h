// SPDX-License-Identifier: Apache-2.0
// The gated activation of the MLP.
#ifndef REPRISE_KERNELS_SILU_MUL_SILU_MUL_H_
#define REPRISE_KERNELS_SILU_MUL_SILU_MUL_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/silu_mul/silu_mul_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// out[t, i] = gate / (1 + exp(-z)) * up, gate = gate_up[t, i], up = gate_up[t, intermediate + i];
// f32 inside, one rounding. z = gate is SiLU; z = 2 sqrt(2 / pi) (gate + 0.044715 gate^3), where
// asked for, is GELU in its tanh form, as (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)). With a limit:
// g / (1 + exp(-slope * g)) * (u + 1), g = min(gate, limit), u = max(-limit, min(up, limit)). Grid:
// max_tokens x pieces of a row. Errors: InvalidArgument on shapes, and on a limit beside GELU.
// Sources: Shazeer 2020 (SwiGLU, GEGLU); Hendrycks & Gimpel 2016 (GELU); OpenAI's gpt-oss 2025 (the
// limited form).
absl::Status SiluMul(runtime::Stream& stream, const KernelSet& kernels, const SiluMulArgs& args,
                     uint32_t max_tokens);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SILU_MUL_SILU_MUL_H_
