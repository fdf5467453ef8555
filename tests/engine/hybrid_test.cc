// SPDX-License-Identifier: Apache-2.0
// Models whose rows carry state beside their KV: numbers through the whole step program against the
// oracle in double, what an engine says of the state, and what it refuses because state is made by
// a row's own tokens alone. That a row's bits are its own there, also in a slot that another row
// had, is models_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_preview.h"
#include "engine/step_draft.h"
#include "models/config/hf_config.h"
#include "tests/engine/logits_comparison.h"
#include "tests/testing/decoder_oracle.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_probe.h"
#include "tests/testing/tiny_model.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::runtime::MatrixUnit;
using ::reprise::testing::DecoderOracle;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::Logits;
using ::reprise::testing::LogitsComparison;
using ::reprise::testing::LogitsTolerance;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepProbe;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::TinyModelOptions;

constexpr absl::StatusCode kRefused = absl::StatusCode::kFailedPrecondition;

class HybridLogitsTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    auto device = testing::MakeTestDevice(GetParam());
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    device_ = *std::move(device);
  }

  std::unique_ptr<runtime::Device> device_;
  testing::TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(EveryDevice, HybridLogitsTest,
                         ::testing::Values(KernelTestParam{DeviceKind::kHost, DType::kF32},
                                           KernelTestParam{DeviceKind::kHost, DType::kBf16},
                                           KernelTestParam{DeviceKind::kHost, DType::kF16},
                                           KernelTestParam{DeviceKind::kCuda, DType::kF32},
                                           KernelTestParam{DeviceKind::kCuda, DType::kBf16},
                                           KernelTestParam{DeviceKind::kCuda, DType::kF16}),
                         testing::NameOfParam);
#if REPRISE_WITH_EMULATOR
INSTANTIATE_TEST_SUITE_P(
    Emulated, HybridLogitsTest,
    ::testing::Values(KernelTestParam{.dtype = DType::kBf16, .emulated = MatrixUnit::kMma},
                      KernelTestParam{.dtype = DType::kBf16, .emulated = MatrixUnit::kMfma},
                      KernelTestParam{.dtype = DType::kBf16, .emulated = MatrixUnit::kWmma}),
    testing::NameOfParam);
#endif

// An MLP alone; and one beside experts, all of which count: a choice between two that are nearly
// alike may fall otherwise in bf16. The second has two layers of each kind.
std::vector<TinyModelOptions> Models() {
  return {{.architecture = "granitemoehybrid", .num_layers = 2, .num_experts = 0},
          {.architecture = "granitemoehybrid",
           .num_layers = 4,
           .num_experts = 2,
           .experts_per_token = 2}};
}

TEST_P(HybridLogitsTest, MatchTheOracle) {
  // A prompt in two chunks and decoded tokens; a row that begins with one token; a short prompt.
  const std::vector<std::vector<uint32_t>> rows = {RandomPrompt(1, 29), RandomPrompt(2, 9),
                                                   RandomPrompt(3, 11)};
  const std::vector<std::vector<size_t>> chunks = {{13, 10}, {1}, {7}};
  for (TinyModelOptions model : Models()) {
    SCOPED_TRACE(model.num_experts);
    model.dtype = GetParam().dtype;  // of the weights: nothing is rounded on the way in
    ASSERT_OK_AND_ASSIGN(
        const std::string path,
        WriteTinyModel(model, directory_.path() + "/" + std::to_string(model.num_experts)));
    ASSERT_OK_AND_ASSIGN(const auto oracle, DecoderOracle::Open(path));
    ASSERT_OK_AND_ASSIGN(const auto probe, StepProbe::Create(*device_, {.directory = path,
                                                                        .dtype = GetParam().dtype,
                                                                        .max_context_length = 64}));
    std::vector<Logits> want;
    for (const auto& row : rows) want.push_back(oracle->Logits(row));
    // What came long before counts, or carried state could not be told from none.
    const Logits later = oracle->Logits({rows[0].begin() + 8, rows[0].end()});
    LogitsComparison apart, all;
    for (size_t i = 3; i < later.size(); ++i) apart.Add(later[i], want[0][i + 8]);
    EXPECT_GT(apart.relative(), 2 * LogitsTolerance(DType::kBf16));

    std::vector<size_t> done(rows.size(), 0);
    for (size_t step = 0;; ++step) {
      std::vector<testing::StepDraft::Chunk> parts;
      std::vector<const std::vector<float>*> expected;
      for (uint32_t r = 0; r < rows.size(); ++r) {
        const size_t count = step < chunks[r].size() ? chunks[r][step] : 1;
        const size_t end = std::min(done[r] + count, rows[r].size());
        if (end == done[r]) continue;
        const auto begin = rows[r].begin();
        parts.push_back({.row = r,
                         .tokens = {begin + static_cast<ptrdiff_t>(done[r]),
                                    begin + static_cast<ptrdiff_t>(end)}});
        expected.push_back(&want[r][end - 1]);
        done[r] = end;
      }
      if (parts.empty()) break;
      ASSERT_OK_AND_ASSIGN(const Logits got, probe->Run(parts));
      for (size_t i = 0; i < got.size(); ++i) all.Add(got[i], *expected[i]);
    }
    EXPECT_EQ(all.num_rows(), 8 + 9 + 5);
    EXPECT_LT(all.relative(), LogitsTolerance(GetParam().dtype));
  }
}

