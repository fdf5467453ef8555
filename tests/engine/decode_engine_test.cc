// SPDX-License-Identifier: Apache-2.0
// DecodeEngine as its header promises: sessions, blocks, rows and what their steps report. What it
// refuses, how it pipelines, and what rows must not depend on are in files of their own.
#include "engine/decode_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/row_script.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using ::reprise::testing::kNotFound;
using ::reprise::testing::kRange;

std::vector<uint32_t> Ids(const std::vector<Token>& tokens) {
  std::vector<uint32_t> ids;
  for (const Token& token : tokens) ids.push_back(token.id);
  return ids;
}

std::vector<uint32_t> RowsOf(const StepResult& result) {
  std::vector<uint32_t> rows;
  for (const RowOutcome& row : result.rows) rows.push_back(row.row);
  return rows;
}

class DecodeEngineTest : public testing::EngineTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(DecodeEngineTest);

// ---- steps ----

TEST_P(DecodeEngineTest, ReportsEachRowInRequestOrder) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 50, .prompt = RandomPrompt(1, 5)}, 8);
  driver.Start({.row = 10, .prompt = RandomPrompt(2, 3)}, 8);
  const std::vector<uint32_t> blocks = driver.AllocateFor(20);
  StepResult result =
      driver.Step({.add = {{.row = 30, .blocks = blocks}},
                   .chunks = {{.row = 30, .tokens = RandomPrompt(3, 7), .sample = false}},
                   .continue_rows = {10, 50}});
  EXPECT_EQ(result.session, driver.session().id);
  EXPECT_EQ(result.sequence, 3u);
  ASSERT_THAT(RowsOf(result), ElementsAre(30, 10, 50));
  EXPECT_FALSE(result.rows[0].sampled);
  EXPECT_EQ(result.rows[0].context_length, 7u);
  EXPECT_TRUE(result.rows[1].sampled);
  EXPECT_EQ(result.rows[1].context_length, 4u);
  EXPECT_EQ(result.rows[2].context_length, 6u);
  for (const RowOutcome& row : result.rows) {
    EXPECT_EQ(row.status, RowStatus::kRan);
    EXPECT_LT(row.token, 97u);
    EXPECT_LE(row.logprob, 0.0f);
  }
  EXPECT_EQ(result.report.rows, 3u);
  EXPECT_EQ(result.report.tokens, 9u);
  // Rows that wait for their next chunk are left out; the others come in the order of adding.
  result = driver.Step({.continue_all = true});
  EXPECT_THAT(RowsOf(result), ElementsAre(50, 10));
  result = driver.Step({.chunks = {{.row = 30, .tokens = {4}}}, .continue_all = true});
  EXPECT_THAT(RowsOf(result), ElementsAre(30, 50, 10));
  result = driver.Step({.continue_all = true});
  EXPECT_THAT(RowsOf(result), ElementsAre(50, 10, 30));
}

TEST_P(DecodeEngineTest, ReportNamesTheSmallestGraphThatFitsAndItsPadding) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const auto report_of = [&](const StepDraft& draft) { return driver.Step(draft).report; };
  const auto expect = [](const StepReport& report, const std::string& graph, uint32_t padding_rows,
                         uint32_t padding_tokens) {
    EXPECT_EQ(report.graph, graph);
    EXPECT_TRUE(report.replayed);
    EXPECT_EQ(report.padding_rows, padding_rows) << graph;
    EXPECT_EQ(report.padding_tokens, padding_tokens) << graph;
  };
  StepDraft step;
  for (uint32_t row = 0; row < 5; ++row) {
    step.add.push_back({.row = row, .blocks = driver.AllocateFor(60)});
    step.chunks.push_back({.row = row, .tokens = {row}});
  }
  expect(report_of(step), "decode/8", 3, 3);  // single given tokens are decode work
  expect(report_of({.continue_rows = {3}}), "decode/1", 0, 0);
  expect(report_of({.continue_rows = {3, 1}}), "decode/2", 0, 0);
  expect(report_of({.continue_rows = {3, 1, 4}}), "decode/4", 1, 1);
  expect(report_of({.chunks = {{.row = 2, .tokens = {1, 2}}}, .continue_rows = {3}}), "mixed/16", 0,
         13);
  expect(report_of({.chunks = {{.row = 2, .tokens = RandomPrompt(1, 16)}}}), "mixed/16", 0, 0);
  expect(report_of({.chunks = {{.row = 2, .tokens = RandomPrompt(1, 16)}}, .continue_all = true}),
         "mixed/64", 0, 44);
  expect(report_of({.drop = {2}}), "decode/1", 1, 1);
}

