// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of q and k, their norm where a model has one, and the append of k and v to the
// paged KV cache, in one pass over the qkv projection.
#ifndef REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_H_
#define REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/rope_append/rope_append_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// With x = one head of q or k, half = head_dim / 2, (c, s) = rope[t, 0, i]:
//   y[i] = x[i] * c - x[i + half] * s,  y[i + half] = x[i + half] * c + x[i] * s
// q's y goes to q_out; k's y and v go to kv_cache at (token_block[t], token_offset[t]). Where norm
// weights are given, x is first x[d] * (norm_offset + w[d]) / sqrt(mean(x^2) + norm_eps), in f32:
// nothing is rounded to T in between; with whole_norm the mean is over all heads of q, or of k.
// Where KV has elements of 8 bits, k's y and v are divided by their head's scale and rounded once,
// to nearest even; what lies beyond the largest number becomes that number, and NaN stays NaN
// (kernels/device/fp8.h). 64-bit offsets. Grid: max_tokens blocks. Errors: InvalidArgument on
// shapes, on one norm without the other, and on scales where KV has none; Unimplemented on KV of
// another format than T, but for 8 bits. Source: Su et al. 2021, the half-split layout of Hugging
// Face.
absl::Status RopeAppend(runtime::Stream& stream, const KernelSet& kernels,
                        const RopeAppendArgs& args, uint32_t max_tokens);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_H_