class HybridEngineTest : public testing::EngineTest {
 protected:
  TestEngineOptions HybridOptions(int64_t num_experts = 0) const {
    TestEngineOptions options = Options();
    options.model.architecture = "granitemoehybrid";
    options.model.num_layers = 4;
    options.model.num_experts = num_experts;
    return options;
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(HybridEngineTest);

// Two Mamba layers of 4 heads of 16, 2 groups and a state of 12 each: 112 channels of 3 inputs, and
// 64 x 12 numbers.
TEST_P(HybridEngineTest, SaysWhatARowCarriesAndCountsItExactly) {
  TestEngineOptions options = HybridOptions();
  const uint64_t element = runtime::SizeOf(GetParam().dtype);
  const uint64_t of_row = 2 * (3 * 112 * element + 64 * 12 * sizeof(float));
  const TestEngine tiny = MakeTestEngine(options);
  const EngineInfo& info = tiny.engine->info();
  EXPECT_EQ(info.limits.row_state_bytes, of_row);
  // Attention's layers alone have KV.
  EXPECT_EQ(info.kv.num_layers, 2u);
  EXPECT_EQ(info.model.num_layers, 4);

  options.engine.max_rows *= 2;
  const uint64_t before = info.memory.workspace_bytes;
  const TestEngine larger = MakeTestEngine(options);
  TestEngineOptions plain = options;
  plain.model.architecture = "granite";
  const TestEngine without = MakeTestEngine(plain);
  EXPECT_EQ(without.engine->info().limits.row_state_bytes, 0u);
  EXPECT_GE(larger.engine->info().memory.workspace_bytes - before,
            of_row * options.engine.max_rows / 2);
}

TEST_P(HybridEngineTest, RefusesContextThatARowsOwnTokensDidNotBring) {
  const TestEngine tiny = MakeTestEngine(HybridOptions());
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 20);
  driver.Start({.row = 1, .prompt = prompt}, 10);
  const std::vector<uint32_t> blocks = driver.blocks(1);
  driver.Step({.drop = {1}});
  // The KV is there, and the state is not.
  EXPECT_THAT(driver
                  .TryStep({.add = {{.row = 2, .blocks = blocks, .context_length = 20}},
                            .chunks = {{.row = 2, .tokens = {5}}}})
                  .status(),
              StatusIs(kRefused,
                       "row 2: context_length is 20; allowed: 0, or with fork_of or "
                       "swapped_state, because rows of this model carry state beside their KV"));
  // Alone, where bad rows are: the other one runs.
  const std::vector<uint32_t> fresh = driver.Allocate(2);
  ASSERT_OK_AND_ASSIGN(
      const StepResult result,
      driver.TryStep(
          {.add = {{.row = 3, .blocks = blocks, .context_length = 20}, {.row = 4, .blocks = fresh}},
           .chunks = {{.row = 3, .tokens = {5}}, {.row = 4, .tokens = {5}}},
           .isolate_bad_rows = true}));
  ASSERT_EQ(result.refused_rows.size(), 1u);
  EXPECT_EQ(result.refused_rows[0].row, 3u);
  EXPECT_EQ(result.rows.size(), 1u);
}

// The blocks of a fork of a row with so many tokens: whole ones are shared, and where the row is in
// the middle of one, the fork goes on in a copy of it. `own`: blocks of the fork's.
struct ForkBlocks {
  std::vector<uint32_t> table;
  std::vector<BlockCopy> copies = {};
};
ForkBlocks BlocksOfFork(std::span<const uint32_t> parent, std::span<const uint32_t> own,
                        uint32_t context, uint32_t block_size) {
  const uint32_t shared = context / block_size;
  ForkBlocks fork{.table = {parent.begin(), parent.begin() + shared}};
  fork.table.insert(fork.table.end(), own.begin(), own.end());
  if (context % block_size != 0)
    fork.copies.push_back({.source = parent[shared], .destination = own[0]});
  return fork;
}

// Forks, and forks of forks, at different lengths and into slots that others had: each samples what
// the row would alone, and so does the row itself.
TEST_P(HybridEngineTest, AForkGoesOnFromTheStateOfItsRow) {
  TestEngineOptions options = HybridOptions();
  options.engine.max_rows = 4;
  options.engine.decode_buckets = {};
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 18);
  const auto alone = driver.Generate({.row = 9, .prompt = prompt}, 20);
  // Every slot has had a row with state of its own.
  for (const uint32_t row : {5u, 6u, 7u, 8u})
    driver.Start({.row = row, .prompt = RandomPrompt(row, 9)}, 3);
  for (const uint32_t row : {5u, 6u, 7u, 8u}) driver.Drop(row);

