// SPDX-License-Identifier: Apache-2.0
// What rows in the engine report (ranks, likeliest tokens, logits, likelihood of a prompt), against
// what the model's own logits, which the engine returns, say in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/sample_oracle.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::OracleLogprob;
using ::reprise::testing::OracleOrder;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::testing::SizeIs;

class SamplingReportTest : public SampledRowsTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(SamplingReportTest);

TEST_P(SamplingReportTest, ReportsAgreeWithTheLogits) {
  const TestEngine tiny = MakeReportingEngine();
  EngineDriver driver(*tiny.engine);
  Start(driver, 9, RandomPrompt(9, 4), {});  // plain rows before and between them
  Start(driver, 1, RandomPrompt(1, 4),
        {.temperature = 2.0f, .seed = 1, .num_logprobs = 5, .return_logits = true});
  Start(driver, 8, RandomPrompt(8, 4), {.temperature = 1.0f, .num_logprobs = 2});
  Start(driver, 2, RandomPrompt(2, 4),
        {.temperature = 2.0f, .seed = 2, .num_logprobs = 32, .return_logits = true});
  for (int i = 0; i < 10; ++i) {
    const StepResult& result = driver.Step({.continue_all = true});
    ASSERT_THAT(result.rows, SizeIs(4));
    ASSERT_THAT(result.logits, SizeIs(2 * kVocab));
    EXPECT_EQ(result.rows[0].rank, 0u);
    EXPECT_EQ(result.rows[0].top.count, 0u);
    EXPECT_EQ(result.rows[2].top.count, 2u);
    for (const size_t r : {1u, 3u}) {
      const RowOutcome& row = result.rows[r];
      const std::vector<double> logits = LogitsOf(result, r / 2);
      const std::vector<uint32_t> order = OracleOrder(logits);
      EXPECT_TRUE(row.has_logits);
      EXPECT_EQ(order.at(row.rank - 1), row.token);
      EXPECT_NEAR(row.logprob, OracleLogprob(logits, row.token), 1e-4);
      ASSERT_EQ(row.top.count, r == 1 ? 5u : 32u);
      for (uint32_t j = 0; j < row.top.count; ++j) {
        const TokenLogprob& top = result.top_logprobs[row.top.begin + j];
        EXPECT_EQ(top.token, order[j]);
        EXPECT_NEAR(top.logprob, OracleLogprob(logits, order[j]), 1e-4);
      }
    }
  }
}

struct PromptReport {
  uint32_t position;
  uint32_t logprob_bits;
  uint32_t rank;
  std::vector<uint32_t> top;
  bool operator==(const PromptReport&) const = default;
};

std::vector<PromptReport> PromptReports(const StepResult& result, uint32_t row) {
  std::vector<PromptReport> reports;
  for (const PromptLogprob& token : result.prompt_logprobs) {
    if (token.row != row) continue;
    PromptReport& report = reports.emplace_back();
    report = {token.position, std::bit_cast<uint32_t>(token.logprob), token.rank, {}};
    for (uint32_t j = 0; j < token.top.count; ++j)
      report.top.push_back(result.top_logprobs[token.top.begin + j].token);
  }
  return reports;
}

TEST_P(SamplingReportTest, PromptLogprobsAreThoseOfTheLogits) {
  const TestEngine tiny = MakeReportingEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(7, 20);
  const StepResult whole = driver.Step(
      {.add = {{.row = 1, .blocks = driver.AllocateFor(20), .sampling = {.num_logprobs = 3}}},
       .chunks = {{.row = 1, .tokens = prompt, .prompt_logprobs = true}}});
  const std::vector<PromptReport> reports = PromptReports(whole, 1);
  ASSERT_THAT(reports, SizeIs(19));
  // A row that runs the same tokens one by one and returns its logits at each.
  driver.Step(
      {.add = {{.row = 2, .blocks = driver.AllocateFor(20), .sampling = {.return_logits = true}}}});
  for (uint32_t i = 0; i + 1 < 20; ++i) {
    const StepResult& step = driver.Step({.chunks = {{.row = 2, .tokens = {prompt[i]}}}});
    const std::vector<double> logits = LogitsOf(step);
    EXPECT_EQ(reports[i].position, i + 1);
    // One by one and all at once differ by the rounding of attention.
    EXPECT_NEAR(std::bit_cast<float>(reports[i].logprob_bits), OracleLogprob(logits, prompt[i + 1]),
                GetParam().dtype == runtime::DType::kF32 ? 1e-3 : 0.1);
    EXPECT_THAT(reports[i].top, SizeIs(3));
    EXPECT_GE(reports[i].rank, 1u);
    EXPECT_LE(reports[i].rank, kVocab);
  }
}

