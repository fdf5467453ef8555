// SPDX-License-Identifier: Apache-2.0
// Requests of several steps over a socket: tokens, what answers say, rows that pause and go on,
// clients that vanish or give up in the middle, and who gets how much of the device beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

v1::StepRequest ContinueAll(const StreamClient& client, uint32_t num_steps) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_num_steps(num_steps);
  return step;
}

// What the only row of the session sampled.
void AppendTokens(const v1::StepResponse& response, std::vector<uint32_t>* tokens) {
  for (int i = 0; i < response.rows().row_size(); ++i)
    if (response.rows().sampled(i)) tokens->push_back(response.rows().token(i));
}

TEST(StepsPerRequest, SpeakTheEnginesTokensPipelined) {
  ServedModel served(Slowed(100));
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, kMaxContext)};
  const std::vector<uint32_t> steps = {8, 1, 3, 0, 8, 5, 2, 8};  // 0 stands for 1
  const uint64_t first = client.next_sequence();
  size_t sent = 0;
  const auto send = [&] {
    ASSERT_TRUE(client.Send(ContinueAll(client, steps[sent++])));
    client.CountStep();
  };
  send();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (sent < steps.size()) send();  // one ahead of what is read
    v1::StepStreamResponse response;
    ASSERT_TRUE(client.Receive(&response));
    ASSERT_TRUE(response.has_step()) << response.ShortDebugString();
    EXPECT_EQ(response.step().sequence(), first + i);
    EXPECT_THAT(response.step().rows().token(), SizeIs(std::max(steps[i], 1u)));
    AppendTokens(response.step(), &tokens);
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, tokens.size()));
}

TEST(StepsPerRequest, AnswerEachStepByItself) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  client.StartRow(kRow + 1, kLongPrompt, 32);
  const v1::StepResponse response = client.Step(ContinueAll(client, 4));
  EXPECT_THAT(response.rows().row(),
              ElementsAre(kRow, kRow + 1, kRow, kRow + 1, kRow, kRow + 1, kRow, kRow + 1));
  EXPECT_THAT(response.rows().status(), Each(v1::ROW_STATUS_RAN));
  EXPECT_THAT(response.rows().context_length(), ElementsAre(8, 8, 9, 9, 10, 10, 11, 11));
  ASSERT_EQ(response.steps_size(), 4);
  uint64_t device_ns = 0;
  for (const v1::SingleStep& step : response.steps()) {
    EXPECT_EQ(step.num_rows(), 2u);
    EXPECT_EQ(step.report().graph(), "decode/2");
    EXPECT_EQ(step.report().rows(), 2u);
    EXPECT_GT(step.device_ns(), 0u);
    device_ns += step.device_ns();
  }
  EXPECT_GE(response.ledger().device_ns(), device_ns);
  EXPECT_GE(response.ledger().total_ns(), response.ledger().device_ns());
  v1::StepRequest omitting = ContinueAll(client, 3);
  omitting.set_omit_rows(true);
  const v1::StepResponse omitted = client.Step(omitting);
  EXPECT_FALSE(omitted.has_rows());
  EXPECT_EQ(omitted.steps_size(), 3);
  EXPECT_EQ(client.Step(ContinueAll(client, 1)).steps_size(), 0);
}

TEST(StepsPerRequest, ARowWithoutBlocksPausesAndGoesOnWithMore) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 12)};  // of 7
  const v1::StepResponse paused = client.Step(ContinueAll(client, 8));
  // Steps in which no row could run are not run.
  EXPECT_THAT(paused.rows().context_length(), ElementsAre(8, 9, 10, 11, 12));
  EXPECT_THAT(paused.rows().status(), Each(v1::ROW_STATUS_RAN));
  EXPECT_EQ(paused.steps_size(), 5);
  AppendTokens(paused, &tokens);
  EXPECT_THAT(client.Refused(ContinueAll(client, 8)).message(),
              ::testing::HasSubstr("its block table has room for 12"));
  v1::StepRequest more = ContinueAll(client, 8);
  v1::AppendBlocks* append = more.add_append();
  append->set_row(kRow);
  for (const uint32_t block : client.Allocate(2)) append->add_blocks(block);
  AppendTokens(client.Step(more), &tokens);
  EXPECT_THAT(tokens, SizeIs(14));
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 14));
}

