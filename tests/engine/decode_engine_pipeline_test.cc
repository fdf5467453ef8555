// SPDX-License-Identifier: Apache-2.0
// Steps submitted before earlier ones are read: the same results as one at a time, whatever the
// device's kernels take, and the order that Submit and Wait must keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
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

using ::reprise::testing::kExhausted;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;

class PipelineTest : public testing::EngineTest {
 protected:
  // An engine whose kernels start late, by a random time (host only).
  TestEngine MakeSlowEngine(uint32_t depth, int max_delay_us, uint64_t seed) const {
    auto options = Options();
    options.engine.pipeline_depth = depth;
    options.delays = {.max_us = max_delay_us, .seed = seed};
    return MakeTestEngine(options);
  }
  // What the script's rows sample one step at a time.
  std::vector<std::vector<Token>> OneAtATime(const RowScript& script) const {
    const TestEngine tiny = MakeEngine();
    RowScriptPlayer player(*tiny.engine, script);
    player.Play(1);
    return player.tokens();
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(PipelineTest);

TEST_P(PipelineTest, PipelinedStepsGiveTheSameTokens) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const RowScript script = MakeRowScript({.num_steps = 40, .seed = seed});
    const auto expected = OneAtATime(script);
    for (const uint32_t depth : {1u, 2u, 3u, 8u}) {
      const TestEngine tiny = MakeSlowEngine(depth, depth == 2 ? 40 : 1, seed);
      RowScriptPlayer player(*tiny.engine, script);
      player.Play(depth);
      EXPECT_EQ(player.tokens(), expected) << "seed " << seed << ", depth " << depth;
    }
  }
}

// Two scripts of two sessions, their steps interleaved at random in one pipeline.
TEST_P(PipelineTest, SessionsShareThePipelineWithoutMeeting) {
  const RowScript scripts[2] = {MakeRowScript({.num_steps = 35, .max_rows = 4, .seed = 5}),
                                MakeRowScript({.num_steps = 35, .max_rows = 4, .seed = 6})};
  const TestEngine tiny = MakeSlowEngine(2, 25, 9);
  RowScriptPlayer players[2] = {{*tiny.engine, scripts[0]}, {*tiny.engine, scripts[1]}};
  testing::Random random(3);
  std::deque<std::pair<int, StepTicket>> in_flight;
  const auto wait = [&] {
    players[in_flight.front().first].Wait(in_flight.front().second);
    in_flight.pop_front();
  };
  while (!players[0].AllSubmitted() || !players[1].AllSubmitted()) {
    const int turn = static_cast<int>(random.Below(2));
    if (players[turn].AllSubmitted()) continue;
    if (in_flight.size() == 2) wait();
    in_flight.emplace_back(turn, players[turn].Submit());
  }
  while (!in_flight.empty()) wait();
  for (int i : {0, 1}) EXPECT_EQ(players[i].tokens(), OneAtATime(scripts[i]));
}

// Tickets from the submitting to the waiting thread, at most `depth` of them not yet waited for.
class TicketQueue {
 public:
  explicit TicketQueue(size_t depth) : depth_(depth) {}
  void WaitForRoom() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return in_flight_ < depth_; });
  }
  void Push(StepTicket ticket) {
    std::lock_guard<std::mutex> lock(mutex_);
    tickets_.push_back(ticket);
    ++in_flight_;
    changed_.notify_all();
  }
  StepTicket Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !tickets_.empty(); });
    const StepTicket ticket = tickets_.front();
    tickets_.pop_front();
    return ticket;
  }
  void Waited() {
    std::lock_guard<std::mutex> lock(mutex_);
    --in_flight_;
    changed_.notify_all();
  }

 private:
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepTicket> tickets_;
  size_t in_flight_ = 0;
};

