// SPDX-License-Identifier: Apache-2.0
// Rows with draft tokens: they sample what they would have sampled without, whatever the drafts
// are, with every sampling feature, beside other rows, in any k; only sooner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/joint.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::Random;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kMaxDraftTokens = 24;

class DraftsTest : public SampledRowsTest {
 protected:
  testing::TestEngineOptions WithDrafts() const {
    auto options = Options();
    options.engine.max_draft_tokens = kMaxDraftTokens;
    options.engine.max_steps_per_request = 4;
    return options;
  }
  // On matrix units tokens of a chunk have other rounding than single ones, so that rows may sample
  // others.
  bool RoundsAlike() const { return GetParam().device != runtime::DeviceKind::kCuda; }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(DraftsTest);

// ---- what a row samples ----

struct Seen {
  uint32_t token = 0;
  uint32_t logprob_bits = 0;
  uint32_t rank = 0;
  std::vector<std::pair<uint32_t, uint32_t>> top = {};  // id, bits of the log-probability
  FinishReason finish = FinishReason::kNone;
  bool operator==(const Seen&) const = default;
};

void PrintTo(const Seen& seen, std::ostream* os) {
  *os << seen.token << " (0x" << std::hex << seen.logprob_bits << std::dec << ", rank " << seen.rank
      << ", " << seen.top.size() << " likeliest, finish " << static_cast<int>(seen.finish) << ")";
}

template <typename Sampled>
Seen See(const StepResult& result, const Sampled& from) {
  Seen seen{.token = from.token,
            .logprob_bits = std::bit_cast<uint32_t>(from.logprob),
            .rank = from.rank};
  for (uint32_t i = from.top.begin; i < from.top.begin + from.top.count; ++i)
    seen.top.emplace_back(result.top_logprobs[i].token,
                          std::bit_cast<uint32_t>(result.top_logprobs[i].logprob));
  return seen;
}

// Appends the row's tokens of a step, those of its drafts first.
void Collect(const StepResult& result, const RowOutcome& row, std::vector<Seen>* seen) {
  for (uint32_t i = 0; i < row.accepted.count; ++i)
    seen->push_back(See(result, result.accepted[row.accepted.begin + i]));
  seen->push_back(See(result, row));
  seen->back().finish = row.finish;
}

struct Life {
  uint32_t row = 0;
  std::vector<uint32_t> prompt = {};
  SamplingParams sampling = {};
};

constexpr uint32_t kMostTokens = 22;  // of a life

std::vector<Seen> WithoutDrafts(DecodeEngine& engine, const Life& life) {
  EngineDriver driver(engine);
  std::vector<Seen> seen;
  StepResult result = Start(driver, life.row, life.prompt, life.sampling);
  Collect(result, Only(result), &seen);
  while (seen.back().finish == FinishReason::kNone && seen.size() < kMostTokens) {
    result = driver.Step({.continue_all = true});
    Collect(result, Only(result), &seen);
  }
  return seen;
}

std::vector<uint32_t> IdsOf(const std::vector<Seen>& seen) {
  std::vector<uint32_t> ids;
  for (const Seen& one : seen) ids.push_back(one.token);
  return ids;
}

// ---- rows of every kind ----

// One feature after the other, then all together; greedy and random in turn.
std::vector<Life> LivesOfEveryKind(const SamplingLists& lists) {
  std::vector<SamplingParams> kinds(14);
  for (size_t i = 0; i < kinds.size(); ++i) {
    kinds[i].temperature = i % 2 == 0 ? 0.0f : 0.5f * static_cast<float>(i % 3 + 1);
    kinds[i].seed = 100 + i;
  }
  kinds[2].repetition_penalty = 1.4f;
  kinds[3].presence_penalty = kinds[3].frequency_penalty = 0.7f;
  kinds[4].frequency_penalty = 1.5f;
  kinds[4].logit_bias = lists.bias;
  kinds[5].logit_bias = lists.bias;
  kinds[6].allowed_tokens = lists.mask;
  kinds[6].presence_penalty = 2.0f;
  kinds[7].top_k = 5;
  kinds[8].num_logprobs = 4;
  kinds[9].top_p = 0.8f;
  kinds[9].num_logprobs = 2;
  kinds[10].max_new_tokens = 9;
  for (const size_t i : {11, 12}) {
    kinds[i].stop_tokens = lists.stop;
    kinds[i].stop_at_eos = true;
    kinds[i].min_tokens = 6;
  }
  kinds[13] = {.temperature = 0.8f,
               .seed = 7,
               .top_k = 30,
               .top_p = 0.9f,
               .min_p = 0.01f,
               .repetition_penalty = 1.2f,
               .presence_penalty = 0.4f,
               .frequency_penalty = 0.3f,
               .logit_bias = lists.bias,
               .allowed_tokens = lists.mask,
               .stop_tokens = lists.stop,
               .max_new_tokens = 20,
               .min_tokens = 8,
               .num_logprobs = 3};
  std::vector<Life> lives;
  for (size_t i = 0; i < kinds.size(); ++i)
    lives.push_back({.row = static_cast<uint32_t>(10 + i),
                     .prompt = RandomPrompt(i, 3 + static_cast<uint32_t>(i) % 5),
                     .sampling = kinds[i]});
  return lives;
}

// Up to `most` of what comes behind the first `done` tokens, as somebody guesses who is right four
// times of five.
std::vector<uint32_t> Guess(const std::vector<uint32_t>& truth, size_t done, uint32_t most,
                            Random& random) {
  std::vector<uint32_t> guess;
  for (uint32_t i = 0; i < most; ++i) {
    const bool right = done + i < truth.size() && random.Below(5) != 0;
    guess.push_back(right ? truth[done + i] : random.Below(kVocab));
  }
  return guess;
}

struct Counts {
  size_t steps = 0, drafts = 0, accepted = 0;
};

// All lives in one session, up to four at a time, each with as many drafts as chance has it, or
// none; now and then beside the prompt of one that asks how likely its tokens were.
std::map<uint32_t, std::vector<Seen>> Together(DecodeEngine& engine, const std::vector<Life>& lives,
                                               const std::vector<std::vector<uint32_t>>& truths,
                                               ExecutionMode mode, Counts* counts) {
  EngineDriver driver(engine);
  Random random(5);
  std::map<uint32_t, std::vector<Seen>> seen;
  std::map<uint32_t, std::vector<uint32_t>> blocks;
  std::vector<size_t> running;
  size_t next = 0;
  while (next < lives.size() || !running.empty()) {
    StepDraft draft{.mode = mode};
    if (next < lives.size() && running.size() < 4) {
      const Life& life = lives[next];
      blocks[life.row] = driver.AllocateFor(40);
      draft.add.push_back({.row = life.row, .blocks = blocks[life.row], .sampling = life.sampling});
      draft.chunks.push_back(
          {.row = life.row, .tokens = life.prompt, .prompt_logprobs = random.Below(2) == 0});
    }
    uint32_t left = kMaxDraftTokens;
    for (const size_t i : running) {
      draft.continue_rows.push_back(lives[i].row);
      const uint32_t most = std::min(left, random.Below(8));
      if (most == 0) continue;
      left -= most;
      counts->drafts += most;
      draft.drafts.push_back({.row = lives[i].row,
                              .tokens = Guess(truths[i], seen[lives[i].row].size(), most, random)});
    }
    const StepResult result = driver.Step(draft);
    if (!draft.add.empty()) running.push_back(next++);
    for (const RowOutcome& row : result.rows) {
      counts->accepted += row.accepted.count;
      Collect(result, row, &seen[row.row]);
    }
    ++counts->steps;
    for (const size_t i : running) {
      std::vector<Seen>& tokens = seen[lives[i].row];
      if (tokens.back().finish == FinishReason::kNone && tokens.size() < kMostTokens) continue;
      driver.Step({.drop = {lives[i].row}});
      driver.Free(blocks[lives[i].row]);
    }
    std::erase_if(running, [&](size_t i) {
      const std::vector<Seen>& tokens = seen[lives[i].row];
      return tokens.back().finish != FinishReason::kNone || tokens.size() >= kMostTokens;
    });
  }
  for (auto& [row, tokens] : seen)
    if (tokens.size() > kMostTokens) tokens.resize(kMostTokens);
  return seen;
}

TEST_P(DraftsTest, ARowSamplesWhatItWouldWithoutDrafts) {
  if (!RoundsAlike()) GTEST_SKIP() << "a chunk's rounding is not that of single tokens here";
  const SamplingLists lists = MakeSamplingLists();
  const std::vector<Life> lives = LivesOfEveryKind(lists);
  auto options = WithDrafts();
  const TestEngine plain = MakeTestEngine(options);
  options.diagnostics.poison = true;
  const TestEngine poisoned = MakeTestEngine(options);
  std::vector<std::vector<uint32_t>> truths;
  std::map<uint32_t, std::vector<Seen>> expected;
  for (const Life& life : lives) {
    expected[life.row] = WithoutDrafts(*plain.engine, life);
    truths.push_back(IdsOf(expected[life.row]));
  }
  Counts counts;
  EXPECT_EQ(Together(*plain.engine, lives, truths, ExecutionMode::kReplay, &counts), expected);
  EXPECT_GT(counts.accepted, 60u);
  EXPECT_GT(counts.drafts, counts.accepted + 60);
  Counts again;
  EXPECT_EQ(Together(*poisoned.engine, lives, truths, ExecutionMode::kReplay, &again), expected);
  EXPECT_EQ(Together(*plain.engine, lives, truths, ExecutionMode::kEager, &again), expected);
}

// On every device: the same request has the same bits, replayed or eager, alone or beside others.
TEST_P(DraftsTest, BitsDependOnTheRowAndItsDraftsAlone) {
  const SamplingLists lists = MakeSamplingLists();
  const std::vector<Life> lives = LivesOfEveryKind(lists);
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  const auto run = [&](const std::vector<Life>& rows, ExecutionMode mode) {
    EngineDriver driver(*tiny.engine);
    std::map<uint32_t, std::vector<Seen>> seen;
    StepDraft draft{.mode = mode};
    for (const Life& life : rows) {
      draft.add.push_back(
          {.row = life.row, .blocks = driver.AllocateFor(40), .sampling = life.sampling});
      draft.chunks.push_back({.row = life.row, .tokens = life.prompt});
    }
    driver.Step(draft);
    for (uint32_t step = 0; step < 4; ++step) {
      StepDraft next{.continue_all = true, .mode = mode};
      for (const Life& life : rows)
        next.drafts.push_back(
            {.row = life.row, .tokens = RandomPrompt(life.row + step, 1 + (life.row + step) % 4)});
      const StepResult result = driver.Step(next);
      for (const RowOutcome& row : result.rows)
        if (row.sampled) Collect(result, row, &seen[row.row]);
    }
    return seen;
  };
  const std::vector<Life> some(lives.begin(), lives.begin() + 6);
  const auto together = run(some, ExecutionMode::kReplay);
  EXPECT_EQ(run(some, ExecutionMode::kEager), together);
  for (const Life& life : some)
    EXPECT_EQ(run({life}, ExecutionMode::kReplay).at(life.row), together.at(life.row));
}

// ---- the distribution, counted ----

std::vector<double> Probabilities(const std::vector<double>& logits, double temperature) {
  const double max = *std::ranges::max_element(logits);
  std::vector<double> p;
  double sum = 0;
  for (const double l : logits) sum += p.emplace_back(std::exp((l - max) / temperature));
  for (double& x : p) x /= sum;
  return p;
}

// Pearson's statistic against p, tokens of fewer than 5 expected draws together; as a number of
// standard deviations from its mean.
double Excess(const std::map<uint32_t, uint32_t>& draws, const std::vector<double>& p) {
  double total = 0, statistic = 0, rare_expected = 0, rare_drawn = 0, bins = 0;
  for (const auto& [token, count] : draws) total += count;
  const auto add = [&](double expected, double drawn) {
    statistic += (drawn - expected) * (drawn - expected) / expected;
    ++bins;
  };
  for (uint32_t t = 0; t < p.size(); ++t) {
    const double drawn = draws.contains(t) ? draws.at(t) : 0, expected = total * p[t];
    if (expected >= 5) {
      add(expected, drawn);
    } else {
      rare_expected += expected;
      rare_drawn += drawn;
    }
  }
  if (rare_expected >= 5) add(rare_expected, rare_drawn);
  return (statistic - (bins - 1)) / std::sqrt(2 * (bins - 1));
}

TEST_P(DraftsTest, DrawsKeepTheDistributionWhateverIsDrafted) {
  constexpr float kTemperature = 0.5f;
  constexpr uint32_t kForced = 5, kDraws = 3000, kAtOnce = 8;
  auto options = WithDrafts();
  options.engine.max_logit_rows = 1;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  std::vector<uint32_t> prompt = RandomPrompt(3, 6);
  const auto probabilities = [&](const std::vector<uint32_t>& tokens) {
    const StepResult result = Start(driver, 900, tokens, {.return_logits = true}, 1);
    driver.Step({.drop = {900}});
    return Probabilities(LogitsOf(result), kTemperature);
  };
  std::vector<uint32_t> behind = prompt;
  behind.push_back(kForced);
  const std::vector<double> first = probabilities(behind);
  const auto draft = static_cast<uint32_t>(std::ranges::max_element(first) - first.begin());
  behind.push_back(draft);
  const std::vector<double> second = probabilities(behind);

  // Rows whose first token is forced, so that all of them draw from `first` next, and those that
  // accept the draft from `second` behind it.
  const std::vector<std::byte> forced = MaskOf({kForced});
  std::vector<std::vector<uint32_t>> blocks;
  for (uint32_t r = 0; r < kAtOnce; ++r)
    blocks.push_back(driver.AllocateFor(static_cast<uint32_t>(prompt.size()) + 3));
  std::map<uint32_t, uint32_t> draws, draws_behind;
  uint32_t accepted = 0;
  for (uint32_t seed = 1; seed <= kDraws; seed += kAtOnce) {
    StepDraft add, next{.continue_all = true};
    for (uint32_t r = 0; r < kAtOnce; ++r) {
      if (seed != 1) add.drop.push_back(r);
      add.add.push_back(
          {.row = r,
           .blocks = blocks[r],
           .sampling = {.temperature = kTemperature, .seed = seed + r, .allowed_tokens = forced}});
      add.chunks.push_back({.row = r, .tokens = prompt});
      next.masks.push_back({.row = r});
      next.drafts.push_back({.row = r, .tokens = {draft, kForced}});
    }
    driver.Step(add);
    const StepResult result = driver.Step(next);
    for (const RowOutcome& row : result.rows) {
      std::vector<Seen> seen;
      Collect(result, row, &seen);
      ++draws[seen[0].token];
      accepted += seen.size() > 1 ? 1 : 0;
      if (seen.size() > 1) ++draws_behind[seen[1].token];
    }
  }
  EXPECT_LT(Excess(draws, first), 4.0);
  EXPECT_LT(Excess(draws_behind, second), 4.0);
  const double p = first[draft], n = kDraws;
  EXPECT_GT(p, 0.02);
  EXPECT_NEAR(accepted, n * p, 4 * std::sqrt(n * p * (1 - p)));
  // The test can tell: these are not draws from another position's distribution.
  EXPECT_GT(Excess(draws, second), 10.0);
}

// ---- how far a row goes ----

TEST_P(DraftsTest, RightDraftsBringAllTheirTokensAndOneMore) {
  if (!RoundsAlike()) GTEST_SKIP() << "a chunk's rounding is not that of single tokens here";
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  const std::vector<uint32_t> prompt = RandomPrompt(1, 7);
  const std::vector<uint32_t> truth = IdsOf(WithoutDrafts(*tiny.engine, {.prompt = prompt}));
  EngineDriver driver(*tiny.engine);
  Start(driver, 1, prompt, {});
  const std::vector<uint32_t> right(truth.begin() + 1, truth.begin() + 6);
  StepResult result = driver.Step({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = right}}});
  EXPECT_EQ(Only(result).accepted.count, 5u);
  EXPECT_EQ(Only(result).token, truth[6]);
  EXPECT_EQ(Only(result).context_length, prompt.size() + 6);
  EXPECT_EQ(result.report.graph, "mixed/16");
  EXPECT_EQ(result.report.tokens, 6u);
  ASSERT_THAT(result.accepted, SizeIs(5));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(result.accepted[i].token, truth[1 + i]);

  std::vector<uint32_t> wrong(truth.begin() + 7, truth.begin() + 12);
  wrong[2] = (wrong[2] + 1) % kVocab;
  result = driver.Step({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = wrong}}});
  EXPECT_EQ(Only(result).accepted.count, 2u);
  EXPECT_EQ(Only(result).token, truth[9]);
  EXPECT_EQ(Only(result).context_length, prompt.size() + 9);
  result = driver.Step({.continue_rows = {1}});
  EXPECT_EQ(Only(result).token, truth[10]);
  EXPECT_EQ(Only(result).accepted.count, 0u);
  EXPECT_EQ(result.report.graph, "decode/1");
}