TEST(StepsPerRequest, ARowThatStopsMidwaySaysSo) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  v1::StepRequest step = client.NewStep();
  for (const uint32_t row : {kRow, kRow + 1}) {
    v1::AddRow* add = step.add_add();
    add->set_row(row);
    for (const uint32_t block : client.Allocate(5)) add->add_blocks(block);
    if (row == kRow) add->mutable_sampling()->set_max_new_tokens(3);
    v1::Chunk* chunk = step.add_chunks();
    chunk->set_row(row);
    for (const uint32_t token : kLongPrompt) chunk->add_tokens(token);
    chunk->set_sample(true);
  }
  step.set_num_steps(5);
  const v1::StepResponse response = client.Step(step);
  // Of row kRow and of kRow + 1 in turn.
  constexpr auto kRan = v1::ROW_STATUS_RAN;
  constexpr auto kStopped = v1::ROW_STATUS_STOPPED;
  EXPECT_THAT(response.rows().status(),
              ElementsAre(kRan, kRan, kRan, kRan, kRan, kRan, kStopped, kRan, kStopped, kRan));
  constexpr auto kNone = v1::FINISH_REASON_UNSPECIFIED;
  EXPECT_THAT(response.rows().finish_reason(),
              ElementsAre(kNone, kNone, kNone, kNone, v1::FINISH_REASON_LENGTH, kNone, kNone, kNone,
                          kNone, kNone));
}

// ---- clients that give up ----

TEST(StepsPerRequest, AClientThatVanishesMidwayDisturbsNobody) {
  ServedModel served(Slowed(300));
  StreamClient neighbour(served.NewChannel());
  std::vector<uint32_t> tokens = {neighbour.StartRow(kRow, kLongPrompt, kMaxContext)};
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  for (int round = 0; round < 8; ++round) {
    StreamClient client(served.NewChannel());
    client.StartRow(kRow, kLongPrompt, kMaxContext);
    for (int i = 0; i < 4; ++i) {  // two in flight, two queued
      ASSERT_TRUE(client.Send(ContinueAll(client, kMaxSteps)));
      client.CountStep();
    }
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    client.Cancel();
    EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
    AppendTokens(neighbour.Step(ContinueAll(neighbour, 2)), &tokens);
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, tokens.size()));
  EXPECT_TRUE(served.engine().health().ok());
}

// The deadline passes while the steps run: the same request sent again is given all of them.
TEST(StepsPerRequest, AUnaryRequestGivenUpMidwayIsAnsweredWhenItIsSentAgain) {
  ServedModel served(Slowed(1000));
  StreamClient client(served.NewChannel());
  StreamClient neighbour(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, kMaxContext)};
  std::vector<uint32_t> others = {neighbour.StartRow(kRow, kLongPrompt, kMaxContext)};
  const auto call = [&client](const v1::StepRequest& step, v1::StepResponse* response,
                              std::chrono::milliseconds timeout) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    return client.stub().Step(&context, step, response);
  };
  bool gave_up = false;
  for (int i = 0; i < 4; ++i) {
    const v1::StepRequest step = ContinueAll(client, 4);
    v1::StepResponse lost, again;
    const grpc::Status status = call(step, &lost, std::chrono::milliseconds(10));
    gave_up |= status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    AppendTokens(neighbour.Step(ContinueAll(neighbour, 3)), &others);
    ASSERT_TRUE(call(step, &again, std::chrono::seconds(60)).ok());
    client.CountStep();
    EXPECT_EQ(again.steps_size(), 4);
    AppendTokens(again, &tokens);
  }
  EXPECT_TRUE(gave_up);
  EXPECT_THAT(tokens, SizeIs(17));
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, tokens.size()));
  EXPECT_EQ(others, served.Reference(kLongPrompt, others.size()));
}

// ---- fairness ----

