// SPDX-License-Identifier: Apache-2.0
// Logits of another implementation, from a file that tools/make_reference.py writes, and how far an
// engine's are from them. docs/models.md says what the file has.
#ifndef REPRISE_TOOLS_CHECK_REFERENCE_LOGITS_H_
#define REPRISE_TOOLS_CHECK_REFERENCE_LOGITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"

namespace reprise::tools {

struct ReferencePrompt {
  std::vector<uint32_t> tokens;
  uint32_t first_position = 0;
  // [tokens.size() - first_position][vocab]: behind the token at first_position and each later one.
  std::vector<std::vector<float>> logits;
};

struct ReferenceLogits {
  int64_t vocab_size = 0;
  std::vector<ReferencePrompt> prompts;

  // Tokens of the longest prompt.
  uint32_t max_length() const;
};

// Reads FILE.json and the tensors that it names, from FILE.safetensors beside it. Errors: those of
// reading the two files; InvalidArgument with what, got, allowed, for a reference of another
// vocabulary or of more than `max_context_length` tokens, too.
absl::StatusOr<ReferenceLogits> ReadReferenceLogits(const std::string& path, int64_t vocab_size,
                                                    int64_t max_context_length);

// Over all positions: ||got - want|| / ||want||, the largest difference of two logits, and how many
// positions have the same likeliest token.
struct LogitsDifference {
  double relative = 0.0;
  double largest = 0.0;
  uint64_t positions = 0;
  uint64_t same_token = 0;
};

// Runs every prompt in a session of its own: up to the first position in chunks of at most
// `chunk_tokens`, then token by token. The engine must be able to return the logits of a row, and
// have room for the longest prompt. Errors: the engine's.
absl::StatusOr<LogitsDifference> CompareLogits(engine::DecodeEngine& engine,
                                               const ReferenceLogits& reference,
                                               uint32_t chunk_tokens);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CHECK_REFERENCE_LOGITS_H_
