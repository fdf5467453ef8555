// SPDX-License-Identifier: Apache-2.0
// Requests of several sessions in one launch: every row has the bits that it has alone, every
// request its own result, and a request that is refused or left changes nothing for the others.
#include "tests/engine/joint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "engine/step/launch_totals.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::DeviceCalls;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::InstrumentedEngine;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::NumAllocationsOfThisThread;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// What a request's rows did, to the bit, as text; nothing of the launch that it was part of.
std::string Describe(const StepResult& result) {
  std::string text;
  const auto bits = [](float v) { return absl::Hex(std::bit_cast<uint32_t>(v)); };
  const auto add_top = [&](const TopRange& top) {
    for (uint32_t i = top.begin; i < top.begin + top.count; ++i) {
      absl::StrAppend(&text, " ", result.top_logprobs[i].token, ":",
                      bits(result.top_logprobs[i].logprob));
    }
  };
  for (const SingleStep& step : result.steps) absl::StrAppend(&text, step.num_rows, " rows, ");
  for (const RowOutcome& row : result.rows) {
    absl::StrAppend(&text, "\nrow ", row.row, " ", static_cast<int>(row.status), " ", row.sampled,
                    " ", row.token, " ", bits(row.logprob), " ", row.context_length, " ",
                    static_cast<int>(row.finish), " rank ", row.rank, row.has_logits ? " L" : "");
    add_top(row.top);
  }
  for (const PromptLogprob& prompt : result.prompt_logprobs) {
    absl::StrAppend(&text, "\nprompt ", prompt.row, "@", prompt.position, " ", bits(prompt.logprob),
                    " ", prompt.rank);
    add_top(prompt.top);
  }
  for (const float logit : result.logits) absl::StrAppend(&text, " ", bits(logit));
  return text;
}

// What a session does, step by step.
using Story = std::function<StepDraft(EngineDriver& driver, uint32_t step)>;

constexpr uint32_t kStoryLength = 6;
constexpr uint32_t kMaxSteps = 8;
const std::vector<uint32_t> kStopTokens = {3, 40, 77};

// A prompt whose likelihood is reported, then tokens with the likeliest beside them.
StepDraft Reporting(EngineDriver& driver, uint32_t step) {
  if (step > 0) return {.continue_all = true};
  return {.add = {{.row = 1, .blocks = driver.AllocateFor(30), .sampling = {.num_logprobs = 3}}},
          .chunks = {{.row = 1, .tokens = RandomPrompt(11, 5), .prompt_logprobs = true}}};
}

// A prompt in chunks; logits come back.
StepDraft Chunked(EngineDriver& driver, uint32_t step) {
  if (step == 0) {
    return {
        .add = {{.row = 1, .blocks = driver.AllocateFor(30), .sampling = {.return_logits = true}}},
        .chunks = {{.row = 1, .tokens = RandomPrompt(12, 4), .sample = false}}};
  }
  return {.chunks = {{.row = 1, .tokens = RandomPrompt(12 + step, 1 + step % 3)}}};
}

// Rows with penalties that stop, leave and come.
StepDraft ComingAndGoing(EngineDriver& driver, uint32_t step) {
  const auto add = [&driver](uint32_t row) {
    return StepDraft::Add{.row = row,
                          .blocks = driver.AllocateFor(30),
                          .sampling = {.temperature = 0.9f,
                                       .seed = row,
                                       .top_p = 0.9f,
                                       .repetition_penalty = 1.2f,
                                       .stop_tokens = kStopTokens,
                                       .max_new_tokens = row == 1 ? 2u : 0u}};
  };
  if (step == 0) {
    return {.add = {add(1), add(2)},
            .chunks = {{.row = 2, .tokens = {7}}, {.row = 1, .tokens = RandomPrompt(13, 3)}}};
  }
  if (step == 3) {
    return {.drop = {1},
            .add = {add(3)},
            .chunks = {{.row = 3, .tokens = RandomPrompt(14, 2)}},
            .continue_rows = {2}};
  }
  return {.continue_all = true};
}

const std::vector<Story> kStories = {Reporting, Chunked, ComingAndGoing};