TEST_P(DecodeEngineTest, RowsBeyondTheLargestDecodeBucketGoToAMixedOne) {
  auto options = Options();
  options.engine.decode_buckets = {2};
  const TestEngine tiny = MakeTestEngine(options);
  const TestEngine plain = MakeEngine();
  std::vector<std::vector<Token>> tokens[2];
  for (const TestEngine* engine : {&tiny, &plain}) {
    EngineDriver driver(*engine->engine);
    for (uint32_t row = 0; row < 6; ++row)
      driver.Start({.row = row, .prompt = RandomPrompt(row, 4 + row)}, 5);
    const StepReport report = driver.Step({.continue_all = true}).report;
    EXPECT_EQ(report.graph, engine == &tiny ? "mixed/16" : "decode/8");
    EXPECT_EQ(report.padding_rows, engine == &tiny ? 0u : 2u);
    EXPECT_EQ(report.padding_tokens, engine == &tiny ? 10u : 2u);
    driver.ContinueAll(3);
    for (uint32_t row = 0; row < 6; ++row) tokens[engine == &plain].push_back(driver.tokens(row));
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

TEST_P(DecodeEngineTest, EagerStepsEqualReplayedOnesToTheBitAndSaySo) {
  const TestEngine tiny = MakeEngine();
  const RowScript script = MakeRowScript({.num_steps = 40, .seed = 11});
  std::vector<std::vector<Token>> replayed;
  for (const ExecutionMode mode : {ExecutionMode::kReplay, ExecutionMode::kEager}) {
    RowScriptPlayer player(*tiny.engine, script);
    player.Play(1, mode);
    if (mode == ExecutionMode::kReplay) replayed = player.tokens();
    EXPECT_EQ(player.tokens(), replayed);
  }
  EngineDriver driver(*tiny.engine);
  StepDraft step{.add = {{.row = 1, .blocks = driver.AllocateFor(8)}},
                 .chunks = {{.row = 1, .tokens = {1, 2}}}};
  step.mode = ExecutionMode::kEager;
  const StepReport report = driver.Step(step).report;
  EXPECT_FALSE(report.replayed);
  EXPECT_EQ(report.graph, "mixed/16");
  EXPECT_EQ(report.padding_tokens, 14u);
}

TEST_P(DecodeEngineTest, LedgerAddsUp) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 12)}, 9);
  for (int i = 0; i < 5; ++i) {
    const StepLedger ledger = driver.Step({.continue_all = true}).ledger;
    EXPECT_GT(ledger.device_ns, 0u);
    EXPECT_GT(ledger.total_ns, 0u);
    EXPECT_LE(ledger.validate_ns + ledger.ring_ns + ledger.launch_ns, ledger.total_ns);
    // The device's work lies between the launch and the result.
    EXPECT_LE(ledger.device_ns, ledger.total_ns);
  }
}

// ---- rows ----

TEST_P(DecodeEngineTest, AddedRowWaitsUntilAChunkRunsIt) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 9);
  const std::vector<Token> expected = driver.Generate(
      {.row = 1, .prompt = prompt, .sampling = {.temperature = 0.8f, .seed = 5}}, 4);
  const std::vector<uint32_t> blocks = driver.AllocateFor(13);
  const StepResult& added = driver.Step(
      {.add = {{.row = 2, .blocks = {blocks[0]}, .sampling = {.temperature = 0.8f, .seed = 5}}}});
  EXPECT_THAT(added.rows, IsEmpty());
  EXPECT_EQ(added.report.rows, 0u);
  EXPECT_EQ(added.report.tokens, 0u);
  driver.Step({.append = {{.row = 2, .blocks = {blocks.begin() + 1, blocks.end()}}}});
  driver.Step({.chunks = {{.row = 2, .tokens = prompt}}});
  driver.ContinueAll(3);
  EXPECT_EQ(driver.tokens(2), expected);
  EXPECT_THAT(driver.Step({.drop = {2}}).rows, IsEmpty());
}

