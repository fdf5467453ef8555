// SPDX-License-Identifier: Apache-2.0
// Embedding lookup, and the step's rope table: both are read by every layer and depend on the token
// alone.
#ifndef REPRISE_KERNELS_EMBEDDING_EMBEDDING_H_
#define REPRISE_KERNELS_EMBEDDING_EMBEDDING_H_

#include "absl/status/status.h"
#include "kernels/embedding/embedding_args.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::kernels {

// out[t, h] = table[token_id[t], h] * multiplier
// rope[t, i] = (cos, sin)(float(position[t]) * inverse_frequency[i]) * rope_multiplier, in f32 as
// the reference implementations do; (1, 0) where inverse_frequency[i] is 0, of what is not turned.
// Grid: max_tokens blocks; blocks beyond the live count leave.
// Errors: InvalidArgument on max_tokens < 1.
absl::Status Embedding(runtime::Stream& stream, const KernelSet& kernels, const EmbeddingArgs& args,
                       uint32_t max_tokens);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EMBEDDING_EMBEDDING_H_