TEST_P(DraftsTest, ARowThatStopsAmongItsDraftsEndsThere) {
  if (!RoundsAlike()) GTEST_SKIP() << "a chunk's rounding is not that of single tokens here";
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  const std::vector<uint32_t> prompt = RandomPrompt(1, 7);
  const std::vector<uint32_t> truth = IdsOf(WithoutDrafts(*tiny.engine, {.prompt = prompt}));
  const std::vector<uint32_t> right(truth.begin() + 1, truth.begin() + 8);
  // The first token at which it may stop that has not come before.
  size_t at = 3;
  while (std::find(truth.begin(), truth.begin() + static_cast<std::ptrdiff_t>(at), truth[at]) !=
         truth.begin() + static_cast<std::ptrdiff_t>(at))
    ++at;
  ASSERT_LT(at, 8u);
  const std::vector<uint32_t> stop = {truth[at]};
  const auto length = static_cast<uint32_t>(at + 1);
  for (const bool by_length : {false, true}) {
    EngineDriver driver(*tiny.engine);
    Start(
        driver, 1, prompt,
        by_length ? SamplingParams{.max_new_tokens = length} : SamplingParams{.stop_tokens = stop});
    const StepResult result =
        driver.Step({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = right}}});
    EXPECT_EQ(Only(result).finish, by_length ? FinishReason::kLength : FinishReason::kStopToken);
    EXPECT_EQ(Only(result).token, truth[at]);
    EXPECT_EQ(Only(result).accepted.count, at - 1);
    EXPECT_EQ(Only(result).context_length, prompt.size() + at);
    // It is known to have stopped: a continue does nothing, drafts or not.
    const StepResult next =
        driver.Step({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = {4, 5}}}});
    EXPECT_EQ(Only(next).status, RowStatus::kStopped);
    EXPECT_EQ(Only(next).context_length, prompt.size() + at);
    EXPECT_THAT(driver.Step({.continue_all = true, .drafts = {{.row = 1, .tokens = {4}}}}).rows,
                IsEmpty());
  }
}

