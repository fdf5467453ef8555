// SPDX-License-Identifier: Apache-2.0
// Steps of several sessions that wait together: one replay runs them, each with the tokens that it
// has alone.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

constexpr int kSessions = 4;
constexpr uint32_t kSteps = 24;
constexpr int kDelayUs = 150;  // a step takes some milliseconds

struct Life {
  std::vector<uint32_t> tokens;
  uint64_t other_rows = 0;  // of all steps
};

std::vector<uint32_t> PromptOf(int session) { return {5, 80, static_cast<uint32_t>(session)}; }

// A row with a prompt of its own, and tokens one after another.
Life Live(const ServedModel& served, int session) {
  Life life;
  StreamClient client(served.NewChannel());
  life.tokens.push_back(client.StartRow(kRow, PromptOf(session), 3 + kSteps + 1));
  for (uint32_t i = 0; i < kSteps; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    const v1::StepResponse response = client.Step(step);
    EXPECT_EQ(response.rows().token_size(), 1);
    if (response.rows().token_size() == 1) life.tokens.push_back(response.rows().token(0));
    EXPECT_EQ(response.report().rows(), 1u);
    life.other_rows += response.report().other_rows();
  }
  return life;
}

std::vector<Life> LiveTogether(const ServedModel& served) {
  std::vector<Life> lives(kSessions);
  std::vector<std::thread> threads;
  for (int i = 0; i < kSessions; ++i) {
    threads.emplace_back([&, i] { lives[static_cast<size_t>(i)] = Live(served, i); });
  }
  for (std::thread& thread : threads) thread.join();
  return lives;
}

ServedModel::Options WithJoint(const JointLimits& joint) {
  ServedModel::Options options = Slowed(kDelayUs);
  options.server.joint = joint;
  return options;
}

TEST(JointSteps, RunInOneReplayWithTheTokensThatEachHasAlone) {
  ServedModel served(WithJoint({}));
  const std::vector<Life> lives = LiveTogether(served);
  uint64_t other_rows = 0;
  for (int i = 0; i < kSessions; ++i) {
    const Life& life = lives[static_cast<size_t>(i)];
    EXPECT_EQ(life.tokens, served.Reference(PromptOf(i), kSteps + 1));
    other_rows += life.other_rows;
  }
  // How often depends on the machine's load: three beside each, if all were always there in time.
  EXPECT_GT(other_rows, 0u);
}

TEST(JointSteps, RunAloneWhereTheServerIsToldSo) {
  const ServedModel served(WithJoint({.max_requests = 1}));
  for (const Life& life : LiveTogether(served)) EXPECT_EQ(life.other_rows, 0u);
}

// What one session does, over and over, while others live.
class Meanwhile {
 public:
  Meanwhile(const ServedModel& served, std::function<void(StreamClient&, uint32_t round)> act)
      : thread_([this, &served, act = std::move(act)] {
          StreamClient client(served.NewChannel());
          for (uint32_t round = 0; !stop_; ++round) act(client, round);
        }) {}
  ~Meanwhile() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(JointSteps, ALongPromptRunsAlone) {
  const ServedModel served(WithJoint({.max_given_tokens = 4}));
  std::atomic<int> prompts = 0;
  std::vector<uint32_t> blocks;
  {
    const Meanwhile meanwhile(served, [&](StreamClient& client, uint32_t round) {
      if (round == 0) blocks = client.Allocate(4);
      v1::StepRequest step = client.NewStep();
      if (round > 0) step.add_drop(kRow);
      v1::AddRow* add = step.add_add();
      add->set_row(kRow);
      add->mutable_blocks()->Add(blocks.begin(), blocks.end());
      v1::Chunk* chunk = step.add_chunks();
      chunk->set_row(kRow);
      for (uint32_t t = 0; t < 5; ++t) chunk->add_tokens(t);
      const v1::StepResponse response = client.Step(step);
      EXPECT_EQ(response.report().tokens(), 5u);
      EXPECT_EQ(response.report().other_tokens(), 0u);
      ++prompts;
    });
    LiveTogether(served);
  }
  EXPECT_GT(prompts, 0);
}

TEST(JointSteps, ARefusedOneDisturbsNobody) {
  ServedModel served(WithJoint({}));
  std::atomic<int> refused = 0;
  {
    const Meanwhile meanwhile(served, [&](StreamClient& client, uint32_t /*round*/) {
      v1::StepRequest step = client.NewStep();
      step.add_continue_rows(99);
      ASSERT_TRUE(client.Send(step));
      v1::StepStreamResponse response;
      ASSERT_TRUE(client.Receive(&response));
      EXPECT_EQ(response.error().code(), grpc::StatusCode::NOT_FOUND);
      ++refused;
    });
    EXPECT_EQ(LiveTogether(served)[1].tokens, served.Reference(PromptOf(1), kSteps + 1));
  }
  EXPECT_GT(refused, 0);
}

TEST(JointSteps, OthersGoOnWhenAClientVanishes) {
  ServedModel served(WithJoint({}));
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  {
    std::atomic<bool> stop = false;
    std::thread vanishing([&] {
      while (!stop) {
        StreamClient client(served.NewChannel());
        client.StartRow(kRow, std::vector<uint32_t>{9, 9}, 8);
        v1::StepRequest step = client.NewStep();
        step.set_continue_all(true);
        EXPECT_TRUE(client.Send(step));
        client.Cancel();
      }
    });
    EXPECT_EQ(LiveTogether(served)[2].tokens, served.Reference(PromptOf(2), kSteps + 1));
    stop = true;
    vanishing.join();
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (served.engine().pool().free_blocks != free_blocks &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks);
}

}  // namespace
}  // namespace reprise::service