  driver.Start({.row = 1, .prompt = prompt}, 24);
  std::vector<std::vector<uint32_t>> tables = {driver.blocks(1)};
  for (uint32_t fork = 2; fork <= 4; ++fork) {
    driver.ContinueAll(3);
    const size_t sampled = driver.tokens(1).size();
    const auto context = static_cast<uint32_t>(prompt.size() + sampled - 1);
    const std::vector<uint32_t> own = driver.Allocate(8);
    const ForkBlocks blocks = BlocksOfFork(tables.back(), own, context, options.engine.block_size);
    // Those that are there run in the same step.
    testing::StepDraft step = {.add = {{.row = fork,
                                        .blocks = blocks.table,
                                        .context_length = context,
                                        .fork_of = fork - 1}},
                               .chunks = {{.row = fork, .tokens = {alone[sampled - 1].id}}},
                               .copies = blocks.copies};
    for (uint32_t row = 1; row < fork; ++row) step.continue_rows.push_back(row);
    driver.Step(step);
    tables.push_back(blocks.table);
    for (uint32_t row = 1; row <= fork; ++row)
      EXPECT_EQ(driver.tokens(row).back(), alone[sampled]) << row << " of " << fork;
  }
  driver.ContinueAll(4);
  for (uint32_t row = 1; row <= 4; ++row)
    EXPECT_EQ(driver.tokens(row).back(), alone[driver.tokens(1).size() - 1]) << row;
}

