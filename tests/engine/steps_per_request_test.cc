// SPDX-License-Identifier: Apache-2.0
// What a request of several steps runs, reports and refuses, rule by rule; its bits are
// steps_per_request_bits_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kMaxSteps = 8;

class StepsPerRequestTest : public SampledRowsTest {
 protected:
  testing::TestEngineOptions SeveralSteps() const {
    auto options = Options();
    options.engine.max_steps_per_request = kMaxSteps;
    return options;
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(StepsPerRequestTest);

TEST_P(StepsPerRequestTest, RowsOfPromptsThatDoNotSampleTakePartInTheFirstStepOnly) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  const auto add = [&](uint32_t row) {
    return StepDraft::Add{.row = row, .blocks = driver.AllocateFor(24)};
  };
  const StepResult result = driver.Step({.add = {add(1), add(2), add(3)},
                                         .chunks = {{.row = 1, .tokens = {5, 6, 7}},
                                                    {.row = 2, .tokens = {8, 9}, .sample = false},
                                                    {.row = 3, .tokens = {4}}},
                                         .num_steps = 4});
  const auto row_is = [](uint32_t row) { return Field(&RowOutcome::row, row); };
  EXPECT_THAT(result.rows, ElementsAre(row_is(1), row_is(2), row_is(3), row_is(1), row_is(3),
                                       row_is(1), row_is(3), row_is(1), row_is(3)));
  ASSERT_THAT(result.steps, SizeIs(4));
  EXPECT_EQ(result.steps[0].num_rows, 3u);
  EXPECT_EQ(result.steps[0].report.graph, "mixed/16");
  EXPECT_EQ(result.steps[0].report.tokens, 6u);
  EXPECT_EQ(result.report.graph, "mixed/16");
  for (size_t i = 1; i < 4; ++i) {
    const StepReport& report = result.steps[i].report;
    EXPECT_EQ(result.steps[i].num_rows, 2u);
    EXPECT_EQ(report.graph, "decode/2");
    EXPECT_TRUE(report.replayed);
    EXPECT_EQ(report.rows, 2u);
    EXPECT_EQ(report.tokens, 2u);
    EXPECT_EQ(report.padding_rows, 0u);
  }
  uint64_t device_ns = 0;
  for (const SingleStep& step : result.steps) {
    EXPECT_GT(step.device_ns, 0u);
    device_ns += step.device_ns;
  }
  EXPECT_GE(result.ledger.device_ns, device_ns);
  // The context that the next chunk goes on from.
  EXPECT_EQ(driver.Step({.chunks = {{.row = 2, .tokens = {1}}}}).rows.at(0).context_length, 3u);
}

TEST_P(StepsPerRequestTest, ARequestInWhichNoRowGoesOnIsOneStep) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  const StepResult chunk = driver.Step({.add = {{.row = 1, .blocks = driver.AllocateFor(8)}},
                                        .chunks = {{.row = 1, .tokens = {5, 6}, .sample = false}},
                                        .num_steps = 8});
  EXPECT_THAT(chunk.steps, SizeIs(1));
  EXPECT_THAT(driver.Step({.drop = {1}, .num_steps = 8}).steps, SizeIs(1));
}

// The row's slot keeps the ids of a longer table that was there before; those blocks are another
// row's now.
TEST_P(StepsPerRequestTest, ARowWithoutABlockLeftPausesAndWritesNowhere) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  const std::vector<uint32_t> prompt = RandomPrompt(1, 7), other = RandomPrompt(2, 6);
  EngineDriver alone(*tiny.engine);
  const std::vector<Token> of_first = alone.Generate({.row = 1, .prompt = prompt}, 20);
  const std::vector<Token> of_other = alone.Generate({.row = 2, .prompt = other}, 20);

  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> many = driver.Allocate(10);
  driver.Step({.add = {{.row = 9, .blocks = many}}, .chunks = {{.row = 9, .tokens = {1, 2}}}});
  driver.Step({.drop = {9}});
  // 8 tokens of room.
  driver.Step({.add = {{.row = 1, .blocks = {many[0], many[1]}}},
               .chunks = {{.row = 1, .tokens = prompt}}});
  driver.Step({.add = {{.row = 2, .blocks = {many.begin() + 2, many.end()}}},
               .chunks = {{.row = 2, .tokens = other}}});
  const StepResult result = driver.Step({.continue_rows = {2, 1}, .num_steps = 6});
  ASSERT_THAT(result.rows, SizeIs(12));
  for (size_t i = 0; i < 6; ++i) {
    const RowOutcome& goes_on = result.rows[2 * i];
    const RowOutcome& pauses = result.rows[2 * i + 1];
    EXPECT_EQ(goes_on.status, RowStatus::kRan);
    EXPECT_EQ(pauses.status, i == 0 ? RowStatus::kRan : RowStatus::kPaused);
    EXPECT_EQ(pauses.sampled, i == 0);
    EXPECT_EQ(pauses.finish, FinishReason::kNone);
    EXPECT_EQ(pauses.context_length, 8u);
    if (i == 0) continue;
    EXPECT_EQ(result.steps[i].report.rows, 1u);
    EXPECT_EQ(result.steps[i].report.tokens, 1u);
    EXPECT_EQ(result.steps[i].report.padding_rows, 1u);
  }
  // Its next token has no place: the row cannot be named until it has one.
  EXPECT_THAT(driver.TryStep({.continue_rows = {1}, .num_steps = 6}).status(),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "row 1: context of 9 tokens; its block table has room for 8"));
  driver.Step({.append = {{.row = 1, .blocks = driver.AllocateFor(12)}},
               .continue_all = true,
               .num_steps = 8});
  for (const auto& [row, want] : {std::pair(1u, &of_first), std::pair(2u, &of_other)}) {
    const std::vector<Token>& tokens = driver.tokens(row);
    ASSERT_GE(tokens.size(), 10u);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), want->begin())) << "row " << row;
  }
}

