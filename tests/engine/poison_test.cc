// SPDX-License-Identifier: Apache-2.0
// Poison mode: what a step must never read is NaN. That changes no row's bits; and the NaN really
// is there, or the first test could not fail: a row that claims KV which nobody wrote reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "kernels/fill/fill_args.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/row_script.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::InstrumentedDevice;
using ::reprise::testing::InstrumentedEngine;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RecordedLaunch;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;

class PoisonTest : public testing::EngineTest {
 protected:
  testing::TestEngineOptions PoisonOptions() const {
    auto options = Options();
    options.diagnostics.poison = true;
    options.diagnostics.any_context = true;
    return options;
  }
};
REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(PoisonTest);

// The log-probability that a row over these blocks samples when it claims `context_length` tokens
// in them. Whatever token it is, it is an id of the vocabulary.
float LogprobOver(EngineDriver& driver, std::vector<uint32_t> blocks, uint32_t context_length) {
  constexpr uint32_t kRow = 900;
  const RowOutcome row = driver
                             .Step({.add = {{.row = kRow,
                                             .blocks = std::move(blocks),
                                             .context_length = context_length}},
                                    .chunks = {{.row = kRow, .tokens = {7}}}})
                             .rows.at(0);
  driver.Step({.drop = {kRow}});
  EXPECT_LT(row.token, 97u);
  return row.logprob;
}

TEST_P(PoisonTest, ChangesNoRowsBits) {
  for (const uint32_t block_size : {1u, 5u, 16u}) {
    const RowScript script =
        MakeRowScript({.num_steps = 60, .block_size = block_size, .seed = block_size});
    auto options = Options();
    options.engine.block_size = block_size;
    options.engine.kv_cache_bytes = uint64_t{2} << 20;
    const TestEngine plain = MakeTestEngine(options);
    options.diagnostics.poison = true;
    const TestEngine poisoned = MakeTestEngine(options);
    RowScriptPlayer expected(*plain.engine, script), got(*poisoned.engine, script);
    expected.Play(1);
    got.Play(2);
    EXPECT_EQ(got.tokens(), expected.tokens()) << "block size " << block_size;
    for (const std::vector<Token>& life : got.tokens())
      for (const Token& token : life) EXPECT_TRUE(std::isfinite(token.logprob()));
  }
}

TEST_P(PoisonTest, ChangesNoRowsBitsInEagerSteps) {
  const RowScript script = MakeRowScript({.num_steps = 30, .seed = 12});
  const TestEngine plain = MakeEngine();
  const TestEngine poisoned = MakeTestEngine(PoisonOptions());
  RowScriptPlayer expected(*plain.engine, script), got(*poisoned.engine, script);
  expected.Play(1);
  got.Play(1, ExecutionMode::kEager);
  EXPECT_EQ(got.tokens(), expected.tokens());
}

TEST_P(PoisonTest, FreeBlocksAreNan) {
  const TestEngine tiny = MakeTestEngine(PoisonOptions());
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.Allocate(tiny.engine->pool().free_blocks);
  for (size_t i = 0; i + 1 < blocks.size(); i += 37) {
    EXPECT_TRUE(std::isnan(LogprobOver(driver, {blocks[i], blocks[i + 1]}, 4))) << blocks[i];
    // Nothing is claimed: the row reads what it wrote itself.
    EXPECT_TRUE(std::isfinite(LogprobOver(driver, {blocks[i]}, 0))) << blocks[i];
  }
}

TEST_P(PoisonTest, FreedBlocksAreNanAgain) {
  const TestEngine tiny = MakeTestEngine(PoisonOptions());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 8)}, 1);
  std::vector<uint32_t> blocks = driver.blocks(1);
  driver.Step({.drop = {1}});
  blocks.push_back(driver.Allocate(1)[0]);
  EXPECT_TRUE(std::isfinite(LogprobOver(driver, blocks, 8)));
  driver.Free(blocks);
  blocks = driver.Allocate(3);  // the most recently freed come first
  EXPECT_TRUE(std::isnan(LogprobOver(driver, blocks, 4)));
  std::swap(blocks[0], blocks[1]);
  EXPECT_TRUE(std::isnan(LogprobOver(driver, blocks, 4)));
  driver.Free(blocks);

  std::vector<uint32_t> closed;
  {
    EngineDriver goes(*tiny.engine);
    goes.Start({.row = 1, .prompt = RandomPrompt(1, 8)}, 1);
    closed = goes.blocks(1);
  }
  blocks = driver.Allocate(3);
  EXPECT_THAT(blocks, ::testing::IsSupersetOf(closed));
  EXPECT_TRUE(std::isnan(LogprobOver(driver, blocks, 8)));
}