// Keeps as many requests waiting as it may, the same row over and over; counts steps.
void Ask(const ServedModel& served, uint32_t num_steps, const std::atomic<bool>& stop,
         std::atomic<int>* steps) {
  StreamClient client(served.NewChannel());
  const std::vector<uint32_t> blocks = client.Allocate(4);
  bool resident = false;
  uint32_t waiting = 0;
  while (!stop || waiting > 0) {
    for (; !stop && waiting < 4; ++waiting) {
      v1::StepRequest step = client.NewStep();
      if (resident) step.add_drop(kRow);
      v1::AddRow* add = step.add_add();
      add->set_row(kRow);
      add->mutable_blocks()->Add(blocks.begin(), blocks.end());
      v1::Chunk* chunk = step.add_chunks();
      chunk->set_row(kRow);
      chunk->add_tokens(1);
      chunk->set_sample(true);
      step.set_num_steps(num_steps);
      ASSERT_TRUE(client.Send(step));
      client.CountStep();
      resident = true;
    }
    v1::StepStreamResponse response;
    ASSERT_TRUE(client.Receive(&response));
    ASSERT_TRUE(response.has_step()) << response.ShortDebugString();
    *steps += response.step().rows().row_size();
    --waiting;
  }
}

TEST(StepsPerRequest, WhoAsksForEightAtATimeGetsNoMoreOfTheDevice) {
  ServedModel served(Slowed(100));
  std::atomic<bool> stop = false;
  std::atomic<int> eights = 0, ones = 0;
  std::thread asks_for_eight([&] { Ask(served, kMaxSteps, stop, &eights); });
  std::thread asks_for_one([&] { Ask(served, 1, stop, &ones); });
  // What both get while both ask.
  EXPECT_TRUE(Eventually([&] { return eights > 0 && ones > 0; }));
  const int eights_before = eights, ones_before = ones;
  int of_eights = 0, of_ones = 0;
  EXPECT_TRUE(Eventually([&] {
    of_eights = eights - eights_before;
    of_ones = ones - ones_before;
    return of_eights + of_ones >= 400;
  }));
  stop = true;
  asks_for_eight.join();
  asks_for_one.join();
  EXPECT_GT(of_ones, 0);
  EXPECT_LT(of_eights, 3 * of_ones) << of_eights << " and " << of_ones << " steps";
  EXPECT_LT(of_ones, 3 * of_eights) << of_ones << " and " << of_eights << " steps";
}

// Its row, with a prompt and as many steps as asked for, before any step of the session has run.
v1::StepRequest FirstRequest(StreamClient& client, uint32_t num_steps) {
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(kRow);
  for (const uint32_t block : client.Allocate(5)) add->add_blocks(block);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(kRow);
  chunk->add_tokens(1);
  chunk->set_sample(true);
  step.set_num_steps(num_steps);
  return step;
}

uint64_t QueueNs(StreamClient& client) {
  v1::StepStreamResponse response;
  EXPECT_TRUE(client.Receive(&response));
  EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
  return response.step().ledger().queue_ns();
}

// Two that come while the device is busy: who asks for one step goes before who asks for eight,
// although it came later and neither has run a step that could tell.
TEST(StepsPerRequest, TheFirstRequestOfASessionCountsAllItsSteps) {
  ServedModel::Options options = Slowed(8000);  // eight steps take about 800 ms
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  // Whether so many requests come to be on the device, and so many to wait.
  const auto becomes = [&served](int in_flight, int waiting) {
    return Eventually([&] {
      // The endpoint takes ten connections in a tenth of a second.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const Scrape now(served.server().metrics_address());
      return now["reprise_requests_in_flight"] == in_flight &&
             now["reprise_requests_waiting"] == waiting;
    });
  };
  StreamClient busy(served.NewChannel()), eight(served.NewChannel()), one(served.NewChannel());
  busy.StartRow(kRow, kLongPrompt, kMaxContext);
  const v1::StepRequest asks_for_eight = FirstRequest(eight, kMaxSteps);
  const v1::StepRequest asks_for_one = FirstRequest(one, 1);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(busy.Send(ContinueAll(busy, kMaxSteps)));
    busy.CountStep();
  }
  ASSERT_TRUE(becomes(2, 0));
  ASSERT_TRUE(eight.Send(asks_for_eight));
  ASSERT_TRUE(becomes(2, 1));
  ASSERT_TRUE(one.Send(asks_for_one));
  ASSERT_TRUE(becomes(2, 2));
  const uint64_t one_ns = QueueNs(one);
  EXPECT_LT(one_ns, QueueNs(eight));
  for (int i = 0; i < 2; ++i) QueueNs(busy);
}

}  // namespace
}  // namespace reprise::service
