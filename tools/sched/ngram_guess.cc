// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/ngram_guess.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr std::string_view kName = "ngram";
constexpr uint64_t kMost = 64;  // of either number

}  // namespace

absl::StatusOr<NgramOptions> ParseDraft(std::string_view text) {
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat("draft: got \"", std::string(text),
                   "\", allowed: ngram, or ngram:N,K: where the "
                   "last N tokens have come before, the K behind them there; both 1 to ",
                   kMost));
  if (!text.starts_with(kName)) return refused;
  text.remove_prefix(kName.size());
  if (text.empty()) return kDefaultNgram;
  if (text.front() != ':') return refused;
  const auto numbers = ParseUnsignedList(text.substr(1), 1, kMost);
  if (!numbers.ok() || numbers->size() != 2) return refused;
  return NgramOptions{.length = static_cast<uint32_t>((*numbers)[0]),
                      .max_tokens = static_cast<uint32_t>((*numbers)[1])};
}

std::string NameOf(const NgramOptions& options) {
  return absl::StrCat(std::string(kName), ":", options.length, ",", options.max_tokens);
}

std::vector<uint32_t> GuessByNgram(std::span<const uint32_t> prompt,
                                   std::span<const uint32_t> tokens, uint32_t length,
                                   uint32_t most) {
  const size_t size = prompt.size() + tokens.size();
  std::vector<uint32_t> guess;
  const auto at = [&](size_t i) {
    if (i < prompt.size()) return prompt[i];
    return i < size ? tokens[i - prompt.size()] : guess[i - size];
  };
  for (size_t end = size; end-- > length;) {
    size_t same = 0;
    while (same < length && at(end - 1 - same) == at(size - 1 - same)) ++same;
    if (same < length) continue;
    for (uint32_t i = 0; i < most; ++i) guess.push_back(at(end + i));
    break;
  }
  return guess;
}

}  // namespace reprise::tools