TEST_P(PipelineTest, OneThreadSubmitsWhileAnotherBlocksInWait) {
  for (const uint64_t seed : {7, 8}) {
    const RowScript script = MakeRowScript({.num_steps = 50, .seed = seed});
    const TestEngine tiny = MakeSlowEngine(2, 20, seed);
    RowScriptPlayer player(*tiny.engine, script);
    TicketQueue queue(2);
    std::thread waiter([&] {
      for (size_t i = 0; i < script.steps.size(); ++i) {
        player.Wait(queue.Pop());
        queue.Waited();
      }
    });
    // A third thread asks what anyone may ask at any time.
    std::atomic<bool> stop{false};
    std::thread observer([&] {
      while (!stop) {
        EXPECT_OK(tiny.engine->health());
        EXPECT_GT(tiny.engine->pool().free_blocks, 0u);
        const SessionInfo session = tiny.engine->OpenSession();
        EXPECT_OK(tiny.engine->AllocateBlocks(session.id, 3).status());
        EXPECT_OK(tiny.engine->CloseSession(session.id));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    while (!player.AllSubmitted()) {
      queue.WaitForRoom();
      queue.Push(player.Submit());
    }
    waiter.join();
    stop = true;
    observer.join();
    EXPECT_EQ(player.tokens(), OneAtATime(script));
  }
}

TEST_P(PipelineTest, StepBeyondTheDepthIsRefusedAndChangesNothing) {
  const TestEngine tiny = MakeSlowEngine(2, 60, 3);
  EngineDriver driver(*tiny.engine);
  const std::vector<Token> expected = driver.Generate({.row = 1, .prompt = RandomPrompt(1, 6)}, 6);
  driver.Start({.row = 2, .prompt = RandomPrompt(1, 6)}, 6);
  const StepTicket first = driver.Submit({.continue_all = true});
  const StepTicket second = driver.Submit({.continue_all = true});
  const std::vector<uint32_t> own = driver.Allocate(1);
  for (const StepDraft& draft : {StepDraft{.continue_all = true}, StepDraft{.drop = {2}},
                                 StepDraft{.add = {{.row = 5, .blocks = own}}}}) {
    const DraftView view(draft, driver.session(), driver.sequence());
    EXPECT_THAT(tiny.engine->Submit(view.request()),
                StatusIs(kExhausted, "2 requests are in flight"));
  }
  StepResult result;
  const StepDraft step{.continue_all = true};
  const DraftView view(step, driver.session(), driver.sequence());
  EXPECT_THAT(tiny.engine->Step(view.request(), &result), StatusIs(kPrecondition, "2 requests"));
  driver.Wait(first);
  EXPECT_THAT(tiny.engine->Step(view.request(), &result), StatusIs(kPrecondition, "1 request"));
  const StepTicket third = driver.Submit({.continue_all = true});
  driver.Wait(second);
  driver.Wait(third);
  driver.ContinueAll(2);
  EXPECT_EQ(driver.tokens(2), expected);
  driver.Free(own);
}

TEST_P(PipelineTest, ResultsAreTakenInTheOrderOfSubmission) {
  const TestEngine tiny = MakeSlowEngine(3, 40, 2);
  EngineDriver driver(*tiny.engine);
  StepResult result;
  EXPECT_THAT(tiny.engine->Wait(1, &result), StatusIs(kPrecondition, "none is"));
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 6)}, 9);
  const StepTicket a = driver.Submit({.continue_all = true});
  const StepTicket b = driver.Submit({.continue_all = true});
  const StepTicket c = driver.Submit({.continue_all = true});
  EXPECT_THAT(tiny.engine->Wait(b, &result), StatusIs(kPrecondition, "oldest in flight"));
  EXPECT_THAT(tiny.engine->Wait(c, &result), StatusIs(kPrecondition, "oldest in flight"));
  EXPECT_THAT(tiny.engine->Wait(c + 1, &result), StatusIs(kPrecondition, "oldest in flight"));
  EXPECT_THAT(tiny.engine->Wait(0, &result), StatusIs(kPrecondition, "oldest in flight"));
  EXPECT_EQ(driver.Wait(a).rows[0].context_length, 7u);
  EXPECT_THAT(tiny.engine->Wait(a, &result), StatusIs(kPrecondition, "oldest in flight"));
  EXPECT_EQ(driver.Wait(b).rows[0].context_length, 8u);
  EXPECT_EQ(driver.Wait(c).rows[0].context_length, 9u);
  EXPECT_THAT(tiny.engine->Wait(c, &result), StatusIs(kPrecondition, "none is"));
}