TEST_P(StepsPerRequestTest, ARowPausesAtTheLimitOfItsContext) {
  auto options = SeveralSteps();
  options.engine.max_context_length = 10;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const auto add = [&](uint32_t row) {
    return StepDraft::Add{.row = row, .blocks = driver.AllocateFor(10)};
  };
  const StepResult result = driver.Step(
      {.add = {add(1), add(2)},
       .chunks = {{.row = 1, .tokens = RandomPrompt(3, 8)}, {.row = 2, .tokens = {5, 6}}},
       .num_steps = 5});
  ASSERT_THAT(result.rows, SizeIs(10));
  EXPECT_EQ(result.rows[4].status, RowStatus::kRan);
  EXPECT_EQ(result.rows[4].context_length, 10u);
  EXPECT_EQ(result.rows[6].status, RowStatus::kPaused);
  EXPECT_EQ(result.rows[8].status, RowStatus::kPaused);
  EXPECT_THAT(driver.TryStep({.continue_rows = {1}}).status(),
              StatusIs(absl::StatusCode::kOutOfRange, "context of 11 tokens; allowed: at most 10"));
}

TEST_P(StepsPerRequestTest, RefusesWhatItCannotRepeat) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(16);
  driver.Step({.add = {{.row = 1, .blocks = {blocks[0], blocks[1]}}},
               .chunks = {{.row = 1, .tokens = {5, 6}}}});
  for (const uint32_t num_steps : {0u, kMaxSteps + 1, ~0u}) {
    EXPECT_THAT(
        driver.TryStep({.continue_rows = {1}, .num_steps = num_steps}).status(),
        StatusIs(absl::StatusCode::kOutOfRange, "num_steps is " + std::to_string(num_steps) +
                                                    "; allowed: 1 to 8, max_steps_per_request"));
  }
  EXPECT_THAT(driver
                  .TryStep({.add = {{.row = 2,
                                     .blocks = driver.AllocateFor(8),
                                     .sampling = {.return_logits = true}}},
                            .chunks = {{.row = 2, .tokens = {5}}},
                            .num_steps = 2})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_steps is 2 and row 2 returns its logits; allowed: num_steps of 1"));
  // Row 3 reads the second block of row 1, which only later steps of the request come to.
  driver.Step({.add = {{.row = 3, .blocks = {blocks[1]}}}});
  EXPECT_THAT(driver.TryStep({.continue_rows = {1}, .num_steps = 3}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "appends to block"));
  driver.Step({.continue_rows = {1}, .num_steps = 2});
  const TestEngine one = MakeEngine();
  EngineDriver single(*one.engine);
  EXPECT_THAT(single.TryStep({.drop = {1}, .num_steps = 2}).status(),
              StatusIs(absl::StatusCode::kOutOfRange, "allowed: 1 to 1"));
}