TEST_P(HybridEngineTest, RefusesForksOfRowsThatAreElsewhere) {
  const TestEngine tiny = MakeTestEngine(HybridOptions());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(4, 16)}, 10);
  const std::vector<uint32_t> blocks = driver.blocks(1);
  const auto try_fork = [&](uint32_t of, uint32_t context, std::vector<uint32_t> drop = {}) {
    return driver
        .TryStep({.drop = std::move(drop),
                  .add = {{.row = 2, .blocks = blocks, .context_length = context, .fork_of = of}}})
        .status();
  };
  EXPECT_THAT(try_fork(9, 16),
              StatusIs(absl::StatusCode::kNotFound, "row 2: fork_of is 9, which is not resident"));
  EXPECT_THAT(try_fork(1, 16, {1}),
              StatusIs(absl::StatusCode::kNotFound, "row 2: fork_of is 1, which is not resident"));
  EXPECT_THAT(try_fork(2, 16),
              StatusIs(absl::StatusCode::kNotFound, "row 2: fork_of is 2, which is not resident"));
  EXPECT_THAT(try_fork(1, 15),
              StatusIs(kRefused,
                       "row 2: fork_of is 1, which has 16 tokens of context; allowed: a row with "
                       "15, context_length"));
  EXPECT_THAT(try_fork(1, 0), StatusIs(kRefused, "row 2: fork_of is set; allowed: with context"));
  const StepTicket ticket = driver.Submit({.continue_rows = {1}});
  EXPECT_THAT(try_fork(1, 17), StatusIs(kRefused, "requests in flight"));
  driver.Wait(ticket);
  // A session sees its own rows alone.
  EngineDriver stranger(*tiny.engine);
  EXPECT_THAT(stranger
                  .TryStep({.add = {{.row = 2,
                                     .blocks = stranger.Allocate(5),
                                     .context_length = 17,
                                     .fork_of = 1}}})
                  .status(),
              StatusIs(absl::StatusCode::kNotFound, "fork_of is 1, which is not resident"));

  TestEngineOptions plain = Options();
  const TestEngine without = MakeTestEngine(plain);
  EngineDriver other(*without.engine);
  other.Start({.row = 1, .prompt = RandomPrompt(4, 16)}, 10);
  EXPECT_THAT(
      other
          .TryStep(
              {.add = {{.row = 2, .blocks = other.blocks(1), .context_length = 16, .fork_of = 1}}})
          .status(),
      StatusIs(kRefused,
               "row 2: fork_of is set; allowed: not, because rows of this model carry "
               "nothing beside their KV"));
  EXPECT_THAT(without.engine->SwapOutState(other.session().id, 1).status(),
              StatusIs(kRefused, "got a model whose rows carry nothing beside their KV"));
}

// A row that is preempted: its state and its blocks leave, others have its slot and its blocks, and
// it comes back with the tokens that it would have had.
TEST_P(HybridEngineTest, ASwappedRowGoesOnWithItsState) {
  TestEngineOptions options = HybridOptions();
  options.engine.max_rows = 2;
  options.engine.decode_buckets = {};
  options.engine.swap_bytes = 1 << 20;
  const TestEngine tiny = MakeTestEngine(options);
  DecodeEngine& engine = *tiny.engine;
  const PoolInfo start = engine.pool();
  EXPECT_GT(start.swap_states, 1u);
  EXPECT_GT(start.swap_blocks, 1u);
  EXPECT_LE(engine.info().memory.swap_bytes, options.engine.swap_bytes);
  EngineDriver driver(engine);
  const SessionId session = driver.session().id;
  const std::vector<uint32_t> prompt = RandomPrompt(4, 18);
  const auto alone = driver.Generate({.row = 9, .prompt = prompt}, 12);

  driver.Start({.row = 1, .prompt = prompt}, 12);
  driver.ContinueAll(4);
  const auto context = static_cast<uint32_t>(prompt.size() + 4);
  ASSERT_OK_AND_ASSIGN(const SwappedState state, engine.SwapOutState(session, 1));
  EXPECT_EQ(state.context_length, context);
  EXPECT_EQ(engine.pool().free_swap_states, start.swap_states - 1);
  driver.Step({.drop = {1}});
  ASSERT_OK_AND_ASSIGN(const auto swapped, engine.SwapOut(session, driver.blocks(1)));
  EXPECT_EQ(engine.session_use(session)->num_swapped, swapped.size() + 1);
  for (const uint32_t row : {5u, 6u}) driver.Start({.row = row, .prompt = RandomPrompt(row, 9)}, 3);
  for (const uint32_t row : {5u, 6u}) driver.Drop(row);

  ASSERT_OK_AND_ASSIGN(const auto blocks, engine.SwapIn(session, swapped));
  const auto again = [&](uint32_t tokens, std::optional<uint32_t> place) {
    return testing::StepDraft{
        .add = {{.row = 1, .blocks = blocks, .context_length = tokens, .swapped_state = place}},
        .chunks = {{.row = 1, .tokens = {alone[4].id}}}};
  };
  EXPECT_THAT(driver.TryStep(again(context - 1, state.place)).status(),
              StatusIs(kRefused, "of a row with 22 tokens of context; allowed: of one with 21"));
  EXPECT_THAT(driver.TryStep(again(context, start.swap_states)).status(),
              StatusIs(absl::StatusCode::kOutOfRange, "swapped state"));
  EngineDriver stranger(engine);
  EXPECT_THAT(stranger
                  .TryStep({.add = {{.row = 1,
                                     .blocks = stranger.Allocate(6),
                                     .context_length = context,
                                     .swapped_state = state.place}}})
                  .status(),
              StatusIs(absl::StatusCode::kPermissionDenied, "swapped state"));
  driver.Step(again(context, state.place));
  EXPECT_EQ(engine.pool().free_swap_states, start.swap_states);
  EXPECT_EQ(engine.session_use(session)->num_swapped, 0u);
  driver.ContinueAll(6);
  EXPECT_EQ(driver.tokens(1), alone);
}