TEST_P(PipelineTest, SessionClosedInFlightGivesBackAfterItsLastResult) {
  const TestEngine tiny = MakeSlowEngine(3, 60, 4);
  DecodeEngine& engine = *tiny.engine;
  const uint32_t all_free = engine.pool().free_blocks;
  EngineDriver stays(engine);
  const std::vector<Token> expected = stays.Generate({.row = 1, .prompt = RandomPrompt(2, 6)}, 8);
  stays.Start({.row = 2, .prompt = RandomPrompt(2, 6)}, 8);
  const uint32_t free_before = engine.pool().free_blocks;

  const SessionInfo goes = engine.OpenSession();
  ASSERT_OK_AND_ASSIGN(const std::vector<uint32_t> blocks, engine.AllocateBlocks(goes.id, 4));
  const StepDraft start{.add = {{.row = 2, .blocks = blocks}},
                        .chunks = {{.row = 2, .tokens = RandomPrompt(9, 12)}}};
  const StepDraft next{.continue_all = true};
  const DraftView start_view(start, goes, 1), next_view(next, goes, 2), late_view(next, goes, 3);
  ASSERT_OK_AND_ASSIGN(const StepTicket first, engine.Submit(start_view.request()));
  const StepTicket other = stays.Submit({.continue_all = true});
  ASSERT_OK_AND_ASSIGN(const StepTicket last, engine.Submit(next_view.request()));
  EXPECT_OK(engine.CloseSession(goes.id));
  // It is gone for its owner at once, for the pool only when its last step is done.
  EXPECT_THAT(engine.CloseSession(goes.id), StatusIs(kNotFound, "session"));
  EXPECT_THAT(engine.Submit(late_view.request()), StatusIs(kNotFound, "session"));
  EXPECT_THAT(engine.AllocateBlocks(goes.id, 1), StatusIs(kNotFound, "session"));
  EXPECT_THAT(engine.FreeBlocks(goes.id, blocks), StatusIs(kNotFound, "session"));
  EXPECT_EQ(engine.pool().free_blocks, free_before - 4);
  StepResult result;
  ASSERT_OK(engine.Wait(first, &result));
  EXPECT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(engine.pool().free_blocks, free_before - 4);
  stays.Wait(other);
  EXPECT_EQ(engine.pool().free_blocks, free_before - 4);
  ASSERT_OK(engine.Wait(last, &result));
  EXPECT_EQ(result.session, goes.id);
  EXPECT_EQ(result.rows.at(0).context_length, 13u);
  EXPECT_EQ(engine.pool().free_blocks, free_before);
  // Its slots and blocks serve others.
  stays.Generate({.row = 9, .prompt = RandomPrompt(3, 20)}, 6);
  for (int i = 0; i < 6; ++i) stays.Step({.continue_rows = {2}});
  EXPECT_EQ(stays.tokens(2), expected);
  stays.Drop(2);
  EXPECT_EQ(engine.pool().free_blocks, all_free);
}

TEST_P(PipelineTest, EngineWithStepsInFlightCanBeDestroyed) {
  TestEngine tiny = MakeSlowEngine(2, 100, 5);
  const SessionInfo session = tiny.engine->OpenSession();
  ASSERT_OK_AND_ASSIGN(const auto blocks, tiny.engine->AllocateBlocks(session.id, 4));
  const StepDraft start{.add = {{.row = 2, .blocks = blocks}},
                        .chunks = {{.row = 2, .tokens = RandomPrompt(9, 12)}}};
  const StepDraft next{.continue_all = true};
  const DraftView start_view(start, session, 1), next_view(next, session, 2);
  ASSERT_OK(tiny.engine->Submit(start_view.request()));
  ASSERT_OK(tiny.engine->Submit(next_view.request()));
  tiny.engine.reset();
}

}  // namespace
}  // namespace reprise::engine
