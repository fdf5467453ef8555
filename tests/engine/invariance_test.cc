// SPDX-License-Identifier: Apache-2.0
// A row's tokens and log-probabilities are the same bits whatever runs beside it, whichever graph
// serves it, wherever its KV lies.
//
// The model is wide enough that tensor cores cut its weights into several pieces of K, and its
// vocabulary is two chunks of the sampler's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/row_script.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::Alone;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::EvenChunks;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowPlan;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;

constexpr uint32_t kVocab = 4201;

class InvarianceTest : public testing::EngineTest {
 protected:
  testing::TestEngineOptions WideOptions() const {
    auto options = Options();
    options.model = {.vocab_size = kVocab,
                     .hidden_size = 128,
                     .intermediate_size = 200,
                     .num_layers = 2,
                     .num_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim = 32,
                     .max_position_embeddings = 2048};
    options.engine.block_size = 16;
    options.engine.kv_cache_bytes = uint64_t{8} << 20;
    options.engine.mixed_buckets = {16, 64, 256};
    return options;
  }
  TestEngine MakeWideEngine() const { return MakeTestEngine(WideOptions()); }
};
REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(InvarianceTest);

// Rows of different lengths, half of them sampled.
RowPlan Plan(uint32_t row) {
  RowPlan plan{.row = row, .prompt = RandomPrompt(100 + row, 3 + 11 * (row % 4), kVocab)};
  if (row % 2 == 1) plan.sampling = {.temperature = 1.1f, .seed = 1000 + row};
  return plan;
}

TEST_P(InvarianceTest, EveryDecodeBucketGivesTheSameBits) {
  const TestEngine wide = MakeWideEngine();
  constexpr uint32_t kCount = 6;
  std::vector<std::vector<Token>> alone;
  for (uint32_t row = 0; row < 8; ++row) {
    EngineDriver driver(*wide.engine);
    alone.push_back(driver.Generate(Plan(row), kCount));
  }
  const char* const graphs[] = {"",         "decode/1", "decode/2", "decode/4", "decode/4",
                                "decode/8", "decode/8", "decode/8", "decode/8"};
  for (uint32_t num_rows = 1; num_rows <= 8; ++num_rows) {
    EngineDriver driver(*wide.engine);
    // In another order, so that rows change places from size to size.
    for (uint32_t i = 0; i < num_rows; ++i) driver.Start(Plan((i * 3 + num_rows) % 8), kCount);
    for (uint32_t i = 1; i < kCount; ++i)
      EXPECT_EQ(driver.Step({.continue_all = true}).report.graph, graphs[num_rows]);
    for (uint32_t i = 0; i < num_rows; ++i) {
      const uint32_t row = (i * 3 + num_rows) % 8;
      EXPECT_EQ(driver.tokens(row), alone[row]) << "row " << row << " of " << num_rows;
    }
  }
}

TEST_P(InvarianceTest, MixedStepsGiveADecodingRowTheSameBits) {
  const TestEngine wide = MakeWideEngine();
  constexpr uint32_t kCount = 8;
  for (const uint32_t row : {2u, 3u}) {
    EngineDriver driver(*wide.engine);
    const std::vector<Token> alone = driver.Generate(Plan(row), kCount);
    driver.Start(Plan(row), kCount);
    // Beside it others prefill, before it and behind it in the batch, in every mixed bucket.
    const uint32_t lengths[kCount - 1] = {2, 15, 40, 63, 150, 200, 255};
    for (uint32_t i = 0; i + 1 < kCount; ++i) {
      const std::vector<uint32_t> blocks = driver.AllocateFor(300);
      const uint32_t other = 50 + i;
      const StepReport report =
          driver
              .Step({.add = {{.row = other, .blocks = blocks}},
                     .chunks = {{.row = other, .tokens = RandomPrompt(i, lengths[i], kVocab)}},
                     .continue_rows = {row}})
              .report;
      EXPECT_EQ(report.graph, lengths[i] < 16   ? "mixed/16"
                              : lengths[i] < 64 ? "mixed/64"
                                                : "mixed/256");
      driver.Step({.drop = {other}});
      driver.Free(blocks);
    }
    const std::vector<Token>& all = driver.tokens(row);
    EXPECT_EQ((std::vector<Token>{all.begin() + kCount, all.end()}), alone) << "row " << row;
  }
}

TEST_P(InvarianceTest, PrefillGivesTheSameBitsInEveryBucketAndPlace) {
  const TestEngine wide = MakeWideEngine();
  const RowPlan plan{.row = 1,
                     .prompt = RandomPrompt(5, 40, kVocab),
                     .sampling = {.temperature = 0.7f, .seed = 3},
                     .chunks = {9, 30, 1}};
  EngineDriver driver(*wide.engine);
  const std::vector<Token> alone = driver.Generate(plan, 4);
  for (uint32_t round = 0; round < 4; ++round) {
    // Others before it in the batch shift its tokens, more of them each round.
    std::vector<uint32_t> beside(round);
    StepDraft add;
    for (uint32_t i = 0; i < round; ++i) {
      beside[i] = 10 + i;
      add.add.push_back({.row = beside[i], .blocks = driver.AllocateFor(250)});
    }
    const std::vector<uint32_t> blocks = driver.AllocateFor(43);
    add.add.push_back({.row = 1, .blocks = blocks, .sampling = plan.sampling});
    driver.Step(add);
    uint32_t at = 0;
    for (const uint32_t chunk : plan.chunks) {
      StepDraft step;
      for (const uint32_t other : beside)
        step.chunks.push_back({.row = other,
                               .tokens = RandomPrompt(other, 1 + (at + 17 * round) % 70, kVocab),
                               .sample = false});
      const auto begin = plan.prompt.begin() + at;
      at += chunk;
      step.chunks.push_back({.row = 1, .tokens = {begin, begin + chunk}, .sample = at == 40});
      if (round % 2 == 1) std::swap(step.chunks.front(), step.chunks.back());
      driver.Step(step);
    }
    for (int i = 0; i < 3; ++i) driver.Step({.continue_rows = {1}});
    const std::vector<Token>& all = driver.tokens(1);
    EXPECT_EQ((std::vector<Token>{all.end() - 4, all.end()}), alone) << "round " << round;
    beside.push_back(1);
    StepDraft drop{.drop = beside};
    driver.Step(drop);
    for (const StepDraft::Add& row : add.add) driver.Free(row.blocks);
  }
}