TEST_P(HybridEngineTest, SwapSpaceForStatesIsBoundedAndForgotten) {
  TestEngineOptions options = HybridOptions();
  options.engine.swap_bytes = 64 << 10;
  const TestEngine tiny = MakeTestEngine(options);
  DecodeEngine& engine = *tiny.engine;
  const uint32_t places = engine.pool().swap_states;
  const SessionInfo other = engine.OpenSession();
  {
    EngineDriver driver(engine);
    const SessionId session = driver.session().id;
    driver.Start({.row = 1, .prompt = RandomPrompt(4, 16)}, 20);
    std::vector<uint32_t> states;
    for (uint32_t i = 0; i < places; ++i) {
      driver.ContinueAll(1);
      ASSERT_OK_AND_ASSIGN(const SwappedState state, engine.SwapOutState(session, 1));
      states.push_back(state.place);
    }
    driver.ContinueAll(1);
    EXPECT_THAT(engine.SwapOutState(session, 1).status(),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         "asked for swap space for states for 1 rows; it has room for 0"));
    EXPECT_THAT(engine.SwapOutState(session, 2).status(),
                StatusIs(absl::StatusCode::kNotFound, "row 2 is not resident"));
    EXPECT_THAT(engine.SwapOutState(other.id, 1).status(),
                StatusIs(absl::StatusCode::kNotFound, "row 1 is not resident"));
    EXPECT_THAT(engine.FreeSwapped(other.id, {}, states).code(),
                absl::StatusCode::kPermissionDenied);
    EXPECT_OK(engine.FreeSwapped(session, {}, std::span(states).first(1)));
    EXPECT_EQ(engine.pool().free_swap_states, 1u);
    EXPECT_OK(engine.SwapOutState(session, 1).status());
  }
  EXPECT_EQ(engine.pool().free_swap_states, places);
  // Too little for one row's state.
  options.engine.swap_bytes = 1 << 10;
  models::ModelSource source;
  source.directory = tiny.directory->path();
  EXPECT_THAT(
      DecodeEngine::Create(*tiny.device, source, options.engine).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "swap_bytes: got 1024, half of it for 0"));
}

// However often it is asked for: each copy costs other sessions' steps time, and a row pays for it
// with a step of its own.
TEST_P(HybridEngineTest, ARowHasOneCopyUntilItRuns) {
  TestEngineOptions options = HybridOptions();
  options.engine.swap_bytes = 1 << 20;
  const TestEngine tiny = MakeTestEngine(options);
  DecodeEngine& engine = *tiny.engine;
  EngineDriver driver(engine);
  const SessionId session = driver.session().id;
  for (const uint32_t row : {1u, 2u}) driver.Start({.row = row, .prompt = RandomPrompt(row, 9)}, 9);
  ASSERT_OK_AND_ASSIGN(const SwappedState first, engine.SwapOutState(session, 1));
  ASSERT_OK_AND_ASSIGN(const SwappedState again, engine.SwapOutState(session, 1));
  EXPECT_EQ(again.place, first.place);
  EXPECT_EQ(engine.session_use(session)->num_swapped, 1u);
  ASSERT_OK(engine.FreeSwapped(session, {}, std::vector<uint32_t>{first.place}));
  const auto refused = [&] {
    EXPECT_THAT(engine.SwapOutState(session, 1).status(),
                StatusIs(kRefused,
                         "row 1: its state was copied since it last ran, and the copy is not there "
                         "any more; allowed: once more behind a step of the row"));
  };
  refused();
  // Nor is the other row's, which is in its place now.
  ASSERT_OK_AND_ASSIGN(const SwappedState other, engine.SwapOutState(session, 2));
  EXPECT_EQ(other.place, first.place);
  refused();
  driver.Step({.continue_rows = {1}});
  EXPECT_OK(engine.SwapOutState(session, 1).status());
}