class JointTest : public SampledRowsTest {
 protected:
  testing::TestEngineOptions EngineOptions() const {
    auto options = Options();
    options.engine.max_logit_rows = 2;
    options.engine.max_prompt_logprobs = 16;
    options.engine.max_steps_per_request = kMaxSteps;
    return options;
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(JointTest);

TEST_P(JointTest, RowsHaveTheBitsThatTheyHaveAlone) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  std::vector<std::vector<std::string>> alone(kStories.size());
  for (size_t s = 0; s < kStories.size(); ++s) {
    EngineDriver driver(*tiny.engine);
    for (uint32_t i = 0; i < kStoryLength; ++i)
      alone[s].push_back(Describe(driver.Step(kStories[s](driver, i))));
  }
  // In each order, so that each has others before and behind its rows.
  std::vector<size_t> order = {0, 1, 2};
  do {
    std::vector<std::unique_ptr<EngineDriver>> owned;
    std::vector<EngineDriver*> drivers;
    for (size_t s = 0; s < kStories.size(); ++s) {
      owned.push_back(std::make_unique<EngineDriver>(*tiny.engine));
      drivers.push_back(owned.back().get());
    }
    for (uint32_t i = 0; i < kStoryLength; ++i) {
      std::vector<StepDraft> drafts;
      for (size_t s = 0; s < order.size(); ++s)
        drafts.push_back(kStories[order[s]](*drivers[s], i));
      const std::vector<StepResult> results = Joint(drivers, drafts).Run();
      for (size_t s = 0; s < order.size(); ++s) {
        EXPECT_EQ(results[s].session, drivers[s]->session().id);
        EXPECT_EQ(results[s].sequence, i + 1);
        EXPECT_EQ(Describe(results[s]), alone[order[s]][i]) << "step " << i;
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(JointTest, RequestsOfSeveralStepsHaveTheBitsThatTheyHaveAlone) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  // Tokens that the row has blocks for, beyond those of its prompt.
  const std::vector<uint32_t> rooms = {1, 30, 5};
  const auto start = [](EngineDriver& driver, uint32_t room) {
    driver.Step({.add = {{.row = 1,
                          .blocks = driver.AllocateFor(3 + room),
                          .sampling = {.temperature = 1.0f, .seed = room, .num_logprobs = 2}}},
                 .chunks = {{.row = 1, .tokens = RandomPrompt(room, 3)}}});
  };
  const StepDraft several{.continue_all = true, .num_steps = kMaxSteps};
  std::vector<std::string> alone;
  std::vector<size_t> num_steps;
  for (const uint32_t room : rooms) {
    EngineDriver driver(*tiny.engine);
    start(driver, room);
    const StepResult& result = driver.Step(several);
    alone.push_back(Describe(result));
    num_steps.push_back(result.steps.size());
  }
  ASSERT_THAT(num_steps, ElementsAre(1, kMaxSteps, 5));

  EngineDriver a(*tiny.engine), b(*tiny.engine), c(*tiny.engine);
  start(a, rooms[0]);
  start(b, rooms[1]);
  start(c, rooms[2]);
  const std::vector<StepResult> results = Joint({&a, &b, &c}, {several, several, several}).Run();
  for (size_t s = 0; s < rooms.size(); ++s) EXPECT_EQ(Describe(results[s]), alone[s]) << s;
  // The second has others beside it as long as they run.
  const std::vector<SingleStep>& steps = results[1].steps;
  EXPECT_EQ(steps[0].report.graph, "decode/4");
  EXPECT_EQ(steps[0].report.other_rows, 2u);
  EXPECT_EQ(steps[0].report.padding_rows, 1u);
  EXPECT_EQ(steps[1].report.graph, "decode/2");
  EXPECT_EQ(steps[1].report.other_rows, 1u);
  EXPECT_EQ(steps[4].report.other_rows, 1u);
  EXPECT_EQ(steps[5].report.other_rows, 0u);
  EXPECT_EQ(steps[5].report.padding_rows, 1u);
  // All have gone on as far as they say.
  const std::vector<StepResult> next =
      Joint({&b, &c}, {{.continue_all = true},
                       {.append = {{.row = 1, .blocks = c.Allocate(1)}}, .continue_all = true}})
          .Run();
  EXPECT_EQ(next[0].rows[0].context_length, 3u + 1 + kMaxSteps);
  EXPECT_EQ(next[1].rows[0].context_length, 3u + 5 + 1);
}

TEST_P(JointTest, IsOneLaunchAndSaysWhatElseRan) {
  const InstrumentedEngine tiny = MakeInstrumentedEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine), c(*tiny.engine);
  const auto begin = [](EngineDriver& driver, uint32_t tokens) {
    return StepDraft{.add = {{.row = 9, .blocks = driver.AllocateFor(20)}},
                     .chunks = {{.row = 9, .tokens = RandomPrompt(tokens, tokens)}}};
  };
  DeviceCalls expected = tiny.instruments->calls();
  ++expected.replays;
  const std::vector<StepResult> first =
      Joint({&a, &b, &c}, {begin(a, 6), begin(b, 1), begin(c, 4)}).Run();
  EXPECT_EQ(tiny.instruments->calls(), expected);
  const std::vector<uint32_t> tokens = {6, 1, 4};
  for (size_t i = 0; i < 3; ++i) {
    const StepReport& report = first[i].report;
    EXPECT_EQ(report.graph, "mixed/16");
    EXPECT_EQ(report.rows, 1u);
    EXPECT_EQ(report.tokens, tokens[i]);
    EXPECT_EQ(report.other_rows, 2u);
    EXPECT_EQ(report.other_tokens, 11 - tokens[i]);
    EXPECT_EQ(report.padding_tokens, 5u);
    EXPECT_EQ(report.padding_rows, 0u);
    EXPECT_EQ(first[i].ledger.device_ns, first[0].ledger.device_ns);
    EXPECT_EQ(first[i].ledger.launch_ns, first[0].ledger.launch_ns);
    EXPECT_GT(first[i].ledger.total_ns, 0u);
  }
  // A request of no rows runs in nobody's place.
  const std::vector<StepResult> second =
      Joint({&a, &b, &c}, {{.continue_all = true}, {.drop = {9}}, {.continue_all = true}}).Run();
  EXPECT_EQ(second[1].report.graph, "decode/2");
  EXPECT_EQ(second[1].report.rows, 0u);
  EXPECT_EQ(second[1].report.other_rows, 2u);
  EXPECT_THAT(second[1].rows, SizeIs(0));
  EXPECT_EQ(second[0].report.padding_rows, 0u);
}

TEST_P(JointTest, AllocatesNothingOnceItHasRun) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {.num_logprobs = 2});
  Start(b, 1, {4, 5}, {.return_logits = true});
  std::vector<StepResult> results(2);
  for (int i = 0; i < 6; ++i) {
    Joint joint({&a, &b}, {{.continue_all = true}, {.continue_all = true}});
    const uint64_t before = NumAllocationsOfThisThread();
    const auto ticket = joint.Submit();
    const absl::Status waited =
        ticket.ok() ? tiny.engine->WaitJoint(*ticket, results) : ticket.status();
    const uint64_t allocations = NumAllocationsOfThisThread() - before;
    ASSERT_OK(waited);
    // The results' capacities grow at first.
    if (i >= 2) {
      EXPECT_EQ(allocations, 0u) << i;
    }
  }
}

TEST_P(JointTest, ARowThatHasStoppedIsPaddingForEveryone) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), stopping(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {});
  // Stops with the first token that it samples, which the host does not know yet when it sends the
  // second step.
  const std::vector<uint32_t> only = {5};
  const std::vector<std::byte> mask = MaskOf(only);
  stopping.Step({.add = {{.row = 2,
                          .blocks = stopping.AllocateFor(20),
                          .sampling = {.allowed_tokens = mask, .stop_tokens = only}}},
                 .chunks = {{.row = 2, .tokens = {9, 4}, .sample = false}}});
  std::vector<StepTicket> tickets;
  for (int i = 0; i < 2; ++i) {
    Joint joint({&a, &stopping}, {{.continue_all = true}, {.chunks = {{.row = 2, .tokens = {8}}}}});
    const auto ticket = joint.Submit();
    ASSERT_OK(ticket.status());
    tickets.push_back(*ticket);
  }
  for (const uint32_t ran : {1, 0}) {
    std::vector<StepResult> results(2);
    ASSERT_OK(tiny.engine->WaitJoint(tickets[1 - ran], results));
    EXPECT_EQ(results[1].rows[0].status, ran == 1 ? RowStatus::kRan : RowStatus::kStopped);
    EXPECT_EQ(results[0].report.graph, "decode/2");
    EXPECT_EQ(results[0].report.rows, 1u);
    EXPECT_EQ(results[0].report.other_rows, ran);
    EXPECT_EQ(results[0].report.padding_rows, 1 - ran);
    EXPECT_EQ(results[1].report.rows, ran);
    EXPECT_EQ(results[1].report.other_rows, 1u);
    EXPECT_EQ(results[1].report.padding_rows, 1 - ran);
  }
}

