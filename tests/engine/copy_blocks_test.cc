// SPDX-License-Identifier: Apache-2.0
// Copies of KV blocks in a step: rows that fork say what they would say alone, and every copy that
// could change what a row reads is refused without a trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/joint.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;

using ::reprise::testing::kDenied;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

constexpr uint32_t kBlock = 4;  // tokens
constexpr uint32_t kParent = 1, kChild = 2;

class CopyBlocksTest : public testing::EngineTest {
 protected:
  TestEngine MakePoisonedEngine() const {
    auto options = Options();
    options.diagnostics.poison = true;
    return MakeTestEngine(options);
  }
};
REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(CopyBlocksTest);

// The tokens of a row that nothing is copied for, `count` of them. The prompt's last token runs by
// itself, as in a fork.
std::vector<Token> Alone(DecodeEngine& engine, std::vector<uint32_t> prompt, uint32_t count) {
  EngineDriver driver(engine);
  const auto length = static_cast<uint32_t>(prompt.size());
  return driver.Generate({.row = 9, .prompt = std::move(prompt), .chunks = {length - 1, 1}}, count);
}

// A row that has run `tokens` tokens of a prompt and sampled nothing. Returns its blocks.
std::vector<uint32_t> StartParent(EngineDriver& driver, const std::vector<uint32_t>& prompt) {
  const std::vector<uint32_t> blocks = driver.Allocate(6);
  driver.Step({.add = {{.row = kParent, .blocks = blocks}},
               .chunks = {{.row = kParent, .tokens = prompt, .sample = false}}});
  return blocks;
}

std::vector<uint32_t> With(std::vector<uint32_t> prompt, uint32_t token) {
  prompt.push_back(token);
  return prompt;
}

// Six tokens: one whole block that is shared, and half of one that is copied.
TEST_P(CopyBlocksTest, ARowThatForksInTheMiddleOfABlockSaysWhatItWouldAlone) {
  const TestEngine tiny = MakePoisonedEngine();
  const std::vector<uint32_t> prompt = RandomPrompt(1, 6);
  const std::vector<Token> parent_alone = Alone(*tiny.engine, With(prompt, 5), 6);
  const std::vector<Token> child_alone = Alone(*tiny.engine, With(prompt, 77), 6);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = StartParent(driver, prompt);
  std::vector<uint32_t> table = driver.Allocate(3);
  const uint32_t copied = table[0];
  table.insert(table.begin(), blocks[0]);
  // Both go on in the very step that copies.
  driver.Step({.add = {{.row = kChild, .blocks = table, .context_length = 6}},
               .chunks = {{.row = kParent, .tokens = {5}}, {.row = kChild, .tokens = {77}}},
               .copies = {{.source = blocks[1], .destination = copied}}});
  driver.ContinueAll(5);
  EXPECT_EQ(driver.tokens(kParent), parent_alone);
  EXPECT_EQ(driver.tokens(kChild), child_alone);
}

TEST_P(CopyBlocksTest, ABlockIsCopiedToSeveral) {
  const TestEngine tiny = MakePoisonedEngine();
  const std::vector<uint32_t> prompt = RandomPrompt(2, 7);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = StartParent(driver, prompt);
  StepDraft fork;
  for (uint32_t child = 0; child < 3; ++child) {
    std::vector<uint32_t> table = driver.Allocate(2);
    fork.copies.push_back({.source = blocks[1], .destination = table[0]});
    table.insert(table.begin(), blocks[0]);
    fork.add.push_back({.row = kChild + child, .blocks = table, .context_length = 7});
    fork.chunks.push_back({.row = kChild + child, .tokens = {10 + child}});
  }
  driver.Step(fork);
  driver.ContinueAll(3);
  for (uint32_t child = 0; child < 3; ++child)
    EXPECT_EQ(driver.tokens(kChild + child), Alone(*tiny.engine, With(prompt, 10 + child), 4));
}

