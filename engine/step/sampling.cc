// SPDX-License-Identifier: Apache-2.0
#include "engine/step/sampling.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

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

template <typename T>
absl::Status OutOfItsRange(uint32_t row, std::string_view name, T got, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("row ", row, ": ", std::string(name), " is ", got,
                                                 "; allowed: ", std::string(allowed)));
}

template <typename T>
absl::Status CheckNumber(uint32_t row, const SamplingNumber<T>& number, T got) {
  bool ok = number.accepts(got);
  if constexpr (std::is_floating_point_v<T>) ok = ok && std::isfinite(got);
  if (ok) return absl::OkStatus();
  return OutOfItsRange(row, number.name, got, number.allowed);
}

absl::Status CheckNumbers(uint32_t row, const SamplingParams& s) {
  absl::Status status;
  ForEachSamplingNumber([&](const auto& number) {
    if (status.ok()) status = CheckNumber(row, number, s.*number.member);
  });
  REPRISE_RETURN_IF_ERROR(status);
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

size_t NumStopTokens(const SamplingParams& s, std::span<const uint32_t> eos_token_ids) {
  return s.stop_tokens.size() + (s.stop_at_eos ? eos_token_ids.size() : 0);
}

absl::Status CheckLists(uint32_t row, const SamplingParams& s, const kernels::StepLimits& limits,
                        std::span<const uint32_t> eos_token_ids, uint64_t stamp,
                        std::span<uint64_t> stamps) {
  REPRISE_RETURN_IF_ERROR(CheckCount(row, "stop_tokens (with the model's own for stop_at_eos)",
                                     NumStopTokens(s, eos_token_ids), limits.max_stop_tokens));
  for (const uint32_t token : s.stop_tokens)
    REPRISE_RETURN_IF_ERROR(CheckToken(row, "stop_tokens", token, limits.vocab_size));
  REPRISE_RETURN_IF_ERROR(
      CheckCount(row, "logit_bias", s.logit_bias.size(), limits.max_logit_bias));
  for (const TokenBias& bias : s.logit_bias) {
    REPRISE_RETURN_IF_ERROR(CheckToken(row, "logit_bias", bias.token, limits.vocab_size));
    if (!std::isfinite(bias.bias)) return OutOfItsRange(row, "logit_bias", bias.bias, "finite");
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
  if (HasPenalties(s)) features |= kFeaturePenalties;
  if (!s.logit_bias.empty()) features |= kFeatureBias;
  if (!s.allowed_tokens.empty()) features |= kFeatureMask;
  if (s.min_tokens != 0 && stops) features |= kFeatureMinTokens;
  if (s.num_logprobs != 0) features |= kFeatureLogprobs;
  if (s.return_logits) features |= kFeatureLogits;
  return features;
}

absl::Status CheckAllowedTokens(uint32_t row, std::span<const std::byte> allowed,
                                const kernels::StepLimits& limits) {
  const uint32_t vocab_size = limits.vocab_size;
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
                                 const kernels::StepLimits& limits,
                                 std::span<const uint32_t> eos_token_ids, uint64_t stamp,
                                 std::span<uint64_t> token_stamps) {
  REPRISE_RETURN_IF_ERROR(CheckNumbers(row, s));
  if ((FeaturesOf(s) & kernels::kFeaturesThatAdjust) != 0 && !limits.adjust_logits) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", row,
                     ": penalties, logit_bias, allowed_tokens or min_tokens are set; this engine "
                     "was started without adjust_logits"));
  }
  REPRISE_RETURN_IF_ERROR(CheckLists(row, s, limits, eos_token_ids, stamp, token_stamps));
  REPRISE_RETURN_IF_ERROR(CheckAllowedTokens(row, s.allowed_tokens, limits));
  return CheckCount(row, "num_logprobs", s.num_logprobs, limits.max_logprobs);
}

uint32_t MaskWords(uint32_t vocab_size) { return (vocab_size + 31) / 32; }

uint64_t SamplingWordsOf(const RowAdd& add, uint32_t vocab_size,
                         std::span<const uint32_t> eos_token_ids) {
  const SamplingParams& s = add.sampling;
  const uint32_t features = FeaturesOf(s);
  if (features == 0) return 0;
  uint64_t words = sizeof(kernels::RowSampling) / sizeof(uint32_t);
  words += SamplingWords(NumStopTokens(s, eos_token_ids));
  words += SamplingWords(2 * s.logit_bias.size());
  if ((features & kFeatureMask) != 0) words += SamplingWords(MaskWords(vocab_size));
  if ((features & kFeaturePenalties) != 0) words += SamplingWords(1 + add.history.size());
  return words;
}

uint64_t MaxSamplingWords(const kernels::StepLimits& limits) {
  uint64_t row = sizeof(kernels::RowSampling) / sizeof(uint32_t) + limits.max_stop_tokens;
  if (!limits.adjust_logits) return row * limits.max_rows;
  row += 2 * limits.max_logit_bias + SamplingWords(MaskWords(limits.vocab_size)) + SamplingWords(1);
  return row * limits.max_rows + SamplingWords(limits.max_context_length);
}

kernels::RowSampling ToRowSampling(const RowAdd& add, std::span<const uint32_t> eos_token_ids) {
  const SamplingParams& s = add.sampling;
  return {.top_k = s.top_k,
          .top_p = s.top_p,
          .log_min_p = s.min_p > 0.0f ? std::log(s.min_p) : -std::numeric_limits<float>::infinity(),
          .repetition = s.repetition_penalty,
          .presence = s.presence_penalty,
          .frequency = s.frequency_penalty,
          .max_new_tokens = s.max_new_tokens,
          .min_tokens = s.min_tokens,
          .num_stop = static_cast<uint32_t>(NumStopTokens(s, eos_token_ids)),
          .num_bias = static_cast<uint32_t>(s.logit_bias.size()),
          .num_logprobs = s.num_logprobs,
          .prompt_length = add.prompt_length};
}

}  // namespace reprise::engine