TEST_P(JointTest, ARefusedRequestChangesNothingForTheOthers) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine), c(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {});
  Start(c, 1, {4, 5}, {});
  const uint32_t free_blocks = tiny.engine->pool().free_blocks;
  Joint joint({&a, &b, &c},
              {{.continue_all = true}, {.continue_rows = {8}}, {.continue_all = true}});
  const auto ticket = joint.Submit();
  ASSERT_OK(ticket.status());
  EXPECT_THAT(joint.outcomes(), ElementsAre(Outcome::kTaken, Outcome::kRefused, Outcome::kTaken));
  EXPECT_THAT(joint.status(1), StatusIs(absl::StatusCode::kNotFound, "row 8"));
  std::vector<StepResult> results(2);
  ASSERT_OK(tiny.engine->WaitJoint(*ticket, results));
  EXPECT_EQ(results[1].session, c.session().id);
  EXPECT_THAT(results[1].rows, SizeIs(1));
  EXPECT_EQ(tiny.engine->pool().free_blocks, free_blocks);
  // Its sequence number is still free.
  b.Start({.row = 8, .prompt = {1, 2}}, 2);

  // The first one, too; and all of them.
  Joint behind({&b, &a}, {{.continue_rows = {9}}, {.continue_all = true}});
  const auto alone = behind.Submit();
  ASSERT_OK(alone.status());
  EXPECT_THAT(behind.outcomes(), ElementsAre(Outcome::kRefused, Outcome::kTaken));
  StepResult result;
  ASSERT_OK(tiny.engine->Wait(*alone, &result));
  EXPECT_EQ(result.session, a.session().id);
  Joint none({&b, &a}, {{.continue_rows = {9}}, {.drop = {9}}});
  const auto nothing = none.Submit();
  ASSERT_OK(nothing.status());
  EXPECT_EQ(*nothing, 0u);
  EXPECT_THAT(none.outcomes(), Each(Outcome::kRefused));
}

