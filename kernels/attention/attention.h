// SPDX-License-Identifier: Apache-2.0
// Paged attention: decode rows and prefill chunks of one batch, causal, GQA/MQA/MHA, any block
// size. Work comes from the plan's lists; the grid is static. Decode rows go through the bulk
// decode kernel where args.shares are given, whatever the candidate; else through the host's own
// kernel there, through matrix units where they fit, else through the portable kernel, which is the
// reference. The naive candidate and the merge in a launch of its own are for benchmarks.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/attention/attention_args.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::kernels {

// Blocks of the bulk decode kernel's grid on the device, for AttentionPlanRule.num_shares; 0 where
// there is no such kernel for queries of num_heads and such a cache: it wants bulk copies, 16-bit
// elements in heads of 64, 128, 192 or 256 or E4M3 in heads of 128, groups of at most 8, and blocks
// of a multiple of 16 tokens. A cache that it reads is swizzled (KvLayout); kv.swizzled does not
// matter here.
uint32_t NumDecodeShares(const KernelSet& kernels, int32_t num_heads, const KvLayout& kv);

// Rows of a tile of that kernel, for AttentionPlanRule.tile_members: so many that share their first
// tokens read them once. 0 where there is no such kernel.
uint32_t TileMembers(const KernelSet& kernels, int32_t num_heads, const KvLayout& kv);

// Query rows of one prefill item at most, for PrefillQueryTokens: kPrefillGroupRows where the
// prefill kernel on products of warpgroups runs, which wants a device that has them, 16-bit
// elements in a cache that is swizzled, heads of 64 or 128, groups of at most 16, and blocks of a
// multiple of 16 tokens; else kPrefillRows. Launches of a step have one such number.
int32_t NumPrefillRows(const KernelSet& kernels, int32_t num_heads, const KvLayout& kv);

// kNaive: one query token and one query head at a time; what the plan says of splits is left aside.
enum class AttentionCandidate : uint8_t { kBest, kPortable, kNaive };
// Which list a launch walks: items of one query token, or of several.
enum class AttentionPhase : uint8_t { kDecode, kPrefill };

// out[t, h] = sum_p softmax_p(s_p) V[p, h / group] over KV positions p <= position of token t, and
// p > that position - window where there is a window, f32 inside, where
//
//   s_p = scale * q[t, h] . K[p, h / group]
//   softcap:       s_p = softcap * tanh(s_p / softcap)
//   alibi_slopes:  s_p += alibi_slopes[h] * (p - position of token t)
//   sinks:         a further score, sinks[h], counts in the softmax's sum and has no V
//
// KV is of q's type, or of 8 bits: K and V are what is stored times the scale of their KV head
// then.
//
// Each is a switch of the launch: layers may differ, and any of them go together. Layers whose
// windows differ need lists of their own. Partials of one row are merged in split order by
// whichever block finishes last: a row's bits depend on the row alone. Never reads KV slots at or
// beyond a row's length, nor those before the window of an item's first query.
// Errors: InvalidArgument on head counts, on a softcap that is negative or not finite, and on
// scales of KV that has none; Unimplemented on a head_dim over 256 and on KV that the candidate has
// no kernel for; FailedPrecondition where a block of the device has less shared memory than one
// query row of the candidate takes (portable: about 3 KB at head_dim 256, naive: 35 KB), or where
// args.shares are given and there is no bulk decode kernel or are no args.arrivals.
absl::Status Attention(runtime::Stream& stream, const KernelSet& kernels, const AttentionArgs& args,
                       AttentionPhase phase,
                       AttentionCandidate candidate = AttentionCandidate::kBest);

// Merges, in a launch of its own, the splits that Attention with the same arguments and the same
// candidate has left as partial results: args.arrivals were nullptr. What is not split stays as it
// is. Errors: those of Attention; FailedPrecondition on args.shares, and for the naive candidate,
// which splits nothing.
absl::Status AttentionMerge(runtime::Stream& stream, const KernelSet& kernels,
                            const AttentionArgs& args,
                            AttentionCandidate candidate = AttentionCandidate::kBest);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_H_
