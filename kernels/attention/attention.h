// SPDX-License-Identifier: Apache-2.0
// Paged attention: decode rows and prefill chunks of one batch, causal, GQA/MQA/MHA, any block
// size. Work comes from the plan's lists; the grid is static. Candidates: `native` (host), `tensor
// core` (bf16 and f16 on CUDA), `portable` (everything, everywhere).
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/attention/attention_args.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::kernels {

enum class AttentionCandidate : uint8_t { kBest, kPortable };
// Which list a launch walks: items of one query token, or of several.
enum class AttentionPhase : uint8_t { kDecode, kPrefill };

// out[t, h] = sum_p softmax_p(scale * q[t, h] . K[p, h / group]) V[p, h / group] over KV positions
// p <= position of token t, and p > that position - window where there is a window, f32 inside.
// Partials of one row are merged in split order by whichever block finishes last: a row's bits
// depend on the row alone. Never reads KV slots at or beyond a row's length, nor those before the
// window of an item's first query. Errors: InvalidArgument on head counts; Unimplemented on a
// head_dim over 256; FailedPrecondition where a block of the device has less shared memory than one
// query row of the portable candidate takes (about 3 KB at head_dim 256).
absl::Status Attention(runtime::Stream& stream, const KernelSet& kernels, const AttentionArgs& args,
                       AttentionPhase phase,
                       AttentionCandidate candidate = AttentionCandidate::kBest);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_H_