TEST_P(JointTest, LeavesWhatCannotShareALaunch) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine), c(*tiny.engine);
  for (EngineDriver* driver : {&a, &b, &c}) {
    Start(*driver, 1, {1, 2, 3}, {}, 200);
    Start(*driver, 2, {3, 2}, {.return_logits = true}, 60);
  }
  const uint32_t free_blocks = tiny.engine->pool().free_blocks;
  // Whether the second is left beside the first; it runs behind it either way.
  const auto leaves = [&](const StepDraft& first, const StepDraft& second, EngineDriver& other) {
    Joint joint({&a, &other}, {first, second});
    const auto ticket = joint.Submit();
    EXPECT_OK(ticket.status());
    const bool left = joint.outcomes()[1] == Outcome::kLeft;
    EXPECT_OK(joint.status(1));
    std::vector<StepResult> results(left ? 1 : 2);
    EXPECT_OK(tiny.engine->WaitJoint(*ticket, results));
    if (left) other.Step(second);
    return left;
  };
  const StepDraft one{.continue_rows = {1}};
  EXPECT_FALSE(leaves(one, one, b));
  {  // of one session
    Joint joint({&a, &a}, {one, one});
    const auto ticket = joint.Submit();
    ASSERT_OK(ticket.status());
    EXPECT_THAT(joint.outcomes(), ElementsAre(Outcome::kTaken, Outcome::kLeft));
    StepResult result;
    ASSERT_OK(tiny.engine->Wait(*ticket, &result));
  }
  // Other kinds.
  EXPECT_TRUE(leaves(one, {.continue_rows = {1}, .num_steps = 2}, b));
  EXPECT_TRUE(leaves({.continue_rows = {1}, .num_steps = 2}, one, b));
  EXPECT_TRUE(leaves(one, {.continue_rows = {1}, .mode = ExecutionMode::kEager}, b));
  EXPECT_TRUE(leaves({.continue_rows = {1}, .mode = ExecutionMode::kEager}, one, b));
  // Together beyond a limit of one step: tokens, logits, likelihoods, parameters of sampling.
  const auto chunk = [](uint32_t tokens) {
    return StepDraft{.chunks = {{.row = 1, .tokens = RandomPrompt(1, tokens), .sample = true}}};
  };
  EXPECT_FALSE(leaves(chunk(30), chunk(2), b));
  EXPECT_FALSE(leaves(one, chunk(20), b));
  EXPECT_TRUE(leaves(chunk(3), chunk(62), c));
  const StepDraft both{.continue_rows = {1, 2}};
  EXPECT_FALSE(leaves(both, both, b));
  {  // a third that returns logits
    Joint joint({&a, &b, &c}, {both, both, both});
    const auto ticket = joint.Submit();
    ASSERT_OK(ticket.status());
    EXPECT_THAT(joint.outcomes(), ElementsAre(Outcome::kTaken, Outcome::kTaken, Outcome::kLeft));
    std::vector<StepResult> results(2);
    ASSERT_OK(tiny.engine->WaitJoint(*ticket, results));
  }
  const auto likelihood = [](uint32_t tokens) {
    return StepDraft{
        .chunks = {{.row = 1, .tokens = RandomPrompt(1, tokens), .prompt_logprobs = true}}};
  };
  EXPECT_FALSE(leaves(likelihood(6), likelihood(6), b));
  EXPECT_TRUE(leaves(likelihood(10), likelihood(9), b));
  EXPECT_EQ(tiny.engine->pool().free_blocks, free_blocks);
}

