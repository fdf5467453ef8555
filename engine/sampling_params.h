// SPDX-License-Identifier: Apache-2.0
// SamplingParams: how a row samples, as a caller says it, and the one table of its numbers: names,
// ranges and, in the struct, defaults. Validation, both ends of the wire and the reference
// scheduler work from that table. A new number is added here, to reprise.v1.Sampling under the same
// name, to kernels::RowSampling (the device's form, step/sampling.cc) and to the kernel that
// applies it.
#ifndef REPRISE_ENGINE_SAMPLING_PARAMS_H_
#define REPRISE_ENGINE_SAMPLING_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace reprise::engine {

struct TokenBias {
  uint32_t token = 0;
  float bias = 0.0f;  // finite; added to the token's logit
};

// How a row samples, and when it stops by itself. kernels/sample/sample.h says what each number
// does and in which order. Everything but temperature and seed costs nothing in steps whose rows
// leave it at its default. The brackets give the ranges beyond which a step is refused; each number
// is also in ForEachSamplingNumber below.
struct SamplingParams {
  float temperature = 0.0f;  // [0, inf) 0 is greedy: the lowest token id wins a tie
  // Keys the row's counter-based random numbers: the same seed, context and model draw the same
  // token, whatever else is in the batch.
  uint64_t seed = 0;
  uint32_t top_k = 0;                          // 0: all
  float top_p = 1.0f;                          // (0, 1]
  float min_p = 0.0f;                          // [0, 1]
  float repetition_penalty = 1.0f;             // (0, inf)
  float presence_penalty = 0.0f;               // finite
  float frequency_penalty = 0.0f;              // finite
  std::span<const TokenBias> logit_bias = {};  // at most 512 tokens, each once
  // A bit per token, bit t % 8 of byte t / 8, ceil(vocab / 8) bytes; empty: all are allowed.
  std::span<const std::byte> allowed_tokens = {};
  // The row stops when it samples one of these (at most 64, with the model's own where
  // stop_at_eos), which it still reports.
  std::span<const uint32_t> stop_tokens = {};
  bool stop_at_eos = false;
  // The row stops when it has sampled so many tokens since it was added; 0: no such limit.
  uint32_t max_new_tokens = 0;
  uint32_t min_tokens = 0;  // no stop token is sampled before so many were; <= max_new_tokens
  // [0, 32] Report the likeliest tokens and the sampled one's rank, under the model's own logits.
  uint32_t num_logprobs = 0;
  bool return_logits = false;  // report all the model's own logits
};

// One number of SamplingParams. Its default is the struct's own.
template <typename T>
struct SamplingNumber {
  std::string_view name;  // the member's; the field of reprise.v1.Sampling has it too
  T SamplingParams::*member;
  // Whether a finite value is within the range, and the range in words.
  bool (*accepts)(T) = [](T) { return true; };
  std::string_view allowed = "finite";
};

// Calls visit(SamplingNumber<T>) for every number, in the order of the struct.
template <typename Visit>
void ForEachSamplingNumber(Visit&& visit) {
  using S = SamplingParams;
  visit(SamplingNumber<float>{"temperature", &S::temperature, [](float x) { return x >= 0.0f; },
                              "finite, at least 0"});
  visit(SamplingNumber<uint64_t>{"seed", &S::seed});
  visit(SamplingNumber<uint32_t>{"top_k", &S::top_k});
  visit(SamplingNumber<float>{"top_p", &S::top_p, [](float x) { return x > 0.0f && x <= 1.0f; },
                              "more than 0, at most 1"});
  visit(SamplingNumber<float>{"min_p", &S::min_p, [](float x) { return x >= 0.0f && x <= 1.0f; },
                              "0 to 1"});
  visit(SamplingNumber<float>{"repetition_penalty", &S::repetition_penalty,
                              [](float x) { return x > 0.0f; }, "finite, more than 0"});
  visit(SamplingNumber<float>{"presence_penalty", &S::presence_penalty});
  visit(SamplingNumber<float>{"frequency_penalty", &S::frequency_penalty});
  visit(SamplingNumber<bool>{"stop_at_eos", &S::stop_at_eos});
  visit(SamplingNumber<uint32_t>{"max_new_tokens", &S::max_new_tokens});
  visit(SamplingNumber<uint32_t>{"min_tokens", &S::min_tokens});
  visit(SamplingNumber<uint32_t>{"num_logprobs", &S::num_logprobs});
  visit(SamplingNumber<bool>{"return_logits", &S::return_logits});
}

// Whether the row needs to know which tokens came before.
inline bool HasPenalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
         sampling.frequency_penalty != 0.0f;
}

// SamplingParams with lists of its own, for callers that keep them for longer than a step.
struct OwnedSamplingParams {
  SamplingParams numbers = {};  // its lists stay empty
  std::vector<TokenBias> logit_bias = {};
  std::vector<uint32_t> stop_tokens = {};

  // Valid as long as this object is, unchanged.
  SamplingParams View() const {
    SamplingParams view = numbers;
    view.logit_bias = logit_bias;
    view.stop_tokens = stop_tokens;
    return view;
  }
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SAMPLING_PARAMS_H_