// Steps go out before it is known how many drafts the one before accepted: the device knows.
TEST_P(DraftsTest, StepsBehindDraftsGoOnFromWhatWasAccepted) {
  if (!RoundsAlike()) GTEST_SKIP() << "a chunk's rounding is not that of single tokens here";
  auto options = WithDrafts();
  options.engine.pipeline_depth = 8;
  const TestEngine tiny = MakeTestEngine(options);
  const std::vector<uint32_t> prompt = RandomPrompt(2, 5);
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams sampling{.temperature = temperature, .seed = 3, .max_new_tokens = 21};
    const std::vector<uint32_t> truth =
        IdsOf(WithoutDrafts(*tiny.engine, {.prompt = prompt, .sampling = sampling}));
    Random random(9);
    EngineDriver driver(*tiny.engine);
    Start(driver, 1, prompt, sampling, 100);
    std::vector<StepTicket> tickets;
    size_t guessed = 1;  // tokens, as the client hopes
    for (uint32_t i = 0; i < 40; ++i) {
      if (tickets.size() == 8) {
        driver.Wait(tickets.front());
        tickets.erase(tickets.begin());
      }
      const uint32_t most = random.Below(4);
      StepDraft draft{.continue_rows = {1}};
      if (most != 0) draft.drafts = {{.row = 1, .tokens = Guess(truth, guessed, most, random)}};
      guessed += 1 + most;
      if (i % 10 == 9) guessed = driver.tokens(1).size();
      tickets.push_back(driver.Submit(draft));
    }
    for (const StepTicket ticket : tickets) driver.Wait(ticket);
    std::vector<uint32_t> got;
    for (const Token& token : driver.tokens(1)) got.push_back(token.id);
    EXPECT_EQ(got, truth);
  }
}

