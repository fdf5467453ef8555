// SPDX-License-Identifier: Apache-2.0
// What one session leaves in KV blocks, no other session can have: claims of contexts that a
// session has not written are refused, and blocks are cleared when they change hands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/row_script.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;

using ::reprise::testing::kPrecondition;

class RemanenceTest : public testing::EngineTest {
 protected:
  // Accepts claims of any context, so that a test can look into a block.
  TestEngine MakeTrustingEngine() const {
    auto options = Options();
    options.diagnostics.any_context = true;
    return MakeTestEngine(options);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(RemanenceTest);

// A row of eight tokens and where they lie.
std::vector<uint32_t> WriteEight(EngineDriver& driver) {
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 8)}, 4);
  std::vector<uint32_t> blocks = driver.blocks(1);
  driver.Step({.drop = {1}});
  return blocks;
}

// What a row says that claims the first eight tokens of the blocks.
std::vector<Token> GoOn(EngineDriver& driver, const std::vector<uint32_t>& blocks) {
  driver.Step({.add = {{.row = 2, .blocks = blocks, .context_length = 8}},
               .chunks = {{.row = 2, .tokens = {7}}}});
  driver.ContinueAll(2);
  const std::vector<Token>& said = driver.tokens(2);
  driver.Step({.drop = {2}});
  return {said.end() - 3, said.end()};
}

TEST_P(RemanenceTest, ASessionCannotGoOnWhereAnotherLeftOff) {
  const TestEngine tiny = MakeTrustingEngine();
  std::vector<Token> own;
  std::vector<uint32_t> blocks;
  {
    EngineDriver first(*tiny.engine);
    blocks = WriteEight(first);
    own = GoOn(first, blocks);
  }
  EngineDriver second(*tiny.engine);
  // Another's blocks, in the order in which it had them.
  std::vector<uint32_t> given = second.Allocate(static_cast<uint32_t>(blocks.size()));
  ASSERT_THAT(given, ::testing::UnorderedElementsAreArray(blocks));
  EXPECT_NE(GoOn(second, blocks), own);
}

TEST_P(RemanenceTest, ClearedBlocksHoldZerosWhoeverWroteThem) {
  const TestEngine tiny = MakeTrustingEngine();
  std::vector<std::vector<Token>> said;
  for (const uint64_t seed : {1u, 2u}) {
    std::vector<uint32_t> blocks;
    {
      EngineDriver first(*tiny.engine);
      first.Start({.row = 1, .prompt = RandomPrompt(seed, 8)}, 4);
      blocks = first.blocks(1);
    }
    EngineDriver second(*tiny.engine);
    const std::vector<uint32_t> given = second.Allocate(static_cast<uint32_t>(blocks.size()));
    ASSERT_THAT(given, ::testing::UnorderedElementsAreArray(blocks));
    said.push_back(GoOn(second, blocks));
  }
  EXPECT_EQ(said[0], said[1]);
}

TEST_P(RemanenceTest, ASessionsOwnBlocksAreNotCleared) {
  const TestEngine tiny = MakeTrustingEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = WriteEight(driver);
  const std::vector<Token> own = GoOn(driver, blocks);
  driver.Free(blocks);
  const std::vector<uint32_t> again = driver.Allocate(static_cast<uint32_t>(blocks.size()));
  ASSERT_THAT(again, ::testing::UnorderedElementsAreArray(blocks));
  EXPECT_EQ(GoOn(driver, blocks), own);
}

TEST_P(RemanenceTest, AContextThatTheSessionHasNotWrittenIsRefused) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = WriteEight(driver);
  const auto claim = [&](std::vector<uint32_t> table, uint32_t context_length) {
    return driver
        .TryStep(
            {.add = {{.row = 9, .blocks = std::move(table), .context_length = context_length}}})
        .status();
  };
  const std::vector<uint32_t> fresh = driver.Allocate(2);
  EXPECT_THAT(claim({fresh[0]}, 1), StatusIs(kPrecondition, "has written 0"));
  EXPECT_THAT(claim({blocks[0], fresh[0]}, 5), StatusIs(kPrecondition, "has written 0"));
  EXPECT_THAT(claim({fresh[0], blocks[1]}, 8), StatusIs(kPrecondition, "has written 0"));
  // The row wrote its prompt alone: what was sampled last is not in the cache.
  EXPECT_THAT(claim(blocks, 9), StatusIs(kPrecondition, "counts on 1 tokens"));
  EXPECT_OK(claim(blocks, 8));
  driver.Step({.drop = {9}});
  // Freed and given again, a block holds nothing that may be claimed.
  driver.Free(blocks);
  const std::vector<uint32_t> again = driver.Allocate(static_cast<uint32_t>(blocks.size()));
  EXPECT_THAT(claim(again, 1), StatusIs(kPrecondition, "has written 0"));
}

// The steps that write a prefix may still be in flight when a row that reads it is added.
TEST_P(RemanenceTest, AContextOfAStepInFlightMayBeClaimed) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(12);
  const std::vector<uint32_t> prompt = RandomPrompt(1, 8);
  const StepTicket first =
      driver.Submit({.add = {{.row = 1, .blocks = blocks}},
                     .chunks = {{.row = 1, .tokens = prompt, .sample = false}}});
  const StepTicket second =
      driver.Submit({.drop = {1},
                     .add = {{.row = 2, .blocks = blocks, .context_length = 8}},
                     .chunks = {{.row = 2, .tokens = {7}}}});
  driver.Wait(first);
  driver.Wait(second);
  EngineDriver alone(*tiny.engine);
  std::vector<uint32_t> whole = prompt;
  whole.push_back(7);
  alone.Start({.row = 2, .prompt = whole, .chunks = {8, 1}}, 2);
  EXPECT_EQ(driver.tokens(2), alone.tokens(2));
}

}  // namespace
}  // namespace reprise::engine