// The copy is of what the steps before it have written, though none of them has been waited for.
TEST_P(CopyBlocksTest, ComesBehindStepsInFlight) {
  auto options = Options();
  options.delays = {.max_us = 300, .seed = 7};
  const TestEngine tiny = MakeTestEngine(options);
  const std::vector<uint32_t> prompt = RandomPrompt(3, 6);
  const std::vector<Token> alone = Alone(*tiny.engine, With(prompt, 9), 1);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.Allocate(4);
  const StepTicket first =
      driver.Submit({.add = {{.row = kParent, .blocks = {blocks[0], blocks[1]}}},
                     .chunks = {{.row = kParent, .tokens = prompt, .sample = false}}});
  const StepTicket second = driver.Submit(
      {.drop = {kParent},
       .add = {{.row = kChild, .blocks = {blocks[0], blocks[2]}, .context_length = 6}},
       .chunks = {{.row = kChild, .tokens = {9}}},
       .copies = {{.source = blocks[1], .destination = blocks[2]}}});
  driver.Wait(first);
  driver.Wait(second);
  EXPECT_EQ(driver.tokens(kChild), alone);
}

TEST_P(CopyBlocksTest, CopiesOfSeveralSessionsRunInOneLaunch) {
  const TestEngine tiny = MakePoisonedEngine();
  const std::vector<uint32_t> prompt = RandomPrompt(4, 6);
  const std::vector<Token> alone = Alone(*tiny.engine, With(prompt, 3), 1);
  EngineDriver a(*tiny.engine), b(*tiny.engine);
  std::vector<StepDraft> drafts;
  for (EngineDriver* driver : {&a, &b}) {
    const std::vector<uint32_t> blocks = StartParent(*driver, prompt);
    const std::vector<uint32_t> own = driver->Allocate(1);
    drafts.push_back({.add = {{.row = kChild, .blocks = {blocks[0], own[0]}, .context_length = 6}},
                      .chunks = {{.row = kChild, .tokens = {3}}},
                      .copies = {{.source = blocks[1], .destination = own[0]}}});
  }
  for (const StepResult& result : Joint({&a, &b}, drafts).Run())
    EXPECT_EQ(testing::TokenOf(result.rows.at(0)), alone[0]);
}

TEST_P(CopyBlocksTest, AStepMayCopyAndDoNothingElse) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> prompt = RandomPrompt(5, 3);
  const std::vector<uint32_t> blocks = StartParent(driver, prompt);
  const std::vector<uint32_t> own = driver.Allocate(1);
  driver.Step({.copies = {{.source = blocks[0], .destination = own[0]}}});
  driver.Step({.add = {{.row = kChild, .blocks = own, .context_length = 3}},
               .chunks = {{.row = kChild, .tokens = {8}}}});
  EXPECT_EQ(driver.tokens(kChild), Alone(*tiny.engine, With(prompt, 8), 1));
}

class CopyRefusal : public testing::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    tiny_ = MakeEngine();
    driver_ = std::make_unique<EngineDriver>(*tiny_.engine);
    blocks_ = StartParent(*driver_, RandomPrompt(6, 6));
    own_ = driver_->Allocate(4);
  }
  absl::Status Copy(std::vector<BlockCopy> copies, StepDraft draft = {}) {
    draft.copies = std::move(copies);
    return driver_->TryStep(draft).status();
  }

  TestEngine tiny_;
  std::unique_ptr<EngineDriver> driver_;
  std::vector<uint32_t> blocks_, own_;
};
REPRISE_ENGINE_ON_EVERY_DEVICE(CopyRefusal);

