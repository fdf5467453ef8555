// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using kernels::kFeatureBias;
using kernels::kFeatureLogits;
using kernels::kFeatureLogprobs;
using kernels::kFeatureMask;
using kernels::kFeatureMinTokens;
using kernels::kFeaturePenalties;
using kernels::kFeatureStop;
using kernels::kFeatureTruncate;

absl::Status CheckFloat(uint32_t row, const char* name, float got, bool in_range,
                        const char* allowed) {
  if (std::isfinite(got) && in_range) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("row ", row, ": ", name, " is ", got, "; allowed: ", allowed));
}

absl::Status CheckNumbers(uint32_t row, const SamplingParams& s) {
  REPRISE_RETURN_IF_ERROR(
      CheckFloat(row, "temperature", s.temperature, s.temperature >= 0.0f, "finite, at least 0"));
  REPRISE_RETURN_IF_ERROR(CheckFloat(row, "top_p", s.top_p, s.top_p > 0.0f && s.top_p <= 1.0f,
                                     "more than 0, at most 1"));
  REPRISE_RETURN_IF_ERROR(
      CheckFloat(row, "min_p", s.min_p, s.min_p >= 0.0f && s.min_p <= 1.0f, "0 to 1"));
  REPRISE_RETURN_IF_ERROR(CheckFloat(row, "repetition_penalty", s.repetition_penalty,
                                     s.repetition_penalty > 0.0f, "finite, more than 0"));
  REPRISE_RETURN_IF_ERROR(CheckFloat(row, "presence_penalty", s.presence_penalty, true, "finite"));
  REPRISE_RETURN_IF_ERROR(
      CheckFloat(row, "frequency_penalty", s.frequency_penalty, true, "finite"));
  if (s.max_new_tokens != 0 && s.min_tokens > s.max_new_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("row ", row, ": min_tokens is ", s.min_tokens,
                                                   "; allowed: at most max_new_tokens, ",
                                                   s.max_new_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(uint32_t row, const char* name, size_t got, size_t most) {
  if (got <= most) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("row ", row, ": ", name, ": got ", got, "; allowed: at most ", most));
}

absl::Status CheckToken(uint32_t row, const char* name, uint32_t token, uint32_t vocab_size) {
  if (token < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("row ", row, ": ", name, ": token id ", token,
                                                 "; allowed: less than ", vocab_size,
                                                 ", the vocabulary"));
}

absl::Status CheckLists(uint32_t row, const SamplingParams& s, const SamplingLimits& limits,
                        uint32_t vocab_size, uint64_t stamp, std::span<uint64_t> stamps) {
  const size_t num_stop = s.stop_tokens.size() + (s.stop_at_eos ? limits.eos_token_ids.size() : 0);
  REPRISE_RETURN_IF_ERROR(CheckCount(row, "stop_tokens (with the model's own for stop_at_eos)",
                                     num_stop, kernels::kMaxStopTokens));
  for (const uint32_t token : s.stop_tokens)
    REPRISE_RETURN_IF_ERROR(CheckToken(row, "stop_tokens", token, vocab_size));
  REPRISE_RETURN_IF_ERROR(
      CheckCount(row, "logit_bias", s.logit_bias.size(), kernels::kMaxLogitBias));
  for (const TokenBias& bias : s.logit_bias) {
    REPRISE_RETURN_IF_ERROR(CheckToken(row, "logit_bias", bias.token, vocab_size));
    REPRISE_RETURN_IF_ERROR(CheckFloat(row, "logit_bias", bias.bias, true, "finite"));
    if (stamps[bias.token] == stamp) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, ": logit_bias: token id ", bias.token, " is twice in it"));
    }
    stamps[bias.token] = stamp;
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t FeaturesOf(const SamplingParams& s) {
  const bool stops = !s.stop_tokens.empty() || s.stop_at_eos;
  uint32_t features = 0;
  if (stops || s.max_new_tokens != 0) features |= kFeatureStop;
  if (s.temperature > 0.0f && (s.top_k != 0 || s.top_p < 1.0f || s.min_p > 0.0f))
    features |= kFeatureTruncate;
  if (s.repetition_penalty != 1.0f || s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f)
    features |= kFeaturePenalties;
  if (!s.logit_bias.empty()) features |= kFeatureBias;
  if (!s.allowed_tokens.empty()) features |= kFeatureMask;
  if (s.min_tokens != 0 && stops) features |= kFeatureMinTokens;
  if (s.num_logprobs != 0) features |= kFeatureLogprobs;
  if (s.return_logits) features |= kFeatureLogits;
  return features;
}

absl::Status CheckAllowedTokens(uint32_t row, std::span<const std::byte> allowed,
                                const SamplingLimits& limits, uint32_t vocab_size) {
  if (allowed.empty()) return absl::OkStatus();
  if (!limits.adjust_logits) {
    return absl::FailedPreconditionError(absl::StrCat(
        "row ", row, ": allowed_tokens: this engine was started without adjust_logits"));
  }
  const size_t bytes = (static_cast<size_t>(vocab_size) + 7) / 8;
  if (allowed.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("row ", row, ": allowed_tokens has ",
                                                   allowed.size(), " bytes; allowed: ", bytes,
                                                   ", a bit for each of ", vocab_size, " tokens"));
  }
  for (size_t i = 0; i < bytes; ++i) {
    const uint32_t used = i + 1 == bytes && vocab_size % 8 != 0 ? (1u << vocab_size % 8) - 1 : 255u;
    if ((std::to_integer<uint32_t>(allowed[i]) & used) != 0) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("row ", row, ": allowed_tokens has no bit set; allowed: at least one token"));
}