TEST_P(DecodeEngineTest, RowIsDroppedAndItsIdAddedAgainInOneStep) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 6);
  const std::vector<Token> expected = driver.Generate({.row = 3, .prompt = prompt}, 3);
  driver.Start({.row = 7, .prompt = RandomPrompt(9, 11)}, 5);
  const std::vector<uint32_t> blocks = driver.AllocateFor(8);
  driver.Step({.drop = {7},
               .add = {{.row = 7, .blocks = blocks}},
               .chunks = {{.row = 7, .tokens = prompt}}});
  driver.ContinueAll(2);
  const std::vector<Token>& all = driver.tokens(7);
  EXPECT_EQ((std::vector<Token>{all.begin() + 1, all.end()}), expected);
  // In its own blocks, too.
  driver.Step({.drop = {7},
               .add = {{.row = 7, .blocks = blocks}},
               .chunks = {{.row = 7, .tokens = prompt}}});
  EXPECT_EQ(driver.tokens(7).back(), expected[0]);
}

TEST_P(DecodeEngineTest, SameRowIdsOfTwoSessionsAreDifferentRows) {
  const TestEngine tiny = MakeEngine();
  EngineDriver one(*tiny.engine), two(*tiny.engine);
  EXPECT_NE(one.session().id, two.session().id);
  EXPECT_NE(one.session().epoch, two.session().epoch);
  const std::vector<Token> alone_one = one.Generate({.row = 1, .prompt = RandomPrompt(1, 9)}, 5);
  const std::vector<Token> alone_two = two.Generate({.row = 1, .prompt = RandomPrompt(2, 4)}, 5);
  one.Start({.row = 2, .prompt = RandomPrompt(1, 9)}, 5);
  two.Start({.row = 2, .prompt = RandomPrompt(2, 4)}, 5);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(RowsOf(one.Step({.continue_all = true})), ElementsAre(2));
    EXPECT_THAT(RowsOf(two.Step({.continue_all = true})), ElementsAre(2));
  }
  EXPECT_EQ(one.tokens(2), alone_one);
  EXPECT_EQ(two.tokens(2), alone_two);
}

TEST_P(DecodeEngineTest, RowGrowsToExactlyTheContextLimit) {
  auto options = Options();
  options.engine.max_context_length = 22;  // not a multiple of the block size
  const TestEngine tiny = MakeTestEngine(options);
  EXPECT_EQ(tiny.engine->info().limits.max_context_length, 22u);
  EXPECT_EQ(tiny.engine->info().limits.max_blocks_per_row, 6u);
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 20)}, 3);
  EXPECT_EQ(driver.Step({.continue_all = true}).rows[0].context_length, 21u);
  EXPECT_EQ(driver.Step({.continue_all = true}).rows[0].context_length, 22u);
  EXPECT_THAT(driver.TryStep({.continue_all = true}), StatusIs(kRange, "context of 23"));
  // A whole prompt of that length runs too.
  driver.Drop(1);
  driver.Start({.row = 2, .prompt = RandomPrompt(3, 22)}, 1);
  EXPECT_EQ(driver.tokens(2).back().context_length, 22u);
}

TEST_P(DecodeEngineTest, SamplingDependsOnSeedAndTemperatureAndGreedyOnNeither) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(1, 6);
  const auto generate = [&](float temperature, uint64_t seed) {
    return Ids(driver.Generate(
        {.row = 1, .prompt = prompt, .sampling = {.temperature = temperature, .seed = seed}}, 16));
  };
  const std::vector<uint32_t> greedy = generate(0.0f, 0);
  EXPECT_EQ(generate(0.0f, 99), greedy);
  EXPECT_EQ(generate(-0.0f, 1), greedy);
  EXPECT_EQ(generate(1e-30f, 7), greedy);
  std::set<std::vector<uint32_t>> drawn;
  for (uint64_t seed = 0; seed < 8; ++seed) drawn.insert(generate(3.0f, seed));
  EXPECT_THAT(drawn, SizeIs(8));
  EXPECT_EQ(generate(3.0f, 5), generate(3.0f, 5));
  EXPECT_NE(generate(3.0f, 1), generate(3.0f, uint64_t{1} << 32 | 1));
}

// ---- prefix reuse ----

