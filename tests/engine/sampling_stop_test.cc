// SPDX-License-Identifier: Apache-2.0
// Rows that stop by themselves in the engine: at a length budget, a stop token, the end of text;
// and what steps do that were submitted ahead of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::TestEngine;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SamplingStopTest : public SampledRowsTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(SamplingStopTest);

TEST_P(SamplingStopTest, ALengthBudgetStopsTheRow) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  for (const uint32_t budget : {1u, 2u, 7u}) {
    const std::vector<RowOutcome> got =
        RunToTheEnd(driver, budget, RandomPrompt(1, 5), {.max_new_tokens = budget});
    ASSERT_THAT(got, SizeIs(budget));
    EXPECT_EQ(got.back().finish, FinishReason::kLength);
    EXPECT_TRUE(got.back().sampled);
    // It does nothing from here on, says so, and all-that-can leaves it out.
    const StepResult stopped = driver.Step({.continue_rows = {budget}});
    EXPECT_EQ(stopped.report.rows, 0u);
    EXPECT_EQ(stopped.report.tokens, 0u);
    EXPECT_EQ(stopped.report.padding_rows, 1u);
    const RowOutcome after = Only(stopped);
    EXPECT_EQ(after.status, RowStatus::kStopped);
    EXPECT_FALSE(after.sampled);
    EXPECT_EQ(after.context_length, got.back().context_length);
    EXPECT_EQ(after.finish, FinishReason::kNone);
    const RowOutcome chunk = Only(driver.Step({.chunks = {{.row = budget, .tokens = {1, 2, 3}}}}));
    EXPECT_EQ(chunk.status, RowStatus::kStopped);
    EXPECT_EQ(chunk.context_length, got.back().context_length);
    EXPECT_THAT(driver.Step({.continue_all = true}).rows, IsEmpty());
    driver.Step({.drop = {budget}});
  }
}

TEST_P(SamplingStopTest, AStopTokenStopsTheRowAndIsReported) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(2, 6);
  const SamplingParams free{.temperature = 1.0f, .seed = 5, .max_new_tokens = 20};
  const std::vector<RowOutcome> all = RunToTheEnd(driver, 1, prompt, free);
  ASSERT_THAT(all, SizeIs(20));
  // Stop at the first token that differs from all before it, some way in.
  size_t at = 6;
  const auto before = [&](size_t i) {
    return std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](const RowOutcome& row) { return row.token == all[i].token; });
  };
  while (before(at)) ++at;
  ASSERT_LT(at, all.size() - 1);
  const std::vector<uint32_t> stop = {kVocab - 1, all[at].token};
  SamplingParams stopping = free;
  stopping.stop_tokens = stop;
  const std::vector<RowOutcome> got = RunToTheEnd(driver, 2, prompt, stopping);
  if (got.size() != at + 1) {
    // Token kVocab - 1 came first.
    EXPECT_EQ(got.back().token, kVocab - 1);
  }
  EXPECT_EQ(got.back().finish, FinishReason::kStopToken);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].token, all[i].token);
}

TEST_P(SamplingStopTest, EndOfTextStopsARowThatWantsIt) {
  auto options = Options();
  options.model.eos_token_ids.clear();
  for (uint32_t id = 0; id < 48; ++id) options.model.eos_token_ids.push_back(2 * id);
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  for (uint32_t row = 0; row < 4; ++row) {
    const SamplingParams sampling{.temperature = 2.0f, .seed = row, .stop_at_eos = true};
    const std::vector<RowOutcome> got = RunToTheEnd(driver, row, RandomPrompt(row, 4), sampling);
    EXPECT_EQ(got.back().finish, FinishReason::kStopToken);
    EXPECT_TRUE(got.back().token % 2 == 0 && got.back().token < 96);
    for (size_t i = 0; i + 1 < got.size(); ++i)
      EXPECT_TRUE(got[i].token % 2 == 1 || got[i].token == 96) << got[i].token;
  }
  // As a scheduler without it sees them, they are tokens like others.
  EXPECT_THAT(RunToTheEnd(driver, 9, RandomPrompt(1, 4), {.temperature = 2.0f}), SizeIs(30));
}