// ---- room ----

TEST_P(DraftsTest, RoomIsCheckedForAllDraftsAndGivenBackForThoseNotAccepted) {
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 5);
  Start(driver, 1, prompt, {}, 7);  // blocks for 12 tokens
  const std::vector<uint32_t> seven = RandomPrompt(5, 7), six = RandomPrompt(6, 6);
  const StepDraft all{.continue_rows = {1}, .drafts = {{.row = 1, .tokens = six}}};
  EXPECT_THAT(driver.TryStep({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = seven}}}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "row 1: context of 13 tokens; its block table has room for 12"));
  // In flight they count as accepted.
  const StepTicket first = driver.Submit(all);
  const StepDraft one{.continue_rows = {1}};
  const DraftView view(one, driver.session(), driver.sequence());
  EXPECT_THAT(tiny.engine->Submit(view.request()),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "row 1: context of 13 tokens; its block table has room for 12"));
  uint32_t length = Only(driver.Wait(first)).context_length;
  EXPECT_LT(length, 12u);
  for (; length < 12; ++length)
    EXPECT_EQ(Only(driver.Step({.continue_rows = {1}})).context_length, length + 1);
  EXPECT_THAT(driver.TryStep({.continue_rows = {1}}),
              StatusIs(absl::StatusCode::kOutOfRange, "its block table has room for 12"));
}