// Row 1 runs `prompt` cut into `chunks`. company: beside a row that decodes.
std::vector<PromptReport> RunInChunks(DecodeEngine& engine, const std::vector<uint32_t>& prompt,
                                      const std::vector<uint32_t>& chunks, bool company = false) {
  EngineDriver driver(engine);
  std::vector<PromptReport> reports;
  StepDraft step{.add = {{.row = 1,
                          .blocks = driver.AllocateFor(static_cast<uint32_t>(prompt.size()) + 3),
                          .sampling = {.num_logprobs = 4}}}};
  if (company) Start(driver, 5, RandomPrompt(3, 4), {.temperature = 1.0f, .num_logprobs = 2});
  uint32_t at = 0;
  for (const uint32_t count : chunks) {
    const auto begin = prompt.begin() + at;
    at += count;
    StepDraft::Chunk chunk{.row = 1,
                           .tokens = {begin, begin + count},
                           .sample = at == prompt.size(),
                           .prompt_logprobs = true};
    if (at < prompt.size()) chunk.next_token = prompt[at];
    step.chunks = {chunk};
    step.continue_all = company;
    const std::vector<PromptReport> more = PromptReports(driver.Step(step), 1);
    reports.insert(reports.end(), more.begin(), more.end());
    step = {};
  }
  return reports;
}

TEST_P(SamplingReportTest, ChunksOfAPromptReportWhatTheWholeDoes) {
  const TestEngine tiny = MakeEngine();
  const std::vector<uint32_t> prompt = RandomPrompt(11, 37);
  const std::vector<PromptReport> whole = RunInChunks(*tiny.engine, prompt, {37});
  ASSERT_THAT(whole, SizeIs(36));
  for (uint32_t i = 0; i < 36; ++i) EXPECT_EQ(whole[i].position, i + 1);
  EXPECT_EQ(RunInChunks(*tiny.engine, prompt, {9, 3, 20, 5}), whole);
  EXPECT_EQ(RunInChunks(*tiny.engine, prompt, {9, 3, 20, 5}, true), whole)
      << "beside a row that decodes";
  // A chunk of one token goes the way of decoding, whose attention rounds otherwise.
  const std::vector<PromptReport> single = RunInChunks(*tiny.engine, prompt, {1, 9, 1, 26});
  ASSERT_THAT(single, SizeIs(36));
  for (uint32_t i = 0; i < 36; ++i) {
    EXPECT_EQ(single[i].position, whole[i].position);
    EXPECT_NEAR(std::bit_cast<float>(single[i].logprob_bits),
                std::bit_cast<float>(whole[i].logprob_bits),
                GetParam().dtype == runtime::DType::kF32 ? 1e-3 : 0.1);
  }
}

// A chunk's window begins within a tile of keys, wherever the chunk does.
TEST_P(SamplingReportTest, ChunksOfAWindowedPromptReportWhatTheWholeDoes) {
  TestEngineOptions options = Options();
  options.model.architecture = "mistral";
  options.model.sliding_window = 13;
  const TestEngine tiny = MakeTestEngine(options);
  const std::vector<uint32_t> prompt = RandomPrompt(12, 50);
  const std::vector<PromptReport> whole = RunInChunks(*tiny.engine, prompt, {50});
  ASSERT_THAT(whole, SizeIs(49));
  EXPECT_EQ(RunInChunks(*tiny.engine, prompt, {25, 25}), whole);
  EXPECT_EQ(RunInChunks(*tiny.engine, prompt, {17, 2, 31}, true), whole);
}

}  // namespace
}  // namespace reprise::engine
