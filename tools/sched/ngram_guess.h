// SPDX-License-Identifier: Apache-2.0
// A guess at what a row samples next, by what it has already: where its last few tokens have come
// before, it may go on as it did there. Texts that repeat themselves, or their prompt, do. Source:
// Saxena, "Prompt Lookup Decoding", 2023. No state; the batcher asks for each row that continues.
#ifndef REPRISE_TOOLS_SCHED_NGRAM_GUESS_H_
#define REPRISE_TOOLS_SCHED_NGRAM_GUESS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

struct NgramOptions {
  uint32_t length = 0;      // tokens that must have come before; 0: there are no guesses
  uint32_t max_tokens = 0;  // of a guess
  bool any() const { return length != 0; }
};

inline constexpr NgramOptions kDefaultNgram = {.length = 3, .max_tokens = 4};

// "ngram", or "ngram:N,K". Errors: InvalidArgument.
absl::StatusOr<NgramOptions> ParseDraft(std::string_view text);
// "ngram:3,4".
std::string NameOf(const NgramOptions& options);

// `most` tokens: those that followed the last `length` tokens of prompt and tokens together where
// these came before, at the latest such place; empty where there is none. A guess that runs into
// the end of what there is goes on with itself. Cost: O(tokens). REQUIRES: length > 0.
std::vector<uint32_t> GuessByNgram(std::span<const uint32_t> prompt,
                                   std::span<const uint32_t> tokens, uint32_t length,
                                   uint32_t most);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_NGRAM_GUESS_H_