// What a request that was left would have added is not there: its blocks are in no table.
TEST_P(JointTest, ARequestThatIsLeftHasTakenNothing) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {}, 100);
  Start(b, 1, {4, 5}, {}, 20);
  const std::vector<uint32_t> blocks = b.AllocateFor(64), more = b.Allocate(1);
  Joint joint({&a, &b}, {{.chunks = {{.row = 1, .tokens = RandomPrompt(1, 40)}}},
                         {.add = {{.row = 2, .blocks = blocks}},
                          .append = {{.row = 1, .blocks = more}},
                          .chunks = {{.row = 2, .tokens = RandomPrompt(2, 40)}}}});
  const auto ticket = joint.Submit();
  ASSERT_OK(ticket.status());
  ASSERT_THAT(joint.outcomes(), ElementsAre(Outcome::kTaken, Outcome::kLeft));
  StepResult result;
  ASSERT_OK(tiny.engine->Wait(*ticket, &result));
  EXPECT_OK(tiny.engine->FreeBlocks(b.session().id, blocks));
  EXPECT_OK(tiny.engine->FreeBlocks(b.session().id, more));
}

// All slots are taken: the first request's drop makes room for the second one's row.
TEST_P(JointTest, ARowMayTakeTheSlotThatAnEarlierRequestFreed) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine), alone(*tiny.engine);
  const auto add = [](EngineDriver& driver) {
    return StepDraft{.add = {{.row = 70, .blocks = driver.AllocateFor(20)}},
                     .chunks = {{.row = 70, .tokens = RandomPrompt(6, 5)}}};
  };
  const std::string expected = Describe(alone.Step(add(alone)));
  const std::string next = Describe(alone.Step({.continue_all = true}));
  alone.Drop(70);
  for (uint32_t row = 1; row <= 8; ++row) Start(a, row, {row, 2, 3}, {}, 12);
  ASSERT_THAT(b.TryStep(add(b)), StatusIs(absl::StatusCode::kResourceExhausted, "are free"));
  const std::vector<StepResult> results =
      Joint({&a, &b}, {{.drop = {4}, .continue_rows = {1, 8}}, add(b)}).Run();
  EXPECT_THAT(results[0].rows, SizeIs(2));
  EXPECT_EQ(Describe(results[1]), expected);
  EXPECT_EQ(Describe(Joint({&a, &b}, {{.continue_rows = {2}}, {.continue_all = true}}).Run()[1]),
            next);
}

TEST_P(JointTest, ALaunchThatFailsIsAFaultForAll) {
  for (const int failed : {0, 2}) {
    const InstrumentedEngine tiny = MakeInstrumentedEngine(EngineOptions());
    EngineDriver a(*tiny.engine), b(*tiny.engine);
    Start(a, 1, {1, 2, 3}, {});
    Start(b, 1, {4, 5}, {});
    tiny.instruments->FailReplays(absl::InternalError("the cable came out"), failed);
    const StepDraft several{.continue_all = true, .num_steps = 4};
    EXPECT_THAT(Joint({&a, &b}, {several, several}).Submit(),
                StatusIs(absl::StatusCode::kInternal, "the cable came out"));
    tiny.instruments->FailReplays(absl::OkStatus());
    EXPECT_THAT(Joint({&b, &a}, {several, several}).Submit(),
                StatusIs(absl::StatusCode::kUnavailable, "the cable came out"));
    EXPECT_FALSE(tiny.engine->health().ok());
  }
}

