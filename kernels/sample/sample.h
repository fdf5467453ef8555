// SPDX-License-Identifier: Apache-2.0
// Sampling inside the step: greedy or by temperature, with the log-probability of the sampled
// token.
#ifndef REPRISE_KERNELS_SAMPLE_SAMPLE_H_
#define REPRISE_KERNELS_SAMPLE_SAMPLE_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/sample/sample_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// temperature 0: token[s] = lowest id of the largest logit.
// temperature T: inverse CDF of softmax(logits / T) in token order at u = Philox(seed, position of
// the new token); T below 1e-6 acts as 1e-6. logprob[s] = log softmax(logits)[token[s]], without
// temperature. All logits NaN: token 0, logprob NaN. Every reduction runs over fixed chunks of the
// vocabulary in a fixed order: a row's token depends on its logits, seed and position alone. Two
// launches: max_sampled x num_chunks blocks, then max_sampled blocks. Errors: InvalidArgument on
// shapes.
absl::Status Sample(runtime::Stream& stream, const KernelSet& kernels, const SampleArgs& args,
                    uint32_t max_sampled);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SAMPLE_SAMPLE_H_
