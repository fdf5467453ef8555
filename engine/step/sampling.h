// SPDX-License-Identifier: Apache-2.0
// Sampling parameters between a request and the device: what they may be, which features of the
// kernels they need, how many words of a ring entry they take, and their form on the device. Steps
// 3 and 5 of the way of a step. `eos_token_ids` are the model's, which stop_at_eos stands for.
#ifndef REPRISE_ENGINE_STEP_SAMPLING_H_
#define REPRISE_ENGINE_STEP_SAMPLING_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/sampling_params.h"
#include "engine/step_request.h"
#include "kernels/step/ring.h"
#include "kernels/step/step_limits.h"

namespace reprise::engine {

// kernels::RowFeatures that the parameters need.
uint32_t FeaturesOf(const SamplingParams& sampling);

// Whether a row may have these parameters. `token_stamps`: vocab_size entries, none of them
// `stamp`. Errors: InvalidArgument, OutOfRange (too many), FailedPrecondition (switched off), each
// with row, field, got, allowed.
absl::Status CheckSamplingParams(uint32_t row, const SamplingParams& sampling,
                                 const kernels::StepLimits& limits,
                                 std::span<const uint32_t> eos_token_ids, uint64_t stamp,
                                 std::span<uint64_t> token_stamps);
// A mask for vocab_size tokens with at least one of them allowed, or empty.
absl::Status CheckAllowedTokens(uint32_t row, std::span<const std::byte> allowed,
                                const kernels::StepLimits& limits);

// Words that `words` words of sampling data take in a ring entry: each list starts at a multiple of
// four.
constexpr uint32_t SamplingWords(size_t words) {
  return static_cast<uint32_t>((words + 3) / 4 * 4);
}
uint32_t MaskWords(uint32_t vocab_size);  // of one mask
uint64_t SamplingWordsOf(const RowAdd& add, uint32_t vocab_size,
                         std::span<const uint32_t> eos_token_ids);
// Room for every row to bring everything but a history at once, and for one row's history. Reads
// max_rows, max_context_length, vocab_size, adjust_logits and the lengths of lists.
uint64_t MaxSamplingWords(const kernels::StepLimits& limits);

// As the device keeps it.
kernels::RowSampling ToRowSampling(const RowAdd& add, std::span<const uint32_t> eos_token_ids);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_SAMPLING_H_
