// SPDX-License-Identifier: Apache-2.0
// The ops of a Mamba-2 layer between its two projections: a causal convolution, the state space
// model itself, and a gated norm. The first two carry state from step to step, per resident row.
//
// State is the slot's, and nobody clears it: where a row has no context before this step, it is
// taken for zero, whatever is there. A row's tokens of one step are walked one after the other, in
// the same order of sums however they are cut into steps and whoever runs beside it, so that a
// row's bits depend on the row alone. A row without tokens in this step keeps its state.
#ifndef REPRISE_KERNELS_MAMBA_MAMBA_H_
#define REPRISE_KERNELS_MAMBA_MAMBA_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/mamba/mamba_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// With v[t] the row's inputs of all steps, 0 before its first token:
//   out[t, c] = silu(bias[c] + sum over k of weight[c, k] * v[t - width + 1 + k, c])
// in f32, rounded once to T. The row's last width - 1 inputs become its state. 64-bit offsets.
// Grid: max_rows and pieces of max_tokens x pieces of the channels. Errors: InvalidArgument on
// shapes. Source: Gu & Dao 2023.
absl::Status MambaConv(runtime::Stream& stream, const KernelSet& kernels, MambaConvArgs args,
                       uint32_t max_rows, uint32_t max_tokens);

// Per head, with x, B and C of token t (heads share B and C in num_groups groups) and
// dt = min(max(log(1 + exp(dt[t] + dt_bias)), min_dt), max_dt):
//   state[p, n] = state[p, n] * exp(-exp(a_log) * dt) + dt * x[p] * B[n]
//   y[t, p] = sum over n of state[p, n] * C[n] + d * x[p]
// in f32, y rounded once to T. 64-bit offsets; rows of T and of the state begin at multiples of 16
// bytes, or those of 4 elements of T where that is less. Grid: pieces of heads x max_rows, or
// kMambaPromptRows where max_tokens is more than max_rows.
// Errors: InvalidArgument on shapes: heads that groups do not divide, a head_dim beyond
// kMambaMaxHeadDim, a state_size beyond MambaMaxStateSize, min_dt that is negative or above max_dt.
// Source: Dao & Gu 2024 (Mamba-2).
absl::Status MambaScan(runtime::Stream& stream, const KernelSet& kernels, const MambaScanArgs& args,
                       uint32_t max_rows, uint32_t max_tokens);

// With g = y * silu(gate): out[t] = weight * g / sqrt(mean over all of g^2 + eps), in f32, rounded
// once to T. Grid: max_tokens. Errors: InvalidArgument on shapes. Source: as above.
absl::Status MambaNorm(runtime::Stream& stream, const KernelSet& kernels, const MambaNormArgs& args,
                       uint32_t max_tokens);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MAMBA_MAMBA_H_