absl::Status CheckSamplingParams(uint32_t row, const SamplingParams& s,
                                 const SamplingLimits& limits, uint32_t vocab_size, uint64_t stamp,
                                 std::span<uint64_t> token_stamps) {
  REPRISE_RETURN_IF_ERROR(CheckNumbers(row, s));
  if ((FeaturesOf(s) & kernels::kFeaturesThatAdjust) != 0 && !limits.adjust_logits) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", row,
                     ": penalties, logit_bias, allowed_tokens or min_tokens are set; this engine "
                     "was started without adjust_logits"));
  }
  REPRISE_RETURN_IF_ERROR(CheckLists(row, s, limits, vocab_size, stamp, token_stamps));
  REPRISE_RETURN_IF_ERROR(CheckAllowedTokens(row, s.allowed_tokens, limits, vocab_size));
  return CheckCount(row, "num_logprobs", s.num_logprobs,
                    limits.reports ? kernels::kMaxTopLogprobs : 0);
}

uint32_t MaskWords(uint32_t vocab_size) { return (vocab_size + 31) / 32; }

uint64_t SamplingWordsOf(const RowAdd& add, const SamplingLimits& limits, uint32_t vocab_size) {
  const SamplingParams& s = add.sampling;
  const uint32_t features = FeaturesOf(s);
  if (features == 0) return 0;
  uint64_t words = sizeof(kernels::RowSampling) / sizeof(uint32_t);
  words += SamplingWords(s.stop_tokens.size() + (s.stop_at_eos ? limits.eos_token_ids.size() : 0));
  words += SamplingWords(2 * s.logit_bias.size());
  if ((features & kFeatureMask) != 0) words += SamplingWords(MaskWords(vocab_size));
  if ((features & kFeaturePenalties) != 0) words += SamplingWords(1 + add.history.size());
  return words;
}

uint64_t MaxSamplingWords(uint32_t max_rows, uint32_t max_context_length, uint32_t vocab_size,
                          bool adjust_logits) {
  uint64_t row = sizeof(kernels::RowSampling) / sizeof(uint32_t) + kernels::kMaxStopTokens;
  if (!adjust_logits) return row * max_rows;
  row += 2 * kernels::kMaxLogitBias + SamplingWords(MaskWords(vocab_size)) + SamplingWords(1);
  return row * max_rows + SamplingWords(max_context_length);
}

kernels::RowSampling ToRowSampling(const RowAdd& add, const SamplingLimits& limits) {
  const SamplingParams& s = add.sampling;
  const size_t num_eos = s.stop_at_eos ? limits.eos_token_ids.size() : 0;
  return {.top_k = s.top_k,
          .top_p = s.top_p,
          .log_min_p = s.min_p > 0.0f ? std::log(s.min_p) : -std::numeric_limits<float>::infinity(),
          .repetition = s.repetition_penalty,
          .presence = s.presence_penalty,
          .frequency = s.frequency_penalty,
          .max_new_tokens = s.max_new_tokens,
          .min_tokens = s.min_tokens,
          .num_stop = static_cast<uint32_t>(s.stop_tokens.size() + num_eos),
          .num_bias = static_cast<uint32_t>(s.logit_bias.size()),
          .num_logprobs = s.num_logprobs,
          .prompt_length = add.prompt_length};
}

}  // namespace reprise::engine