TEST_P(DraftsTest, SeveralStepsWaitUntilItIsKnownWhatWasAccepted) {
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  EngineDriver driver(*tiny.engine);
  Start(driver, 1, RandomPrompt(4, 5), {}, 20);
  const StepTicket first =
      driver.Submit({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = {1, 2, 3}}}});
  const StepDraft several{.continue_rows = {1}, .num_steps = 3};
  const DraftView view(several, driver.session(), driver.sequence());
  EXPECT_THAT(tiny.engine->Submit(view.request()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "num_steps is 3 and row 1 has drafts in a step that was not waited for"));
  driver.Wait(first);
  EXPECT_THAT(driver.Step(several).rows, SizeIs(3));
}

// ---- refusals ----

TEST_P(DraftsTest, WrongDraftsAreRefusedByName) {
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  EngineDriver driver(*tiny.engine);
  Start(driver, 1, {5, 6, 7}, {});
  Start(driver, 2, {5, 6, 7}, {.return_logits = true});
  driver.Step({.add = {{.row = 3, .blocks = driver.AllocateFor(40)}},
               .chunks = {{.row = 3, .tokens = {1}, .sample = false}}});
  using Code = absl::StatusCode;
  const struct {
    StepDraft draft;
    Code code;
    const char* message;
  } wrong[] = {
      {{.continue_rows = {1}, .drafts = {{.row = 9, .tokens = {1}}}},
       Code::kNotFound,
       "row 9 is not resident"},
      {{.continue_rows = {1}, .drafts = {{.row = 1}}},
       Code::kInvalidArgument,
       "draft: row 1 has 0 tokens; allowed: at least 1"},
      {{.continue_rows = {1}, .drafts = {{.row = 1, .tokens = {3, kVocab}}}},
       Code::kInvalidArgument,
       "draft: row 1: token id 97; allowed: less than 97, the vocabulary"},
      {{.continue_rows = {1}, .drafts = {{.row = 1, .tokens = {3}}, {.row = 1, .tokens = {4}}}},
       Code::kInvalidArgument,
       "draft: row 1 is named twice"},
      {{.continue_rows = {1}, .drafts = {{.row = 1, .tokens = RandomPrompt(1, 25)}}},
       Code::kOutOfRange,
       "draft: row 1 has 25 tokens; allowed: at most 24, max_draft_tokens"},
      {{.continue_rows = {1}, .drafts = {{.row = 2, .tokens = {3}}}},
       Code::kFailedPrecondition,
       "draft: row 2 does not continue in this step"},
      {{.chunks = {{.row = 1, .tokens = {4}}}, .drafts = {{.row = 1, .tokens = {3}}}},
       Code::kFailedPrecondition,
       "draft: row 1 does not continue in this step"},
      {{.continue_all = true, .drafts = {{.row = 3, .tokens = {3}}}},
       Code::kFailedPrecondition,
       "draft: row 3 does not continue in this step"},
      {{.add = {{.row = 4, .blocks = driver.AllocateFor(4)}},
        .chunks = {{.row = 4, .tokens = {4}}},
        .drafts = {{.row = 4, .tokens = {3}}}},
       Code::kFailedPrecondition,
       "draft: row 4 is added by this step"},
      {{.continue_rows = {2}, .drafts = {{.row = 2, .tokens = {3}}}},
       Code::kInvalidArgument,
       "draft: row 2 returns its logits"},
      {{.continue_rows = {1}, .num_steps = 2, .drafts = {{.row = 1, .tokens = {3}}}},
       Code::kInvalidArgument,
       "num_steps is 2 and row 1 has drafts; allowed: num_steps of 1"},
  };
  for (const auto& [draft, code, message] : wrong)
    EXPECT_THAT(driver.TryStep(draft), StatusIs(code, message));

  // Refused alone, the others run.
  const StepResult result = driver.Step(
      {.continue_rows = {1, 2}, .isolate_bad_rows = true, .drafts = {{.row = 2, .tokens = {3}}}});
  ASSERT_THAT(result.refused_rows, SizeIs(1));
  EXPECT_EQ(result.refused_rows[0].row, 2u);
  EXPECT_EQ(Only(result).row, 1u);
}

