// SPDX-License-Identifier: Apache-2.0
// Rows of many sampling features in one batch: each has the bits that it has alone.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::TestEngine;

class SamplingInvarianceTest : public SampledRowsTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(SamplingInvarianceTest);

std::vector<SamplingParams> ManyKinds(const std::vector<uint32_t>& stop,
                                      const std::vector<TokenBias>& bias,
                                      const std::vector<std::byte>& mask) {
  return {
      {.temperature = 1.0f, .seed = 1, .top_k = 7},
      {.temperature = 1.2f, .seed = 2, .top_p = 0.7f, .presence_penalty = 0.5f},
      {.temperature = 0.9f, .seed = 3, .min_p = 0.05f, .logit_bias = bias},
      {.repetition_penalty = 1.3f, .allowed_tokens = mask, .num_logprobs = 4},
      {.temperature = 1.0f, .seed = 5, .stop_tokens = stop, .max_new_tokens = 9, .min_tokens = 3},
      {.temperature = 1.0f, .seed = 6},
      {.temperature = 2.0f,
       .seed = 7,
       .top_k = 20,
       .top_p = 0.9f,
       .min_p = 0.01f,
       .num_logprobs = 1},
  };
}

TEST_P(SamplingInvarianceTest, ARowsBitsAreTheSameAloneAmongOthersEagerAndReplayed) {
  const TestEngine tiny = MakeEngine();
  const std::vector<uint32_t> stop = {3, 8, 60, 61, 62};
  std::vector<TokenBias> bias;
  for (uint32_t t = 0; t < 30; ++t)
    bias.push_back({.token = 3 * t, .bias = 0.25f * static_cast<float>(t) - 3.0f});
  std::vector<uint32_t> even;
  for (uint32_t t = 0; t < kVocab; t += 2) even.push_back(t);
  const std::vector<std::byte> mask = MaskOf(even);
  const std::vector<SamplingParams> kinds = ManyKinds(stop, bias, mask);
  constexpr uint32_t kSteps = 12;
  const auto prompt = [](uint32_t row) { return RandomPrompt(20 + row, 3 + 2 * row); };

  std::vector<std::vector<testing::Token>> alone;
  for (uint32_t row = 0; row < kinds.size(); ++row) {
    EngineDriver driver(*tiny.engine);
    Start(driver, row, prompt(row), kinds[row]);
    for (uint32_t i = 0; i < kSteps; ++i) driver.Step({.continue_rows = {row}});
    alone.push_back(driver.tokens(row));
  }
  EXPECT_LE(alone[4].size(), 9u);
  for (const ExecutionMode mode : {ExecutionMode::kReplay, ExecutionMode::kEager}) {
    EngineDriver driver(*tiny.engine);
    for (uint32_t row = 0; row < kinds.size(); ++row) {
      driver.Step({.add = {{.row = row, .blocks = driver.AllocateFor(40), .sampling = kinds[row]}},
                   .chunks = {{.row = row, .tokens = prompt(row)}},
                   .mode = mode});
    }
    // Pipelined.
    StepTicket before = driver.Submit({.continue_all = true, .mode = mode});
    for (uint32_t i = 1; i < kSteps; ++i) {
      const StepTicket ticket = driver.Submit({.continue_all = true, .mode = mode});
      driver.Wait(before);
      before = ticket;
    }
    driver.Wait(before);
    for (uint32_t row = 0; row < kinds.size(); ++row)
      EXPECT_EQ(driver.tokens(row), alone[row]) << "row " << row;
  }
}

}  // namespace
}  // namespace reprise::engine
