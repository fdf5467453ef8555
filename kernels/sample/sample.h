// SPDX-License-Identifier: Apache-2.0
// Sampling inside the step: the next token of every row that samples, and what its row wants to
// know of it.
#ifndef REPRISE_KERNELS_SAMPLE_SAMPLE_H_
#define REPRISE_KERNELS_SAMPLE_SAMPLE_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/sample/sample_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// Of each sampled row, from its logits l (NaN counts as minus infinity, plus infinity as the
// largest finite float), in this order, each where the row has the feature:
//
//   mask            l = -inf for tokens whose bit is 0
//   bias            l += bias
//   min_tokens      l = -inf for stop tokens, before the row has sampled so many
//   repetition r    l = l > 0 ? l / r : l * r, for tokens of the prompt or sampled before
//   frequency f     l -= f * (times sampled before)
//   presence p      l -= p, for tokens sampled before
//   temperature T   l / T; 0: token[s] = lowest id of the largest l. T below 1e-6 acts as 1e-6
//   min-p           leaves tokens with l / T >= max(l / T) + log(min_p)
//   top-k           leaves the first k: larger l first, then lower id
//   top-p           leaves the shortest prefix, in that order, of p times the mass left so far
//   draw            inverse CDF in order of ids at u = Philox(seed, position of the new token)
//
// token[s]: kNoCandidate when no l is above minus infinity. logprob[s] = log softmax of the model's
// own logits (before all of the above) at token[s]; NaN with kNoCandidate. Rows with kFeatureLogits
// and kFeatureLogprobs get their logits and a LogprobReport written to the step's entry of the
// result ring, as do prompt tokens (reports only).
//
// Without truncation every sum runs over fixed chunks of the vocabulary in a fixed order; truncated
// rows add integers (probabilities relative to the likeliest, in units of 2^-40). A row's token
// depends on its own logits, state, seed and position alone.
//
// Two launches, with the same grid for every step: (max_sampled + max_prompt_logprobs) x num_chunks
// blocks, then one per row. Errors: InvalidArgument on shapes. Sources: Holtzman et al. 2020
// (top-p), Fan et al. 2018 (top-k), Nguyen et al. 2024 (min-p), Keskar et al. 2019 (repetition).
absl::Status Sample(runtime::Stream& stream, const KernelSet& kernels, const SampleArgs& args,
                    uint32_t max_sampled, uint32_t max_prompt_logprobs = 0);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SAMPLE_SAMPLE_H_
