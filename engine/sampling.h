// SPDX-License-Identifier: Apache-2.0
// Sampling parameters between a request and the device: what they may be, which features of the
// kernels they need, how many words of a ring slot they take. Steps 3 and 5 of the way of a step.
#ifndef REPRISE_ENGINE_SAMPLING_H_
#define REPRISE_ENGINE_SAMPLING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/step.h"
#include "kernels/step/ring.h"

namespace reprise::engine {

// What an engine offers beyond temperature and seed, and bounds of one step.
struct SamplingLimits {
  bool adjust_logits = false;        // penalties, bias, allowed tokens, min_tokens
  uint32_t max_logit_rows = 0;       // rows of a step that return their logits
  uint32_t max_prompt_logprobs = 0;  // given tokens of a step whose likelihood is reported
  uint32_t max_data_words = 0;       // of a ring slot, for parameters of rows with features
  bool reports = false;              // num_logprobs
  std::vector<uint32_t> eos_token_ids = {};
};

// kernels::RowFeatures that the parameters need.
uint32_t FeaturesOf(const SamplingParams& sampling);

// Ranges; what of it this engine has. `token_stamps`: vocab_size entries, none of them `stamp`.
// Errors: InvalidArgument, OutOfRange (too many), FailedPrecondition (switched off), each with row,
// field, got, allowed.
absl::Status CheckSamplingParams(uint32_t row, const SamplingParams& sampling,
                                 const SamplingLimits& limits, uint32_t vocab_size, uint64_t stamp,
                                 std::span<uint64_t> token_stamps);
// A mask for vocab_size tokens with at least one of them allowed, or empty.
absl::Status CheckAllowedTokens(uint32_t row, std::span<const std::byte> allowed,
                                const SamplingLimits& limits, uint32_t vocab_size);

// Words of sampling data in a ring slot; each piece starts at a multiple of four.
constexpr uint32_t SamplingWords(size_t words) {
  return static_cast<uint32_t>((words + 3) / 4 * 4);
}
uint32_t MaskWords(uint32_t vocab_size);  // of one mask
uint64_t SamplingWordsOf(const RowAdd& add, const SamplingLimits& limits, uint32_t vocab_size);
// Room for every row to bring everything but a history at once, and for one row's history.
uint64_t MaxSamplingWords(uint32_t max_rows, uint32_t max_context_length, uint32_t vocab_size,
                          bool adjust_logits);

// As the device keeps it.
kernels::RowSampling ToRowSampling(const RowAdd& add, const SamplingLimits& limits);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SAMPLING_H_