TEST_P(PoisonTest, SlotsBeyondTheContextInALiveBlockAreNan) {
  const TestEngine tiny = MakeTestEngine(PoisonOptions());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 5)}, 2);  // and one more: six slots of eight
  driver.ContinueAll(1);
  std::vector<uint32_t> blocks = driver.blocks(1);
  blocks.push_back(driver.Allocate(1)[0]);
  driver.Step({.drop = {1}});
  // Eight and seven before six, because a row writes the slot behind what it claims.
  EXPECT_TRUE(std::isnan(LogprobOver(driver, blocks, 8)));
  EXPECT_TRUE(std::isnan(LogprobOver(driver, blocks, 7)));
  EXPECT_TRUE(std::isfinite(LogprobOver(driver, blocks, 6)));
  EXPECT_TRUE(std::isfinite(LogprobOver(driver, blocks, 7)));
}

TEST_P(PoisonTest, NanOfOneRowReachesNoOther) {
  const TestEngine tiny = MakeTestEngine(PoisonOptions());
  EngineDriver driver(*tiny.engine);
  const testing::RowPlan plan{.row = 1,
                              .prompt = RandomPrompt(3, 21),
                              .sampling = {.temperature = 0.6f, .seed = 4},
                              .chunks = {10, 11}};
  const std::vector<Token> alone = driver.Generate(plan, 6);
  // Before it in the batch and behind it, as a chunk and as decode rows.
  for (const uint32_t row : {50u, 51u}) {
    driver.Step({.add = {{.row = row, .blocks = driver.Allocate(9), .context_length = 20}},
                 .chunks = {{.row = row, .tokens = {1, 2, 3}}}});
    EXPECT_TRUE(std::isnan(driver.tokens(row).back().logprob()));
    if (row == 50) driver.Start(plan, 6);
  }
  driver.ContinueAll(5);
  EXPECT_EQ((std::vector<Token>{driver.tokens(1).begin() + 6, driver.tokens(1).end()}), alone);
  EXPECT_TRUE(std::isnan(driver.tokens(50).back().logprob()));
  EXPECT_TRUE(std::isnan(driver.tokens(51).back().logprob()));
}

kernels::NanFillArgs FillOf(const RecordedLaunch& launch) {
  kernels::NanFillArgs args;
  EXPECT_EQ(launch.args.size(), sizeof(args));
  std::memcpy(&args, launch.args.data(), sizeof(args));
  return args;
}

// What no table can name is seen from the launches: the whole pool with the scratch block at the
// start, the activations before every step.
TEST_P(PoisonTest, ScratchBlockAndActivationsAreFilled) {
  const InstrumentedEngine tiny = MakeInstrumentedEngine(PoisonOptions());
  InstrumentedDevice& device = *tiny.instruments;
  const auto is_fill = [](const RecordedLaunch& launch) {
    return launch.kernel.find("nan_fill") != std::string::npos;
  };
  size_t bytes = 0;
  for (const RecordedLaunch& launch : device.TakeLaunches())
    if (is_fill(launch))
      bytes += static_cast<size_t>(FillOf(launch).count) * runtime::SizeOf(FillOf(launch).dtype);
  EXPECT_EQ(bytes, tiny.engine->pool().bytes);

  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {1, 2, 3}}, 5);
  device.TakeLaunches();
  for (int i = 0; i < 3; ++i) {
    driver.ContinueAll(1);
    const std::vector<RecordedLaunch> launches = device.TakeLaunches();
    ASSERT_EQ(launches.size(), 1u);
    ASSERT_TRUE(is_fill(launches[0]));
    // 64 tokens of residual, normed, branch (32 each), qkv (64), q and attention (32 each), gate_up
    // (96, none where the product takes pairs), activated (48), and eight rows of 32; regions may
    // be padded.
    const int gate_up = tiny.engine->info().linear == LinearPolicy::kPacked ? 0 : 96;
    EXPECT_GE(FillOf(launches[0]).count, 64 * (3 * 32 + 64 + 2 * 32 + gate_up + 48) + 8 * 32);
  }
}

}  // namespace
}  // namespace reprise::engine
