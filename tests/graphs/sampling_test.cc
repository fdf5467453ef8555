// SPDX-License-Identifier: Apache-2.0
// Rows with sampling features in the engine: they stop by themselves, keep their history, are
// masked and biased, and report; each against what the model's own logits, which the engine
// returns, say in double.
#include "graphs/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "graphs/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/sample_oracle.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::EvenChunks;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::OracleAdjust;
using ::reprise::testing::OracleLogprob;
using ::reprise::testing::OracleOrder;
using ::reprise::testing::Random;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::SampleRow;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kVocab = 97;

class SamplingTest : public testing::EngineTest {
 protected:
  TestEngine MakeReportingEngine() const {
    auto options = Options();
    options.engine.max_logit_rows = 8;
    return MakeTestEngine(options);
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(SamplingTest);

const RowOutcome& Only(const StepResult& result) {
  EXPECT_THAT(result.rows, SizeIs(1));
  return result.rows.at(0);
}

std::vector<double> LogitsOf(const StepResult& result, size_t index = 0) {
  const auto begin = result.logits.begin() + static_cast<std::ptrdiff_t>(index * kVocab);
  return {begin, begin + kVocab};
}

// Adds the row and runs its prompt.
StepResult Start(EngineDriver& driver, uint32_t row, const std::vector<uint32_t>& prompt,
                 const SamplingParams& sampling, uint32_t room = 40) {
  return driver.Step(
      {.add = {{.row = row,
                .blocks = driver.AllocateFor(static_cast<uint32_t>(prompt.size()) + room),
                .sampling = sampling}},
       .chunks = {{.row = row, .tokens = prompt}}});
}

// What the row samples until it stops.
std::vector<RowOutcome> RunToTheEnd(EngineDriver& driver, uint32_t row,
                                    const std::vector<uint32_t>& prompt,
                                    const SamplingParams& sampling, uint32_t most = 30) {
  std::vector<RowOutcome> outcomes = {Only(Start(driver, row, prompt, sampling))};
  while (outcomes.back().finish == FinishReason::kNone && outcomes.size() < most)
    outcomes.push_back(Only(driver.Step({.continue_rows = {row}})));
  return outcomes;
}

// ---- rows that stop ----

TEST_P(SamplingTest, ALengthBudgetStopsTheRow) {
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

TEST_P(SamplingTest, AStopTokenStopsTheRowAndIsReported) {
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

TEST_P(SamplingTest, EndOfTextStopsARowThatWantsIt) {
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

TEST_P(SamplingTest, MinTokensKeepsStopTokensOut) {
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
TEST_P(SamplingTest, StepsAheadOfAStopDoNothing) {
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

TEST_P(SamplingTest, ARowInAStoppedRowsSlotStartsAfresh) {
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

// ---- adjusted logits ----

// A row whose every token is checked: its logits come back, the reference adjusts them.
void ExpectGreedyOf(const SampleRow& row, uint32_t token) {
  std::vector<double> slack;
  const std::vector<double> adjusted = OracleAdjust(row, &slack);
  const std::vector<uint32_t> order = OracleOrder(adjusted);
  ASSERT_FALSE(order.empty());
  EXPECT_GE(adjusted.at(token) + slack[token], adjusted[order[0]] - slack[order[0]]);
}

TEST_P(SamplingTest, PenaltiesCountPromptAndSampledTokens) {
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
TEST_P(SamplingTest, ARecomputedRowKeepsItsHistory) {
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

std::vector<std::byte> MaskOf(const std::vector<uint32_t>& tokens) {
  std::vector<std::byte> mask((kVocab + 7) / 8, std::byte{0});
  for (const uint32_t t : tokens) mask[t / 8] |= std::byte{1} << t % 8;
  return mask;
}

TEST_P(SamplingTest, MasksMayChangeWithEveryStep) {
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

TEST_P(SamplingTest, BiasesDecideGreedyRows) {
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

// ---- reports ----

TEST_P(SamplingTest, ReportsAgreeWithTheLogits) {
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

TEST_P(SamplingTest, PromptLogprobsAreThoseOfTheLogits) {
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

TEST_P(SamplingTest, ChunksOfAPromptReportWhatTheWholeDoes) {
  const TestEngine tiny = MakeEngine();
  const std::vector<uint32_t> prompt = RandomPrompt(11, 37);
  const auto run = [&](EngineDriver& driver, const std::vector<uint32_t>& chunks, bool company) {
    std::vector<PromptReport> reports;
    StepDraft step{
        .add = {{.row = 1, .blocks = driver.AllocateFor(40), .sampling = {.num_logprobs = 4}}}};
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
  };
  const auto alone = [&](const std::vector<uint32_t>& chunks) {
    EngineDriver driver(*tiny.engine);
    return run(driver, chunks, false);
  };
  const std::vector<PromptReport> whole = alone({37});
  ASSERT_THAT(whole, SizeIs(36));
  for (uint32_t i = 0; i < 36; ++i) EXPECT_EQ(whole[i].position, i + 1);
  EXPECT_EQ(alone({9, 3, 20, 5}), whole);
  {
    EngineDriver driver(*tiny.engine);
    EXPECT_EQ(run(driver, {9, 3, 20, 5}, true), whole) << "beside a row that decodes";
  }
  // A chunk of one token goes the way of decoding, whose attention rounds otherwise.
  const std::vector<PromptReport> single = alone({1, 9, 1, 26});
  ASSERT_THAT(single, SizeIs(36));
  for (uint32_t i = 0; i < 36; ++i) {
    EXPECT_EQ(single[i].position, whole[i].position);
    EXPECT_NEAR(std::bit_cast<float>(single[i].logprob_bits),
                std::bit_cast<float>(whole[i].logprob_bits),
                GetParam().dtype == runtime::DType::kF32 ? 1e-3 : 0.1);
  }
}

// ---- what rows must not depend on ----

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

TEST_P(SamplingTest, ARowsBitsAreTheSameAloneAmongOthersEagerAndReplayed) {
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

// ---- refusals ----

TEST_P(SamplingTest, RefusesWhatTheEngineWasStartedWithout) {
  auto options = Options();
  options.engine.adjust_logits = false;
  options.engine.max_logit_rows = 0;
  options.engine.max_prompt_logprobs = 0;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(20);
  const auto add = [&](const SamplingParams& sampling) {
    return driver
        .TryStep({.add = {{.row = 1, .blocks = blocks, .sampling = sampling}},
                  .chunks = {{.row = 1, .tokens = {1, 2, 3}}}})
        .status();
  };
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(add({.presence_penalty = 1.0f}), StatusIs(kPrecondition, "without adjust_logits"));
  const std::vector<TokenBias> bias = {{.token = 1, .bias = 1.0f}};
  EXPECT_THAT(add({.logit_bias = bias}), StatusIs(kPrecondition, "without adjust_logits"));
  const std::vector<std::byte> mask = MaskOf({1});
  EXPECT_THAT(add({.allowed_tokens = mask}), StatusIs(kPrecondition, "without adjust_logits"));
  EXPECT_THAT(add({.return_logits = true}),
              StatusIs(absl::StatusCode::kOutOfRange, "max_logit_rows"));
  EXPECT_THAT(driver
                  .TryStep({.add = {{.row = 1, .blocks = blocks}},
                            .chunks = {{.row = 1, .tokens = {1, 2}, .prompt_logprobs = true}}})
                  .status(),
              StatusIs(absl::StatusCode::kOutOfRange, "max_prompt_logprobs"));
  EXPECT_OK(add({.temperature = 1.0f, .top_k = 4, .num_logprobs = 2}));
  EXPECT_THAT(driver.TryStep({.masks = {{.row = 1, .allowed_tokens = mask}}}).status(),
              StatusIs(kPrecondition, "without adjust_logits"));
}

TEST_P(SamplingTest, RefusesAHistoryThatIsNotOfTheContext) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(20);
  const SamplingParams penalised{.presence_penalty = 1.0f};
  const auto add = [&](const std::vector<uint32_t>& history, const SamplingParams& sampling) {
    return driver
        .TryStep({.add = {{.row = 1,
                           .blocks = blocks,
                           .context_length = 3,
                           .sampling = sampling,
                           .history = history}}})
        .status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(add({}, penalised), StatusIs(kInvalid, "history has 0 token ids; allowed: 3"));
  EXPECT_THAT(add({1, 2, 3, 4}, penalised), StatusIs(kInvalid, "history has 4"));
  EXPECT_THAT(add({1, 2, kVocab}, penalised), StatusIs(kInvalid, "token id 97"));
  EXPECT_OK(add({}, {}));
}

TEST_P(SamplingTest, RefusesMoreLogitRowsThanItHasRoomFor) {
  auto options = Options();
  options.engine.max_logit_rows = 1;
  options.engine.max_prompt_logprobs = 4;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const SamplingParams returns{.return_logits = true};
  Start(driver, 1, {1, 2}, returns);
  Start(driver, 2, {1, 2}, returns);
  EXPECT_THAT(driver.TryStep({.continue_all = true}).status(),
              StatusIs(absl::StatusCode::kOutOfRange, "2 rows of the step return their logits"));
  EXPECT_THAT(driver.Step({.continue_rows = {2}}).logits, SizeIs(kVocab));
  const StepDraft::Add add{.row = 3, .blocks = driver.AllocateFor(20)};
  EXPECT_THAT(
      driver
          .TryStep({.add = {add},
                    .chunks = {{.row = 3, .tokens = {1, 2, 3, 4, 5, 6}, .prompt_logprobs = true}}})
          .status(),
      StatusIs(absl::StatusCode::kOutOfRange, "asked for 5 tokens"));
  EXPECT_THAT(
      driver
          .Step({.add = {add},
                 .chunks = {{.row = 3, .tokens = {1, 2, 3, 4, 5}, .prompt_logprobs = true}}})
          .prompt_logprobs,
      SizeIs(4));
}

}  // namespace
}  // namespace reprise::graphs