TEST_P(InvarianceTest, SlotsAndBlocksDoNotMatter) {
  const TestEngine wide = MakeWideEngine();
  constexpr uint32_t kCount = 5;
  const RowPlan plan = Plan(3);
  std::vector<Token> alone;
  {
    EngineDriver driver(*wide.engine);
    alone = driver.Generate(plan, kCount);
  }
  // Fill the slots, free one in the middle with its blocks, and take its place: seven times.
  EngineDriver driver(*wide.engine);
  for (uint32_t row = 20; row < 28; ++row) driver.Start(Plan(row), 30);
  for (uint32_t row = 20; row < 27; ++row) {
    driver.Step({.continue_all = true});
    driver.Drop(row);
    RowPlan again = plan;
    again.row = 100 + row;
    driver.Start(again, kCount);
    for (uint32_t i = 1; i < kCount; ++i) driver.Step({.continue_rows = {again.row}});
    EXPECT_EQ(driver.tokens(again.row), alone) << "in place of row " << row;
    driver.Drop(again.row);
  }
}

TEST_P(InvarianceTest, TablesInAnyOrderGiveTheSameBits) {
  const TestEngine wide = MakeWideEngine();
  EngineDriver driver(*wide.engine);
  const RowPlan plan = Plan(3);
  const std::vector<Token> alone = driver.Generate(plan, 3);
  std::vector<uint32_t> blocks = driver.Allocate(9);
  for (uint32_t row = 50; row < 53; ++row) {
    std::vector<uint32_t> table = blocks;
    std::reverse(table.begin(), table.end());
    std::rotate(table.begin(), table.begin() + (row - 50) * 2, table.end());
    driver.Step({.add = {{.row = row, .blocks = table, .sampling = plan.sampling}},
                 .chunks = {{.row = row, .tokens = plan.prompt}}});
    for (int i = 0; i < 2; ++i) driver.Step({.continue_rows = {row}});
    EXPECT_EQ(driver.tokens(row), alone);
    driver.Step({.drop = {row}});
  }
}

// Contexts of several KV splits, whose partial results meet in whatever order blocks finish.
TEST_P(InvarianceTest, LongRowsOfSeveralSplitsGiveTheSameBits) {
  const TestEngine wide = MakeWideEngine();
  constexpr uint32_t kCount = 4, kLengths[] = {255, 256, 520, 700};
  const auto plan = [&](uint32_t i) {
    return RowPlan{.row = i,
                   .prompt = RandomPrompt(70 + i, kLengths[i], kVocab),
                   .sampling = {.temperature = i % 2 == 0 ? 0.0f : 1.5f, .seed = i},
                   .chunks = EvenChunks(kLengths[i], 250)};
  };
  std::vector<std::vector<Token>> alone;
  for (uint32_t i = 0; i < 4; ++i) {
    EngineDriver driver(*wide.engine);
    alone.push_back(driver.Generate(plan(i), kCount));
  }
  EngineDriver driver(*wide.engine);
  for (uint32_t i = 0; i < 4; ++i) driver.Start(plan(i), kCount);
  for (uint32_t row = 10; row < 14; ++row) driver.Start(Plan(row), 10);
  driver.Step({.continue_all = true});
  // Beside a prefill, too.
  const std::vector<uint32_t> blocks = driver.AllocateFor(100);
  driver.Step({.drop = {10},
               .add = {{.row = 30, .blocks = blocks}},
               .chunks = {{.row = 30, .tokens = RandomPrompt(1, 100, kVocab)}},
               .continue_all = true});
  driver.Step({.continue_rows = {3, 1, 2, 0}});
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(driver.tokens(i), alone[i]) << kLengths[i];
}

TEST_P(InvarianceTest, EveryLifeOfARandomStoryEqualsTheSameLifeAlone) {
  const TestEngine wide = MakeWideEngine();
  const RowScript script = MakeRowScript({.num_steps = 60,
                                          .max_step_tokens = 256,
                                          .block_size = 16,
                                          .max_context_length = 90,
                                          .vocab_size = kVocab,
                                          .seed = 8});
  RowScriptPlayer player(*wide.engine, script);
  player.Play(2);
  size_t num_tokens = 0;
  for (size_t life = 0; life < script.lives.size(); ++life) {
    EXPECT_EQ(player.tokens()[life], Alone(*wide.engine, script.lives[life])) << "life " << life;
    num_tokens += player.tokens()[life].size();
  }
  EXPECT_GT(script.lives.size(), 10u);
  EXPECT_GT(num_tokens, 100u);
}

}  // namespace
}  // namespace reprise::engine