TEST_P(HybridEngineTest, AStateGoesToOneRow) {
  TestEngineOptions options = HybridOptions();
  options.engine.swap_bytes = 1 << 20;
  options.engine.pipeline_depth = 2;
  const TestEngine tiny = MakeTestEngine(options);
  DecodeEngine& engine = *tiny.engine;
  EngineDriver driver(engine);
  const SessionId session = driver.session().id;
  driver.Start({.row = 1, .prompt = RandomPrompt(4, 16)}, 9);
  ASSERT_OK_AND_ASSIGN(const SwappedState state, engine.SwapOutState(session, 1));
  const std::vector<uint32_t>& blocks = driver.blocks(1);
  const std::span shared = std::span(blocks).first(16 / options.engine.block_size);
  const auto add = [&](uint32_t row, uint32_t context) {
    testing::StepDraft::Add add{.row = row, .blocks = {shared.begin(), shared.end()}};
    add.blocks.push_back(driver.Allocate(1)[0]);
    add.context_length = context;
    add.swapped_state = state.place;
    return add;
  };
  const testing::StepDraft::Chunk chunks[] = {{.row = 2, .tokens = {5}}, {.row = 3, .tokens = {5}}};
  testing::StepDraft both = {.add = {add(2, 16), add(3, 16)}, .chunks = {chunks[0], chunks[1]}};
  EXPECT_THAT(driver.TryStep(both).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "swapped_state: 0 is named twice, by rows 2 and 3; allowed: once"));
  both.add[0].fork_of = 1;
  EXPECT_THAT(driver.TryStep(both).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "row 2: fork_of and swapped_state are both set; allowed: one of them"));
  both.add[0].fork_of.reset();
  // A row that is wrong by itself takes it from nobody.
  both.add[0].context_length = 15;
  both.isolate_bad_rows = true;
  ASSERT_OK_AND_ASSIGN(const StepResult result, driver.TryStep(both));
  ASSERT_EQ(result.refused_rows.size(), 1u);
  EXPECT_EQ(result.refused_rows[0].row, 2u);
  ASSERT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(result.rows[0].row, 3u);
  EXPECT_EQ(engine.session_use(session)->num_swapped, 0u);

  const StepTicket ticket = driver.Submit({.continue_rows = {3}});
  EXPECT_THAT(engine.SwapOutState(session, 3).status(),
              StatusIs(kRefused, "row 3 has steps in flight"));
  driver.Wait(ticket);
  driver.Step({.add = {{.row = 4, .blocks = driver.Allocate(1)}}});
  EXPECT_THAT(engine.SwapOutState(session, 4).status(), StatusIs(kRefused, "row 4 has no tokens"));
}

TEST_P(HybridEngineTest, ASessionsLimitCountsStatesToo) {
  TestEngineOptions options = HybridOptions();
  options.engine.swap_bytes = 1 << 20;
  const TestEngine tiny = MakeTestEngine(options);
  DecodeEngine& engine = *tiny.engine;
  const SessionInfo session = engine.OpenSession({.max_swapped = 1});
  ASSERT_OK_AND_ASSIGN(const auto blocks, engine.AllocateBlocks(session.id, 2));
  const testing::StepDraft draft = {
      .add = {{.row = 1, .blocks = {blocks[0]}}, {.row = 2, .blocks = {blocks[1]}}},
      .chunks = {{.row = 1, .tokens = {5}}, {.row = 2, .tokens = {6}}}};
  const DraftView view(draft, session, 1);
  StepResult result;
  ASSERT_OK(engine.Step(view.request(), &result));
  EXPECT_OK(engine.SwapOutState(session.id, 1).status());
  EXPECT_THAT(engine.SwapOutState(session.id, 2).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "asked for swap space for 1 states of rows; this session has 1 of the 1"));
}

