// SPDX-License-Identifier: Apache-2.0
// Where two answers to one step differ. What is compared: every row's tokens, log-probabilities to
// the bit, lengths and reasons to stop, and logits and prompt log-probabilities likewise. What is
// not: times, graphs and padding, which depend on what else ran; and rows that did nothing, because
// they had stopped or paused, which are named or not by how early that was known.
// Threads: free functions without state.
#ifndef REPRISE_TOOLS_REPLAY_ANSWER_DIFFERENCE_H_
#define REPRISE_TOOLS_REPLAY_ANSWER_DIFFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::tools {

struct AnswerDifference {
  uint64_t sequence = 0;             // of the step request
  uint32_t step = 0;                 // of those that the request ran, from 0
  std::optional<uint32_t> row = {};  // unset: the whole step is meant
  std::string field = {};            // as the wire calls it: "token", "logprob", "top_token[2]"
  std::string expected = {};         // as recorded
  std::string got = {};
};

// "step 17, row 3: token: expected 42, got 7".
std::string DifferenceText(const AnswerDifference& difference);

// The first difference, in order of steps, rows and fields; nullopt: there is none. Errors:
// DataLoss
// (`recorded`) or Internal (`got`) where the columns of an answer do not go together.
absl::StatusOr<std::optional<AnswerDifference>> FirstDifference(const v1::StepResponse& recorded,
                                                                const v1::StepResponse& got);

// Results of rows that FirstDifference looks at, refusals of single rows among them.
uint64_t NumComparedRows(const v1::StepResponse& recorded);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_ANSWER_DIFFERENCE_H_
