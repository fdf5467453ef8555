// SPDX-License-Identifier: Apache-2.0
// What an engine makes of a prompt, as numbers to compare: how likely it finds each token, those
// that it has just read and those that it decodes.
#ifndef REPRISE_TESTS_TESTING_PROMPT_LIKELIHOOD_H_
#define REPRISE_TESTS_TESTING_PROMPT_LIKELIHOOD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"

namespace reprise::testing {

// Log-probabilities of a prompt's tokens, taken in two chunks and then by decode steps of one.
inline std::vector<float> LikelihoodOf(engine::DecodeEngine& engine,
                                       const std::vector<uint32_t>& prompt) {
  EngineDriver driver(engine);
  const auto size = static_cast<uint32_t>(prompt.size());
  const size_t cuts[] = {0, prompt.size() / 3, prompt.size() - 8};
  std::vector<float> likelihood;
  for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
    StepDraft draft;
    if (i == 0) draft.add = {{.row = 1, .blocks = driver.AllocateFor(size)}};
    draft.chunks = {{.row = 1,
                     .tokens = {prompt.begin() + static_cast<ptrdiff_t>(cuts[i]),
                                prompt.begin() + static_cast<ptrdiff_t>(cuts[i + 1])},
                     .sample = false,
                     .prompt_logprobs = true,
                     .next_token = prompt[cuts[i + 1]]}};
    for (const auto& token : driver.Step(draft).prompt_logprobs)
      likelihood.push_back(token.logprob);
  }
  for (size_t at = prompt.size() - 8; at + 1 < prompt.size(); ++at) {
    const engine::StepResult& step = driver.Step({.chunks = {{.row = 1,
                                                              .tokens = {prompt[at]},
                                                              .sample = false,
                                                              .prompt_logprobs = true,
                                                              .next_token = prompt[at + 1]}}});
    for (const auto& token : step.prompt_logprobs) likelihood.push_back(token.logprob);
  }
  EXPECT_EQ(likelihood.size(), prompt.size() - 1);
  return likelihood;
}

// The root of the mean of squares of what differs.
inline double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    squares += difference * difference;
  }
  return std::sqrt(squares / static_cast<double>(a.size()));
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_PROMPT_LIKELIHOOD_H_