// What a row does in a step that has not been waited for, it may stop in.
TEST_P(HybridEngineTest, RefusesForksOfRowsInFlight) {
  TestEngineOptions options = HybridOptions();
  options.engine.pipeline_depth = 2;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(4, 16)}, 10);
  const StepTicket ticket = driver.Submit({.continue_rows = {1}});
  const testing::StepDraft fork = {
      .add = {{.row = 2, .blocks = driver.blocks(1), .context_length = 17, .fork_of = 1}}};
  const DraftView view(fork, driver.session(), driver.sequence());
  EXPECT_THAT(tiny.engine->Submit(view.request()).status(),
              StatusIs(kRefused,
                       "row 2: fork_of is 1, which has steps in flight; allowed: once "
                       "their results were waited for"));
  driver.Wait(ticket);
  EXPECT_OK(driver.TryStep(fork).status());
}

TEST_P(HybridEngineTest, RefusesDraftsAndPrefixGroups) {
  TestEngineOptions options = HybridOptions();
  options.engine.max_draft_tokens = 8;
  options.engine.min_shared_tokens = 16;
  const TestEngine tiny = MakeTestEngine(options);
  EXPECT_EQ(tiny.engine->info().limits.max_draft_tokens, 0u);
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(4, 20)}, 10);
  EXPECT_THAT(
      driver.TryStep({.continue_rows = {1}, .drafts = {{.row = 1, .tokens = {3, 4}}}}).status(),
      StatusIs(kRefused,
               "draft: row 1 has 2 tokens; allowed: none, because rows of this model "
               "carry state"));
  EXPECT_THAT(
      driver
          .TryStep({.continue_rows = {1}, .prefixes = {{.group = 1, .num_blocks = 1, .rows = {1}}}})
          .status(),
      StatusIs(kRefused,
               "prefix: got 1 groups; allowed: none, because rows of this model "
               "carry state"));
  // Neither did anything.
  driver.ContinueAll(2);
  EXPECT_EQ(driver.tokens(1).size(), 3u);
}

// In a slot whose state was another row's: the same tokens. On the host, where attention has the
// same bits for a token in any chunk, in steps of several sizes too.
TEST_P(HybridEngineTest, ARowBeginsAnewInASlotThatAnotherHad) {
  TestEngineOptions options = HybridOptions(/*num_experts=*/6);
  options.engine.max_rows = 1;
  options.engine.decode_buckets = {};
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(4, 20);
  const auto first = driver.Generate({.row = 1, .prompt = prompt}, 8);
  const auto other = driver.Generate({.row = 2, .prompt = RandomPrompt(5, 20)}, 8);
  EXPECT_NE(first, other);
  std::vector<std::vector<uint32_t>> cuts = {{20}};
  if (GetParam().device == DeviceKind::kHost) cuts = {{20}, {1, 19}, {7, 12, 1}};
  for (const std::vector<uint32_t>& chunks : cuts)
    EXPECT_EQ(driver.Generate({.row = 3, .prompt = prompt, .chunks = chunks}, 8), first);
}

TEST_P(HybridEngineTest, SeveralStepsOfARequestCarryState) {
  TestEngineOptions options = HybridOptions();
  options.engine.max_steps_per_request = 4;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(6, 15);
  const auto expected = driver.Generate({.row = 1, .prompt = prompt}, 9);
  driver.Start({.row = 2, .prompt = prompt}, 9);
  for (int i = 0; i < 2; ++i) driver.Step({.continue_all = true, .num_steps = 4});
  EXPECT_EQ(driver.tokens(2), expected);
}

TEST_P(HybridEngineTest, APreviewSaysTheSame) {
  const TestEngineOptions options = HybridOptions(6);
  const testing::TemporaryDirectory directory;
  ASSERT_OK(WriteTinyModel(options.model, directory.path()));
  ASSERT_OK_AND_ASSIGN(const models::ModelSpec spec, models::ReadHfConfig(directory.path()));
  const TestEngine tiny = MakeTestEngine(options);
  DecodeEngineOptions asked = options.engine;
  asked.dtype = options.dtype;
  ASSERT_OK_AND_ASSIGN(const EnginePreview preview, PreviewEngine(*tiny.device, spec, asked));
  EXPECT_EQ(preview.state_bytes_per_row, tiny.engine->info().limits.row_state_bytes);
  std::vector<std::string> ops;
  for (const LayerKernel& kernel : preview.kernels) ops.push_back(kernel.op);
  EXPECT_THAT(ops, ::testing::IsSupersetOf({"mamba_conv", "mamba_scan", "mamba_norm"}));
}

}  // namespace
}  // namespace reprise::engine