TEST_P(SamplingStopTest, MinTokensKeepsStopTokensOut) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  std::vector<uint32_t> stop;
  for (uint32_t id = 0; id < 64; ++id) stop.push_back(id);
  for (uint32_t min = 0; min < 6; ++min) {
    SamplingParams sampling{.temperature = 5.0f, .seed = min, .stop_tokens = stop};
    sampling.min_tokens = min;
    const std::vector<RowOutcome> got = RunToTheEnd(driver, min, RandomPrompt(min, 3), sampling);
    ASSERT_GT(got.size(), min);
    for (size_t i = 0; i + 1 < got.size(); ++i) EXPECT_GE(got[i].token, 64u);
    EXPECT_EQ(got.back().finish, FinishReason::kStopToken);
    driver.Step({.drop = {min}});
  }
}

// Steps submitted before the result of the one in which a row stops.
TEST_P(SamplingStopTest, StepsAheadOfAStopDoNothing) {
  auto options = Options();
  options.engine.pipeline_depth = 3;
  const TestEngine tiny = MakeTestEngine(options);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 5);
  SamplingParams sampling{.temperature = 1.0f, .seed = 3};
  std::vector<RowOutcome> alone;
  {
    EngineDriver driver(*tiny.engine);
    sampling.max_new_tokens = 9;
    alone = RunToTheEnd(driver, 1, prompt, sampling);
  }
  size_t at = 3;
  while (std::any_of(alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(at),
                     [&](const RowOutcome& row) { return row.token == alone[at].token; }))
    ++at;
  ASSERT_LT(at, alone.size());
  const std::vector<uint32_t> stop = {alone[at].token};
  sampling.stop_tokens = stop;
  sampling.max_new_tokens = 0;

  EngineDriver driver(*tiny.engine);
  Start(driver, 2, RandomPrompt(5, 7), {.temperature = 1.0f, .seed = 9});
  Start(driver, 1, prompt, sampling);
  std::vector<StepTicket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(driver.Submit({.continue_all = true}));
  uint32_t sampled = 1, stopped = 0, context = 0;
  bool absent = false;
  for (size_t i = 0; i < 12; ++i) {
    const StepResult& result = driver.Wait(tickets[i]);
    const auto row = std::find_if(result.rows.begin(), result.rows.end(),
                                  [](const RowOutcome& r) { return r.row == 1; });
    EXPECT_TRUE(std::any_of(result.rows.begin(), result.rows.end(), [](const RowOutcome& r) {
      return r.row == 2 && r.status == RowStatus::kRan && r.sampled;
    }));
    if (row == result.rows.end()) {
      absent = true;
      EXPECT_EQ(stopped, 2u) << "the steps that were in flight say that it had stopped";
    } else if (row->status == RowStatus::kStopped) {
      ++stopped;
      EXPECT_FALSE(row->sampled);
      EXPECT_EQ(row->context_length, context);
    } else {
      EXPECT_EQ(row->token, alone[sampled].token);
      EXPECT_EQ(row->logprob, alone[sampled].logprob);
      EXPECT_EQ(row->finish, sampled == at ? FinishReason::kStopToken : FinishReason::kNone);
      context = row->context_length;
      ++sampled;
    }
    tickets.push_back(driver.Submit({.continue_all = true}));
  }
  EXPECT_EQ(sampled, at + 1);
  EXPECT_TRUE(absent);
  for (size_t i = 12; i < tickets.size(); ++i) driver.Wait(tickets[i]);
}

TEST_P(SamplingStopTest, ARowInAStoppedRowsSlotStartsAfresh) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(8, 5);
  std::vector<RowOutcome> first;
  for (uint32_t row = 1; row < 30; ++row) {
    // A stopped, penalised, masked row goes; a plain one comes into its slot in the same step.
    std::vector<std::byte> odd(13, std::byte{0xaa});
    const SamplingParams heavy{.temperature = 1.0f,
                               .top_k = 3,
                               .presence_penalty = 2.0f,
                               .allowed_tokens = odd,
                               .max_new_tokens = 2};
    const std::vector<RowOutcome> got = RunToTheEnd(driver, 2 * row, prompt, heavy);
    ASSERT_THAT(got, SizeIs(2));
    const RowOutcome plain =
        Only(driver.Step({.drop = {2 * row},
                          .add = {{.row = 2 * row + 1, .blocks = driver.AllocateFor(8)}},
                          .chunks = {{.row = 2 * row + 1, .tokens = prompt}}}));
    if (first.empty()) first = {plain};
    EXPECT_EQ(plain.token, first[0].token);
    EXPECT_EQ(plain.logprob, first[0].logprob);
    EXPECT_EQ(Only(driver.Step({.continue_rows = {2 * row + 1}})).status, RowStatus::kRan);
    driver.Step({.drop = {2 * row + 1}});
    if (driver.engine().pool().free_blocks < 40) break;
  }
}

}  // namespace
}  // namespace reprise::engine