TEST_P(JointTest, AFullPipelineRefusesEach) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {}, 60);
  Start(b, 1, {4, 5}, {}, 60);
  const std::vector<StepDraft> both = {{.continue_all = true}, {.continue_all = true}};
  std::vector<StepTicket> tickets;
  for (uint32_t i = 0; i < tiny.engine->info().limits.pipeline_depth; ++i)
    tickets.push_back(*Joint({&a, &b}, both).Submit());
  Joint beyond({&a, &b}, both);
  const auto none = beyond.Submit();
  ASSERT_OK(none.status());
  EXPECT_EQ(*none, 0u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(beyond.outcomes()[i], Outcome::kRefused);
    EXPECT_THAT(beyond.status(i), StatusIs(absl::StatusCode::kResourceExhausted, "in flight"));
  }
  std::vector<StepResult> results(2);
  for (const StepTicket ticket : tickets) EXPECT_OK(tiny.engine->WaitJoint(ticket, results));
  EXPECT_THAT(Joint({&a, &b}, both).Run(), SizeIs(2));
}

TEST(JointLimits, CountWhatRequestsBringTogether) {
  const kernels::StepLimits limits{.max_rows = 3,
                                   .max_step_tokens = 64,
                                   .max_logit_rows = 2,
                                   .max_prompt_logprobs = 16,
                                   .max_sampling_bytes = 4096};
  StagedStep staged;
  staged.num_sampling_words = 512;
  LaunchTotals totals = LaunchTotals{}.With(staged);
  EXPECT_TRUE(totals.IsWithin(limits));
  totals = totals.With(staged);
  EXPECT_TRUE(totals.IsWithin(limits));
  EXPECT_FALSE(totals.With(staged).IsWithin(limits));
  LaunchTotals many;
  for (uint32_t i = 0; i < kMaxJointRequests; ++i) many = many.With(StagedStep{});
  EXPECT_TRUE(many.IsWithin(limits));
  EXPECT_FALSE(many.With(StagedStep{}).IsWithin(limits));
  StagedStep copying;
  copying.num_copies = 2;
  totals = LaunchTotals{}.With(copying);
  EXPECT_TRUE(totals.IsWithin(limits));
  EXPECT_FALSE(totals.With(copying).IsWithin(limits));
  StagedStep mixed;
  mixed.all_single = false;
  EXPECT_FALSE(many.With(mixed).With(StagedStep{}).all_single);
}

TEST_P(JointTest, IsWaitedForAsAWhole) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  EngineDriver a(*tiny.engine), b(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {});
  Start(b, 1, {4, 5}, {});
  Joint joint({&a, &b}, {{.continue_all = true}, {.continue_all = true}});
  const auto ticket = joint.Submit();
  ASSERT_OK(ticket.status());
  StepResult one;
  EXPECT_THAT(tiny.engine->Wait(*ticket, &one),
              StatusIs(absl::StatusCode::kInvalidArgument, "waits for 2 requests"));
  std::vector<StepResult> three(3), two(2);
  EXPECT_THAT(tiny.engine->WaitJoint(*ticket, three),
              StatusIs(absl::StatusCode::kInvalidArgument, "with 3 results"));
  EXPECT_OK(tiny.engine->WaitJoint(*ticket, two));
  EXPECT_THAT(tiny.engine->WaitJoint(*ticket, two),
              StatusIs(absl::StatusCode::kFailedPrecondition, "none is"));
}

TEST_P(JointTest, ASessionThatIsClosedMeanwhileKeepsWhatItHoldsUntilTheEnd) {
  const TestEngine tiny = MakeTestEngine(EngineOptions());
  const uint32_t free_blocks = tiny.engine->pool().free_blocks;
  EngineDriver a(*tiny.engine);
  Start(a, 1, {1, 2, 3}, {}, 16);
  const uint32_t with_a = tiny.engine->pool().free_blocks;
  std::vector<StepResult> results(2);
  StepTicket ticket = 0;
  {
    EngineDriver b(*tiny.engine);
    Start(b, 1, {4, 5}, {});
    Joint joint({&b, &a}, {{.continue_all = true}, {.continue_all = true}});
    ticket = *joint.Submit();
  }  // closes b
  EXPECT_LT(tiny.engine->pool().free_blocks, with_a);
  ASSERT_OK(tiny.engine->WaitJoint(ticket, results));
  EXPECT_EQ(tiny.engine->pool().free_blocks, with_a);
  EXPECT_EQ(results[1].rows[0].context_length, 4u);
  a.Step({.drop = {1}});
  EXPECT_LT(with_a, free_blocks);
}

}  // namespace
}  // namespace reprise::engine