TEST_P(DecodeEngineTest, RowOverBlocksOfAnotherGoesOnLikeTheOriginal) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(8, 23);
  const SamplingParams sampling{.temperature = 1.2f, .seed = 77};
  constexpr uint32_t kShared = 20;  // five blocks
  driver.Start({.row = 1, .prompt = prompt, .sampling = sampling, .chunks = {kShared, 3}}, 9);
  driver.ContinueAll(8);
  const std::vector<Token> original = driver.tokens(1);
  const std::vector<uint32_t>& blocks = driver.blocks(1);
  const auto go_on = [&](uint32_t row, std::vector<uint32_t> table) {
    driver.Step({.add = {{.row = row,
                          .blocks = std::move(table),
                          .context_length = kShared,
                          .sampling = sampling}},
                 .chunks = {{.row = row, .tokens = {prompt.begin() + kShared, prompt.end()}}}});
    for (int i = 0; i < 8; ++i) driver.Step({.continue_rows = {row}});
    return driver.tokens(row);
  };
  // Beside the original, which stays resident: shares its full blocks, has its own from there on.
  const std::vector<uint32_t> own = driver.AllocateFor(20), more = driver.AllocateFor(20);
  const auto table_of = [&](const std::vector<uint32_t>& rest) {
    std::vector<uint32_t> table(blocks.begin(), blocks.begin() + kShared / 4);
    table.insert(table.end(), rest.begin(), rest.end());
    return table;
  };
  EXPECT_EQ(go_on(2, table_of(own)), original);
  EXPECT_EQ(go_on(3, table_of(more)), original);
  // A shared block stays until the last row that names it is gone.
  driver.Step({.drop = {1, 3}});
  EXPECT_THAT(tiny.engine->FreeBlocks(driver.session().id, std::span(blocks).first(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "resident row"));
  driver.Step({.drop = {2}});
  // In the original's own blocks, whose tail it writes again.
  EXPECT_EQ(go_on(4, blocks), original);
}

TEST_P(DecodeEngineTest, PrefixMayEndInsideABlockThatNoOtherRowNames) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(8, 11);
  driver.Start({.row = 1, .prompt = prompt, .chunks = {9, 2}}, 4);
  driver.ContinueAll(3);
  const std::vector<Token> original = driver.tokens(1);
  const std::vector<uint32_t> blocks = driver.blocks(1);
  driver.Step({.drop = {1}});
  driver.Step({.add = {{.row = 2, .blocks = blocks, .context_length = 9}},
               .chunks = {{.row = 2, .tokens = {prompt[9], prompt[10]}}}});
  driver.ContinueAll(3);
  EXPECT_EQ(driver.tokens(2), original);
}

// ---- sessions and blocks ----

TEST_P(DecodeEngineTest, BlocksAreHeldBySessionsAndComeBackWhenTheyClose) {
  const TestEngine tiny = MakeEngine();
  DecodeEngine& engine = *tiny.engine;
  const PoolInfo before = engine.pool();
  EXPECT_EQ(before.block_size, 4u);
  EXPECT_EQ(before.free_blocks, before.num_blocks - 1);
  const SessionInfo session = engine.OpenSession();
  ASSERT_OK_AND_ASSIGN(const std::vector<uint32_t> blocks, engine.AllocateBlocks(session.id, 10));
  EXPECT_EQ(std::set<uint32_t>(blocks.begin(), blocks.end()).size(), 10u);
  EXPECT_THAT(blocks, ::testing::Each(
                          ::testing::AllOf(::testing::Ge(1u), ::testing::Lt(before.num_blocks))));
  EXPECT_EQ(engine.pool().free_blocks, before.free_blocks - 10);
  ASSERT_OK(engine.FreeBlocks(session.id, std::span(blocks).first(4)));
  EXPECT_EQ(engine.pool().free_blocks, before.free_blocks - 6);
  EXPECT_OK(engine.CloseSession(session.id));
  EXPECT_EQ(engine.pool().free_blocks, before.free_blocks);
  EXPECT_THAT(engine.CloseSession(session.id), StatusIs(kNotFound, "session"));
  EXPECT_THAT(engine.AllocateBlocks(session.id, 1), StatusIs(kNotFound, "session"));
  EXPECT_THAT(engine.FreeBlocks(session.id, blocks), StatusIs(kNotFound, "session"));
  EXPECT_NE(engine.OpenSession().id, session.id);
}

