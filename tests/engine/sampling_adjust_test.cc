// SPDX-License-Identifier: Apache-2.0
// Rows in the engine whose logits are adjusted (penalties with their history, masks, biases),
// against what the model's own logits, which the engine returns, say in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/number.h"
#include "tests/testing/sample_oracle.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::OracleAdjust;
using ::reprise::testing::OracleLogprob;
using ::reprise::testing::OracleOrder;
using ::reprise::testing::Random;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::SampleRow;
using ::reprise::testing::TestEngine;
using ::testing::SizeIs;

class SamplingAdjustTest : public SampledRowsTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(SamplingAdjustTest);

// A row whose every token is checked: its logits come back, the reference adjusts them.
void ExpectGreedyOf(const SampleRow& row, uint32_t token) {
  std::vector<double> slack;
  const std::vector<double> adjusted = OracleAdjust(row, &slack);
  const std::vector<uint32_t> order = OracleOrder(adjusted);
  ASSERT_FALSE(order.empty());
  EXPECT_GE(adjusted.at(token) + slack[token], adjusted[order[0]] - slack[order[0]]);
}

TEST_P(SamplingAdjustTest, PenaltiesCountPromptAndSampledTokens) {
  const TestEngine tiny = MakeReportingEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(3, 12, 40);
  const SamplingParams sampling{.repetition_penalty = 1.5f,
                                .presence_penalty = 0.5f,
                                .frequency_penalty = 0.25f,
                                .return_logits = true};
  SampleRow row;
  row.repetition = 1.5;
  row.presence = 0.5;
  row.frequency = 0.25;
  row.prompt = {prompt.begin(), prompt.end()};
  // In chunks, the first of which does not sample.
  driver.Step(
      {.add = {{.row = 1, .blocks = driver.AllocateFor(40), .sampling = sampling}},
       .chunks = {{.row = 1, .tokens = {prompt.begin(), prompt.begin() + 5}, .sample = false}}});
  StepResult result =
      driver.Step({.chunks = {{.row = 1, .tokens = {prompt.begin() + 5, prompt.end()}}}});
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    row.logits = LogitsOf(result);
    ExpectGreedyOf(row, Only(result).token);
    EXPECT_NEAR(Only(result).logprob, OracleLogprob(row.logits, Only(result).token), 1e-4);
    ++row.sampled[Only(result).token];
    result = driver.Step({.continue_rows = {1}});
  }
}

// A row that was dropped goes on where it was, whether its tokens are run again or their KV is
// still there.
TEST_P(SamplingAdjustTest, ARecomputedRowKeepsItsHistory) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(6, 7);
  SamplingParams sampling{.temperature = 1.0f,
                          .seed = 4,
                          .repetition_penalty = 1.25f,
                          .presence_penalty = 1.0f,
                          .frequency_penalty = 0.5f};
  sampling.max_new_tokens = 14;
  const std::vector<RowOutcome> all = RunToTheEnd(driver, 1, prompt, sampling);
  ASSERT_THAT(all, SizeIs(14));
  std::vector<uint32_t> tokens = prompt;
  for (int i = 0; i < 6; ++i) tokens.push_back(all[static_cast<size_t>(i)].token);
  const auto length = static_cast<uint32_t>(prompt.size());

  // Run again: position tells prompt and output apart.
  StepResult result = driver.Step({.add = {{.row = 2,
                                            .blocks = driver.AllocateFor(30),
                                            .sampling = sampling,
                                            .prompt_length = length}},
                                   .chunks = {{.row = 2, .tokens = tokens}}});
  // A wide prefill may round otherwise than decoding did: compare tokens.
  for (size_t i = 6; i < 10; ++i) {
    EXPECT_EQ(Only(result).token, all[i].token) << i;
    result = driver.Step({.continue_rows = {2}});
  }
  // Taken over: the KV of all but the last token is there, `history` says what it is of.
  const std::vector<uint32_t> blocks = driver.AllocateFor(32);
  const std::vector<uint32_t> known(tokens.begin(), tokens.end() - 1);
  driver.Step({.add = {{.row = 3, .blocks = blocks}},
               .chunks = {{.row = 3, .tokens = known, .sample = false}}});
  result = driver.Step({.drop = {3},
                        .add = {{.row = 4,
                                 .blocks = blocks,
                                 .context_length = static_cast<uint32_t>(known.size()),
                                 .sampling = sampling,
                                 .history = known,
                                 .prompt_length = length}},
                        .chunks = {{.row = 4, .tokens = {tokens.back()}}}});
  for (size_t i = 6; i < 10; ++i) {
    EXPECT_EQ(Only(result).token, all[i].token) << i;
    result = driver.Step({.continue_rows = {4}});
  }
}

TEST_P(SamplingAdjustTest, MasksMayChangeWithEveryStep) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<std::byte> first = MaskOf({5, 96});
  Start(driver, 1, RandomPrompt(1, 4), {.temperature = 1.0f, .seed = 1, .allowed_tokens = first});
  Start(driver, 2, RandomPrompt(2, 4), {.temperature = 1.0f, .seed = 2});
  EXPECT_TRUE(driver.tokens(1)[0].id == 5 || driver.tokens(1)[0].id == 96);
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t only = (i * 31) % kVocab;
    const StepResult& result = driver.Step(
        {.continue_rows = {1, 2}, .masks = {{.row = 1, .allowed_tokens = MaskOf({only})}}});
    EXPECT_EQ(result.rows[0].token, only);
  }
  // Freed of it, the row samples as one that never had a mask and the same context would.
  driver.Step({.masks = {{.row = 1}}});
  std::set<uint32_t> seen;
  for (int i = 0; i < 12; ++i) seen.insert(driver.Step({.continue_rows = {1}}).rows[0].token);
  EXPECT_GT(seen.size(), 2u);
  // A mask given before the row first runs.
  driver.Step({.add = {{.row = 3, .blocks = driver.AllocateFor(10)}}});
  driver.Step({.masks = {{.row = 3, .allowed_tokens = MaskOf({44})}}});
  EXPECT_EQ(Only(driver.Step({.chunks = {{.row = 3, .tokens = {1, 2}}}})).token, 44u);
}

TEST_P(SamplingAdjustTest, BiasesDecideGreedyRows) {
  const TestEngine tiny = MakeReportingEngine();
  EngineDriver driver(*tiny.engine);
  Random random(1);
  for (uint32_t row = 0; row < 5; ++row) {
    std::vector<TokenBias> bias;
    SampleRow want;
    for (const uint32_t t : random.Permutation(kVocab)) {
      if (t % 3 == 0) continue;
      bias.push_back({.token = t, .bias = static_cast<float>(random.Normal() * 3.0)});
      want.bias[t] = bias.back().bias;
    }
    StepResult result =
        Start(driver, row, RandomPrompt(row, 5), {.logit_bias = bias, .return_logits = true});
    for (int i = 0; i < 5; ++i) {
      want.logits = LogitsOf(result);
      ExpectGreedyOf(want, Only(result).token);
      result = driver.Step({.continue_rows = {row}});
    }
  }
}

}  // namespace
}  // namespace reprise::engine