TEST_P(DraftsTest, DraftsOfAllRowsCountTogether) {
  const TestEngine tiny = MakeTestEngine(WithDrafts());
  EngineDriver driver(*tiny.engine), other(*tiny.engine);
  Start(driver, 1, {5, 6, 7}, {});
  Start(driver, 2, {5, 6}, {});
  Start(other, 1, {5, 6}, {});
  const StepDraft::Draft of_1{.row = 1, .tokens = RandomPrompt(1, 15)};
  const StepDraft::Draft of_2{.row = 2, .tokens = RandomPrompt(2, 10)};
  EXPECT_THAT(driver.TryStep({.continue_all = true, .drafts = {of_1, of_2}}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "drafts: 25 tokens in one step; allowed: at most 24, max_draft_tokens"));
  // So do those of sessions that share a launch.
  const auto draft = [](uint32_t count) {
    return StepDraft{.continue_rows = {1},
                     .drafts = {{.row = 1, .tokens = RandomPrompt(count, count)}}};
  };
  Joint too_many({&driver, &other}, {draft(15), draft(10)});
  std::vector<StepResult> results(1);
  ASSERT_OK_AND_ASSIGN(const StepTicket ticket, too_many.Submit());
  EXPECT_THAT(too_many.outcomes(), ElementsAre(Outcome::kTaken, Outcome::kLeft));
  EXPECT_OK(tiny.engine->WaitJoint(ticket, results));
  results = Joint({&driver, &other}, {draft(9), draft(10)}).Run();
  EXPECT_EQ(Only(results[0]).row, 1u);
  EXPECT_GT(Only(results[1]).context_length, 2u);
}

TEST_P(DraftsTest, AnEngineWithoutThemRefusesDrafts) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  Start(driver, 1, {5, 6, 7}, {});
  EXPECT_THAT(driver.TryStep({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = {3}}}}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "draft: row 1 has 1 tokens; allowed: at most 0, max_draft_tokens"));
}

}  // namespace
}  // namespace reprise::engine
