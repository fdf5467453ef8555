// SPDX-License-Identifier: Apache-2.0
// How long simulated steps with prompts take: by PromptCost alone, and by StepCost beside rows that
// decode.
#include "engine/simulation/prompt_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/simulation/step_cost.h"

namespace reprise::engine {
namespace {

using ::testing::HasSubstr;

constexpr double kLeastNs = 1000;

PromptCost Prompts(const std::vector<PromptCostPoint>& points) {
  auto cost = PromptCost::Create(points);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return *std::move(cost);
}

// `count` prompts of `tokens` each.
PromptCostPoint Alone(uint32_t count, uint32_t tokens, double ns) {
  return {.tokens = count * tokens, .attended = ChunkPairs(tokens, 0) / tokens, .device_ns = ns};
}

// 100 for each token and 0.5 for each pair, beside 1000 for all.
double Quadratic(uint32_t count, uint32_t tokens, double history) {
  return 1000 + count * (100.0 * tokens + 0.5 * ChunkPairs(tokens, history));
}

std::vector<PromptCostPoint> QuadraticPoints() {
  std::vector<PromptCostPoint> points;
  for (const uint32_t tokens : {256u, 1024u, 64u})
    points.push_back(Alone(1, tokens, Quadratic(1, tokens, 0)));
  points.push_back(Alone(16, 64, Quadratic(16, 64, 0)));
  return points;
}

// Decode: 900 + 10 for each row and 0.2 for each row's token of context.
double Decode(double rows, double context) { return 900 + 10 * rows + 0.2 * rows * context; }

std::vector<StepCostPoint> DecodePoints() {
  std::vector<StepCostPoint> points;
  for (const uint32_t rows : {1u, 8u, 64u})
    for (const double context : {100.0, 1000.0})
      points.push_back({.rows = rows, .context = context, .device_ns = Decode(rows, context)});
  return points;
}
constexpr double kShortestNs = 900 + 10 + 20;

StepCost Cost(const std::vector<PromptCostPoint>& prompts) {
  auto cost = StepCost::Create(DecodePoints(), prompts);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return *std::move(cost);
}

struct Chunk {
  uint32_t tokens = 0;
  uint64_t history = 0;
};

// As LoadOf counts, of a model without a window.
StepLoad Load(uint64_t rows, uint64_t context, const std::vector<Chunk>& chunks) {
  StepLoad load{.tokens = rows, .kv_tokens = rows * context};
  for (const Chunk& chunk : chunks) {
    load.tokens += chunk.tokens;
    load.kv_tokens += chunk.history + chunk.tokens;
    if (chunk.tokens == 1) continue;
    ++load.chunk_rows;
    load.chunk_tokens += chunk.tokens;
    load.chunk_kv_tokens += chunk.history + chunk.tokens;
    load.chunk_pairs +=
        static_cast<uint64_t>(ChunkPairs(chunk.tokens, static_cast<double>(chunk.history)));
  }
  return load;
}

uint64_t Rounded(double ns) { return static_cast<uint64_t>(std::llround(ns)); }

TEST(ChunkPairs, CountsEveryTokenWithThoseBeforeIt) {
  EXPECT_EQ(ChunkPairs(1, 0), 1);
  EXPECT_EQ(ChunkPairs(4, 0), 1 + 2 + 3 + 4);
  EXPECT_EQ(ChunkPairs(3, 10), 11 + 12 + 13);
}

TEST(PromptCost, IsWhatWasMeasuredAtAPoint) {
  const PromptCost cost = Prompts(QuadraticPoints());
  for (const PromptCostPoint& point : QuadraticPoints())
    EXPECT_EQ(cost.TimeNs(point.tokens, point.attended, kLeastNs), point.device_ns);
}

TEST(PromptCost, IsOnTheLineBetweenTokens) {
  const PromptCost cost = Prompts({{100, 50, 2000}, {300, 50, 6000}});
  EXPECT_DOUBLE_EQ(cost.TimeNs(200, 50, kLeastNs), 4000);
  EXPECT_DOUBLE_EQ(cost.TimeNs(250, 50, kLeastNs), 5000);
}

TEST(PromptCost, LeadsFromTheLeastToTheFewestTokens) {
  const PromptCost cost = Prompts({{101, 50, 2000}, {300, 50, 6000}});
  EXPECT_DOUBLE_EQ(cost.TimeNs(1, 50, kLeastNs), kLeastNs);
  EXPECT_DOUBLE_EQ(cost.TimeNs(51, 50, kLeastNs), 1500);
  // Pairs take what they do elsewhere.
  const PromptCost quadratic = Prompts(QuadraticPoints());
  EXPECT_NEAR(quadratic.TimeNs(2, 2000, kLeastNs) - quadratic.TimeNs(2, 1000, kLeastNs),
              0.5 * 2 * 1000, 1e-6);
  EXPECT_DOUBLE_EQ(Prompts({{1, 1, 1500}}).TimeNs(1, 1, kLeastNs), 1500) << "a prompt of one";
}

TEST(PromptCost, GoesOnBeyondTheMostTokens) {
  EXPECT_DOUBLE_EQ(Prompts({{100, 50, 2000}, {300, 50, 6000}}).TimeNs(400, 50, kLeastNs), 8000);
  EXPECT_DOUBLE_EQ(Prompts({{100, 50, 2000}}).TimeNs(400, 50, kLeastNs), 8000) << "in proportion";
  // Noise: more tokens took less.
  EXPECT_DOUBLE_EQ(Prompts({{100, 50, 2000}, {110, 50, 1990}}).TimeNs(400, 50, kLeastNs), 1990);
}

TEST(PromptCost, AddsWhatPairsTakeForWhatChunksFollow) {
  const PromptCost cost = Prompts(QuadraticPoints());
  EXPECT_NEAR(cost.ns_per_pair(), 0.5, 1e-9);
  const auto expect = [&](uint32_t tokens, double history) {
    const double expected = Quadratic(1, tokens, history);
    EXPECT_NEAR(cost.TimeNs(tokens, ChunkPairs(tokens, history) / tokens, kLeastNs), expected,
                1e-9 * expected)
        << tokens << " behind " << history;
  };
  expect(64, 1000);
  expect(256, 100);
  expect(1024, 100000);
  // Between the two of 1,024 tokens: four prompts of 256.
  EXPECT_NEAR(cost.TimeNs(1024, 128.5, kLeastNs), Quadratic(4, 256, 0), 1e-3);
  // Shorter prompts than were measured: 128 of 8.
  EXPECT_NEAR(cost.TimeNs(1024, 4.5, kLeastNs), Quadratic(128, 8, 0), 1e-3);
}

TEST(PromptCost, TakesNoNoiseForWhatAttendingTakes) {
  EXPECT_EQ(Prompts({Alone(2, 32, 2000), Alone(1, 64, 2090)}).ns_per_pair(), 0);
  EXPECT_EQ(Prompts({Alone(2, 32, 2000), Alone(1, 64, 1500)}).ns_per_pair(), 0);
  EXPECT_EQ(Prompts({Alone(1, 64, 2000), Alone(1, 128, 3000)}).ns_per_pair(), 0);
  // Of two numbers of tokens the one whose points lie further apart tells it.
  const PromptCost cost = Prompts({Alone(2, 32, 2000), Alone(1, 64, 3000), Alone(2, 512, 100'000),
                                   Alone(1, 1024, 100'000 + 512 * 512)});
  EXPECT_DOUBLE_EQ(cost.ns_per_pair(), 1);
}

TEST(PromptCost, IsNeverLessThanTheLeast) {
  const PromptCost cost = Prompts({{100, 50, 2000}, {300, 50, 6000}});
  for (const double tokens : {1.0, 50.0, 100.0, 200.0, 310.0})
    EXPECT_EQ(cost.TimeNs(tokens, 1e6, 7000), 7000) << tokens;
}

TEST(PromptCost, RefusesPointsThatSayNothing) {
  const auto refusal = [](const std::vector<PromptCostPoint>& points) {
    const auto cost = PromptCost::Create(points);
    EXPECT_EQ(cost.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(cost.status().message());
  };
  EXPECT_TRUE(Prompts({}).empty());
  EXPECT_THAT(refusal({{64, 32.5, 1}, {64, 32.5, 2}}),
              HasSubstr("got two of 64 tokens of prompts that attend over 32.5 in the mean"));
  EXPECT_THAT(refusal({{0, 1, 1}}), HasSubstr("got 0 tokens of prompts"));
  EXPECT_THAT(refusal({{65537, 1, 1}}), HasSubstr("up to 65536 tokens"));
  EXPECT_THAT(refusal({{64, 0, 1}}), HasSubstr("attend over 0"));
  EXPECT_THAT(refusal({{64, 1.1e9, 1}}), HasSubstr("over 1073741824"));
  EXPECT_THAT(refusal({{64, 32.5, 0}}), HasSubstr("all of them above 0"));
  EXPECT_THAT(refusal({{64, 32.5, 30e9 + 100}}), HasSubstr("30000000000 ns"));
  EXPECT_THAT(refusal({{64, 32.5, std::numeric_limits<double>::quiet_NaN()}}), HasSubstr("nan ns"));
  const auto cost = StepCost::Create(DecodePoints(), {{0, 1, 1}});
  EXPECT_THAT(std::string(cost.status().message()), HasSubstr("got 0 tokens of prompts"));
}

TEST(StepCostOfPrompts, IsWhatWasMeasuredAtAPoint) {
  const StepCost cost = Cost(QuadraticPoints());
  for (const uint32_t tokens : {64u, 256u, 1024u})
    EXPECT_EQ(cost.TimeNs(Load(0, 0, {{tokens}})), Rounded(Quadratic(1, tokens, 0)));
  EXPECT_EQ(cost.TimeNs(Load(0, 0, std::vector<Chunk>(16, {64}))), Rounded(Quadratic(16, 64, 0)));
  for (const StepCostPoint& point : DecodePoints()) {
    EXPECT_EQ(cost.TimeNs(Load(point.rows, static_cast<uint64_t>(point.context), {})),
              Rounded(point.device_ns));
  }
}

TEST(StepCostOfPrompts, ReadsWeightsOnceBesideRowsThatDecode) {
  const StepCost cost = Cost(QuadraticPoints());
  EXPECT_EQ(cost.TimeNs(Load(8, 500, {{256}})),
            Rounded(Quadratic(1, 256, 0) + Decode(8, 500) - kShortestNs));
  // The shortest of decode steps is free beside a prompt.
  EXPECT_EQ(cost.TimeNs(Load(1, 100, {{256}})), Rounded(Quadratic(1, 256, 0)));
  // A chunk of one token is a row that decodes.
  EXPECT_EQ(cost.TimeNs(Load(7, 500, {{1, 499}, {256}})), cost.TimeNs(Load(8, 500, {{256}})));
}

TEST(StepCostOfPrompts, TakesNoLessThanReadingItsContextsDoes) {
  const StepCost cost = Cost({Alone(1, 64, 5000), Alone(1, 256, 6000)});
  EXPECT_EQ(cost.prompts().ns_per_pair(), 0);
  EXPECT_EQ(cost.TimeNs(Load(0, 0, {{64, 100}})), 5000u);
  EXPECT_EQ(cost.TimeNs(Load(0, 0, {{64, 99'936}})), Rounded(Decode(1, 100'000)));
  EXPECT_EQ(cost.TimeNs(Load(0, 0, {{4, 49'996}, {4, 49'996}})), Rounded(Decode(2, 50'000)))
      << "rows with drafts";
}

TEST(StepCostOfPrompts, CostsAsManyRowsWithoutPointsOfPrompts) {
  const StepCost with = Cost({}), before = *StepCost::Create(DecodePoints());
  EXPECT_TRUE(with.prompts().empty());
  for (const StepLoad& load : {Load(0, 0, {{256}}), Load(8, 500, {{64, 1000}, {2}})}) {
    const StepLoad rows = {.tokens = load.tokens, .kv_tokens = load.kv_tokens};
    EXPECT_EQ(with.TimeNs(load), before.TimeNs(rows));
  }
}

TEST(StepCostOfPrompts, IsNeverMoreThanAnEngineWaitsFor) {
  // Points that are close: far from them the line is as steep as noise makes it.
  const StepCost steep = Cost({{64, 1e-300, 1000}, {64, 2e-300, 9000}});
  EXPECT_EQ(steep.TimeNs(Load(0, 0, {{64, 1000}})), kMaxStepNs);
  EXPECT_EQ(steep.TimeNs(Load(8, 1000, {{64, 1000}})), kMaxStepNs);
  const StepCost slow = Cost({Alone(1, 64, 20e9)});
  EXPECT_EQ(slow.TimeNs(Load(0, 0, {{128}})), kMaxStepNs);
}

// More of anything never takes less: a longer chunk, one that follows more, another chunk, another
// row.
TEST(StepCostOfPrompts, RisesWithAllThatAStepRuns) {
  std::mt19937 random(7);
  const auto below = [&random](uint32_t end) {
    return std::uniform_int_distribution<uint32_t>(0, end - 1)(random);
  };
  for (const StepCost& cost :
       {Cost(QuadraticPoints()), Cost({Alone(1, 64, 1500), Alone(1, 1024, 90'000)}),
        Cost({Alone(1, 512, 40'000)})}) {
    for (int i = 0; i < 2000; ++i) {
      std::vector<Chunk> chunks(1 + below(4));
      for (Chunk& chunk : chunks) chunk = {.tokens = 2 + below(800), .history = below(5000)};
      const uint64_t rows = below(40), context = 1 + below(2000);
      const uint64_t ns = cost.TimeNs(Load(rows, context, chunks));
      EXPECT_GE(ns, cost.TimeNs(Load(rows, context, {}))) << "less than its rows alone";
      EXPECT_GE(ns, cost.TimeNs(Load(0, 0, chunks))) << "less than its chunks alone";
      EXPECT_GE(cost.TimeNs(Load(rows + 1, context, chunks)), ns);
      std::vector<Chunk> more = chunks;
      more.push_back({.tokens = 2 + below(800), .history = below(5000)});
      EXPECT_GE(cost.TimeNs(Load(rows, context, more)), ns) << "there is one more";
      more = chunks;
      more[0].history += 1 + below(5000);
      EXPECT_GE(cost.TimeNs(Load(rows, context, more)), ns) << "it follows more";
      more = chunks;
      more[0].tokens += 1 + below(800);
      EXPECT_GE(cost.TimeNs(Load(rows, context, more)), ns) << "it is longer";
    }
  }
}

}  // namespace
}  // namespace reprise::engine