TEST_P(CopyRefusal, NamesWhatIsWrong) {
  EngineDriver other(*tiny_.engine);
  const uint32_t others = other.Allocate(1)[0];
  const uint32_t num_blocks = tiny_.engine->pool().num_blocks;
  EXPECT_THAT(Copy({{blocks_[0], others}}), StatusIs(kDenied, "another session holds it"));
  EXPECT_THAT(Copy({{others, own_[0]}}), StatusIs(kDenied, "another session holds it"));
  EXPECT_THAT(Copy({{blocks_[0], num_blocks}}), StatusIs(kRange, "does not exist"));
  EXPECT_THAT(Copy({{0, own_[0]}}), StatusIs(kRange, "block 0 does not exist"));
  EXPECT_THAT(Copy({{blocks_[0], own_[0]}, {blocks_[1], own_[0]}}),
              StatusIs(kInvalid, "another copy of the step goes to the same block"));
  EXPECT_THAT(Copy({{blocks_[0], own_[0]}, {own_[0], own_[1]}}),
              StatusIs(kInvalid, "a copy of the step goes to its source"));
  EXPECT_THAT(Copy({{blocks_[0], blocks_[0]}}), StatusIs(kInvalid, "goes to its source"));
  EXPECT_THAT(Copy({{blocks_[0], blocks_[1]}}),
              StatusIs(kPrecondition, "is in the table of 1 resident row(s)"));
  EXPECT_THAT(Copy({{own_[0], own_[1]}}), StatusIs(kPrecondition, "has written no token"));
  EXPECT_THAT(Copy(std::vector<BlockCopy>(9, {blocks_[0], own_[0]})),
              StatusIs(kRange, "copies 9 blocks; allowed: at most 8, max_rows"));
}

// Of a step that is refused, for its copies or behind them, the ledger keeps nothing.
TEST_P(CopyRefusal, LeavesNothingWritten) {
  const auto claims = [this] {
    return driver_->TryStep({.add = {{.row = 7, .blocks = {own_[0]}, .context_length = 1}}})
        .status();
  };
  EXPECT_THAT(claims(), StatusIs(kPrecondition, "has written 0"));
  ASSERT_FALSE(Copy({{blocks_[0], own_[0]}, {own_[2], own_[1]}}).ok());
  EXPECT_THAT(claims(), StatusIs(kPrecondition, "has written 0"));
  ASSERT_FALSE(Copy({{blocks_[0], own_[0]}}, {.continue_rows = {99}}).ok());
  EXPECT_THAT(claims(), StatusIs(kPrecondition, "has written 0"));
  ASSERT_OK(Copy({{blocks_[0], own_[0]}}));
  EXPECT_OK(claims());
}

// A destination has what its source had, and no more, whatever was there before.
TEST_P(CopyRefusal, WhatWasCopiedBoundsTheContext) {
  ASSERT_OK(Copy({{blocks_[0], own_[0]}}));
  ASSERT_OK(Copy({{blocks_[1], own_[0]}}));  // two tokens over four
  const auto claim = [this](uint32_t context) {
    return driver_->TryStep({.add = {{.row = 7, .blocks = {own_[0]}, .context_length = context}}})
        .status();
  };
  EXPECT_THAT(claim(3), StatusIs(kPrecondition, "has written 2"));
  EXPECT_OK(claim(2));
}

TEST_P(CopyRefusal, AnotherRowsBlockIsNeverWrittenWhileItIsShared) {
  // A child that shares the half-full block instead of copying it, and wants to go on in it.
  EXPECT_THAT(
      driver_
          ->TryStep(
              {.add = {{.row = kChild, .blocks = {blocks_[0], blocks_[1]}, .context_length = 6}},
               .chunks = {{.row = kChild, .tokens = {1}}}})
          .status(),
      StatusIs(kPrecondition, "which 2 rows share"));
}

TEST_P(CopyRefusal, OfBadRowsOthersCopiesStay) {
  // Row 99 is refused alone; the copy is nobody's, and is done.
  StepDraft draft{.continue_rows = {99}, .isolate_bad_rows = true};
  EXPECT_OK(Copy({{blocks_[0], own_[0]}}, draft));
  EXPECT_OK(driver_->TryStep({.add = {{.row = 7, .blocks = {own_[0]}, .context_length = kBlock}}})
                .status());
  EXPECT_THAT(Copy({{own_[2], own_[1]}}, draft), StatusIs(kPrecondition, "has written no token"));
}

}  // namespace
}  // namespace reprise::engine