TEST_P(DecodeEngineTest, ClosingASessionDropsItsRowsAlone) {
  const TestEngine tiny = MakeEngine();
  const uint32_t free_blocks = tiny.engine->pool().free_blocks;
  EngineDriver stays(*tiny.engine);
  const std::vector<Token> expected = stays.Generate({.row = 1, .prompt = RandomPrompt(5, 7)}, 6);
  stays.Start({.row = 2, .prompt = RandomPrompt(5, 7)}, 6);
  {
    EngineDriver goes(*tiny.engine);
    for (uint32_t row = 0; row < 7; ++row) goes.Start({.row = row, .prompt = {row, 3, 4}}, 3);
    goes.ContinueAll(2);
  }
  stays.ContinueAll(5);
  EXPECT_EQ(stays.tokens(2), expected);
  stays.Drop(2);
  EXPECT_EQ(tiny.engine->pool().free_blocks, free_blocks);
  // Every slot is free again.
  EngineDriver next(*tiny.engine);
  for (uint32_t row = 0; row < 8; ++row) next.Start({.row = row, .prompt = {row, 3, 4}}, 3);
  EXPECT_THAT(next.Step({.continue_all = true}).rows, SizeIs(8));
}

// ---- engines ----

TEST_P(DecodeEngineTest, TwoEnginesOnOneDeviceDoNotMeet) {
  const auto options = Options();
  TestEngine first = MakeTestEngine(options);
  auto second_options = options;
  second_options.model.seed = 2;
  second_options.engine.block_size = 3;
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel(second_options.model, directory.path()));
  second_options.engine.dtype = options.dtype;
  ASSERT_OK_AND_ASSIGN(
      const auto second,
      DecodeEngine::Create(*first.device, {.directory = directory.path()}, second_options.engine));
  const TestEngine second_alone = MakeTestEngine(second_options);
  const TestEngine first_alone = MakeTestEngine(options);
  const RowScript script = MakeRowScript({.num_steps = 30, .seed = 3});
  auto second_script = MakeRowScript({.num_steps = 30, .block_size = 3, .seed = 4});
  RowScriptPlayer one(*first.engine, script), two(*second, second_script);
  // Both always have a step in flight.
  StepTicket ticket_one = one.Submit(), ticket_two = two.Submit();
  while (!one.AllSubmitted()) {
    const StepTicket next_one = one.Submit(), next_two = two.Submit();
    one.Wait(ticket_one);
    two.Wait(ticket_two);
    ticket_one = next_one;
    ticket_two = next_two;
  }
  one.Wait(ticket_one);
  two.Wait(ticket_two);
  RowScriptPlayer one_alone(*first_alone.engine, script);
  RowScriptPlayer two_alone(*second_alone.engine, second_script);
  one_alone.Play(1);
  two_alone.Play(1);
  EXPECT_EQ(one.tokens(), one_alone.tokens());
  EXPECT_EQ(two.tokens(), two_alone.tokens());
}

TEST(DecodeEngineOnHost, TokensDoNotDependOnTheNumberOfThreads) {
  const RowScript script = MakeRowScript({.num_steps = 30, .seed = 21});
  std::vector<std::vector<Token>> expected;
  for (const int threads : {1, 2, 5}) {
    const TestEngine tiny = MakeTestEngine({.device = {.host_threads = threads}});
    EXPECT_EQ(tiny.engine->info().device.num_multiprocessors, threads);
    RowScriptPlayer player(*tiny.engine, script);
    player.Play(2);
    if (expected.empty()) expected = player.tokens();
    EXPECT_EQ(player.tokens(), expected) << threads;
  }
}

TEST_P(DecodeEngineTest, PortableLinearsServeTheSameModel) {
  auto options = Options();
  const TestEngine tuned = MakeTestEngine(options);
  options.engine.linear = LinearPolicy::kPortable;
  const TestEngine portable = MakeTestEngine(options);
  EXPECT_NE(tuned.engine->info().linear, LinearPolicy::kTuned);
  EXPECT_NE(tuned.engine->info().linear, LinearPolicy::kPortable);
  EXPECT_EQ(portable.engine->info().linear, LinearPolicy::kPortable);
  EngineDriver one(*tuned.engine), two(*portable.engine);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    // The first token of a prompt: the two may round differently, and part ways later.
    const Token a = one.Generate({.row = 1, .prompt = RandomPrompt(seed, 9)}, 1)[0];
    const Token b = two.Generate({.row = 1, .prompt = RandomPrompt(seed, 9)}, 1)[0];
    EXPECT_NEAR(a.logprob(), b.logprob(), options.dtype == runtime::DType::kF32 ? 1e-4 : 0.15);
  }
}

}  // namespace
}  // namespace reprise::engine