// A row whose budget ends in its first block never comes to the second, which another one reads;
// nor does anybody count on tokens there.
TEST_P(StepsPerRequestTest, ABudgetBoundsWhatARowMayWrite) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(8);
  driver.Step({.add = {{.row = 1, .blocks = blocks, .sampling = {.max_new_tokens = 3}}},
               .chunks = {{.row = 1, .tokens = {5, 6}}}});
  driver.Step({.add = {{.row = 2, .blocks = {blocks[1]}}}});
  const StepResult result = driver.Step({.continue_rows = {1}, .num_steps = 8});
  ASSERT_THAT(result.rows, SizeIs(2));
  EXPECT_EQ(result.rows[1].finish, FinishReason::kLength);
  EXPECT_EQ(result.rows[1].context_length, 4u);
  driver.Step({.drop = {1, 2}});
  EXPECT_THAT(driver.TryStep({.add = {{.row = 3, .blocks = blocks, .context_length = 5}}}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "this session has written 0 there"));
  driver.Step({.add = {{.row = 3, .blocks = blocks, .context_length = 4}}});
}

TEST_P(StepsPerRequestTest, AMaskHoldsForAllOfThem) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  Start(driver, 1, RandomPrompt(1, 4), {.temperature = 2.0f, .seed = 3});
  const StepResult result = driver.Step({.continue_rows = {1},
                                         .masks = {{.row = 1, .allowed_tokens = MaskOf({7, 11})}},
                                         .num_steps = 8});
  ASSERT_THAT(result.rows, SizeIs(8));
  for (const RowOutcome& row : result.rows) EXPECT_TRUE(row.token == 7 || row.token == 11);
}

// Two requests in flight and no more, however many steps they have: the result ring has an entry
// for each of their steps.
TEST_P(StepsPerRequestTest, ThePipelineCountsRequests) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 40);
  const StepDraft draft{.continue_rows = {1}, .num_steps = kMaxSteps};
  for (uint32_t round = 0; round < 2; ++round) {
    const StepTicket first = driver.Submit(draft), second = driver.Submit(draft);
    const DraftView third(draft, driver.session(), driver.sequence());
    EXPECT_THAT(driver.engine().Submit(third.request()).status(),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         "2 requests are in flight, the pipeline's depth"));
    EXPECT_THAT(driver.Wait(first).rows, SizeIs(kMaxSteps));
    EXPECT_THAT(driver.Wait(second).rows, SizeIs(kMaxSteps));
  }
  EngineDriver alone(*tiny.engine);
  const std::vector<Token> want = alone.Generate({.row = 1, .prompt = {5, 6, 7}}, 33);
  EXPECT_EQ(driver.tokens(1), want);
}

TEST_P(StepsPerRequestTest, ARowThatStopsEarlyIsLeftOutByTheNextContinueAll) {
  const TestEngine tiny = MakeTestEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  Start(driver, 1, RandomPrompt(1, 4), {.max_new_tokens = 3});
  Start(driver, 2, RandomPrompt(2, 4), {});
  const StepResult result = driver.Step({.continue_all = true, .num_steps = 4});
  ASSERT_THAT(result.rows, SizeIs(8));
  EXPECT_EQ(result.rows[2].finish, FinishReason::kLength);
  EXPECT_EQ(result.rows[4].status, RowStatus::kStopped);
  EXPECT_EQ(result.rows[6].status, RowStatus::kStopped);
  EXPECT_EQ(result.rows[6].context_length, 6u);
  driver.Step({.drop = {2}});
  EXPECT_THAT(driver.Step({.continue_all = true, .num_steps = 4}).rows, IsEmpty());
}

// Rows of a request that ends early by what is known when it comes: of the blocks of one row, and
// of the budget of another, the longest counts.
TEST_P(StepsPerRequestTest, StepsThatNoRowCouldRunInAreNotLaunched) {
  auto tiny = MakeInstrumentedEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 5);  // blocks of 4: room for 8 tokens
  Start(driver, 2, {8, 9}, {.max_new_tokens = 4});
  const int before = tiny.instruments->calls().replays;
  const StepResult result = driver.Step({.continue_rows = {1, 2}, .num_steps = 8});
  EXPECT_EQ(tiny.instruments->calls().replays, before + 5);
  EXPECT_THAT(result.steps, SizeIs(5));
  ASSERT_THAT(result.rows, SizeIs(10));
  EXPECT_EQ(result.rows[8].status, RowStatus::kRan);
  EXPECT_EQ(result.rows[8].context_length, 8u);
  EXPECT_EQ(result.rows[9].status, RowStatus::kStopped);
}

TEST_P(StepsPerRequestTest, LaunchOneGraphEachAndNothingElse) {
  auto tiny = MakeInstrumentedEngine(SeveralSteps());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {5, 6, 7}}, 40);
  const testing::DeviceCalls before = tiny.instruments->calls();
  driver.Step({.continue_rows = {1}, .num_steps = 5});
  testing::DeviceCalls expected = before;
  expected.replays += 5;
  EXPECT_TRUE(tiny.instruments->calls() == expected);
}

}  // namespace
}  // namespace reprise::engine
