// SPDX-License-Identifier: Apache-2.0
// The service over a socket, when all is well: describe, steps, pipelining, order, blocks, unary
// steps, the ledger.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::StartsWith;

v1::DescribeResponse Describe(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  v1::DescribeResponse response;
  const grpc::Status status =
      v1::StepService::NewStub(channel)->Describe(&context, v1::DescribeRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST(Describe, SaysWhatIsServed) {
  ServedModel served;
  const v1::DescribeResponse described = Describe(served.NewChannel());
  EXPECT_EQ(described.model().architecture(), "llama");
  EXPECT_EQ(described.model().vocab_size(), kVocab);
  EXPECT_EQ(described.model().dtype(), "f32");
  EXPECT_EQ(described.model().kv_dtype(), "f32");
  EXPECT_THAT(described.model().eos_token_ids(), ElementsAre(2));
  EXPECT_EQ(described.pool().block_size(), kBlockSize);
  EXPECT_GT(described.pool().num_blocks(), kMaxContext / kBlockSize);
  EXPECT_EQ(described.pool().free_blocks(), described.pool().num_blocks() - 1);
  EXPECT_EQ(described.limits().max_rows(), kMaxRows);
  EXPECT_EQ(described.limits().max_context_length(), kMaxContext);
  EXPECT_EQ(described.limits().pipeline_depth(), 2u);
  EXPECT_EQ(described.limits().max_steps_per_request(), kMaxSteps);
  EXPECT_EQ(described.limits().max_message_bytes(), 4u << 20);
  EXPECT_EQ(described.limits().min_shared_tokens(), 0u);
  EXPECT_EQ(described.device().kind(), "host");
  EXPECT_EQ(described.api_version(), "reprise.v1");
  std::set<std::string> kinds;
  for (const v1::Bucket& bucket : described.buckets()) {
    kinds.insert(bucket.kind());
    EXPECT_GT(bucket.kernel_nodes(), 0u);
    EXPECT_EQ(bucket.other_nodes(), 0u);
  }
  EXPECT_THAT(kinds, ElementsAre("decode", "mixed"));
}

TEST(StepStream, SpeaksTheEnginesTokens) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  ASSERT_TRUE(client.opened());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 32)};
  for (const uint32_t token : Continue(client, kRow, 20)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 21));
  EXPECT_TRUE(client.Finish().ok());
}

// Runs the step; what its rows sample, by row.
void Collect(StreamClient& client, const v1::StepRequest& step,
             std::map<uint32_t, std::vector<uint32_t>>* tokens) {
  const v1::StepResponse response = client.Step(step);
  for (int i = 0; i < response.rows().row_size(); ++i)
    (*tokens)[response.rows().row(i)].push_back(response.rows().token(i));
}

// Adds a row that has `context_length` tokens of the prompt, and runs the others.
void AddRow(v1::StepRequest& step, uint32_t row, std::span<const uint32_t> blocks,
            std::span<const uint32_t> prompt, uint32_t context_length) {
  v1::AddRow* add = step.add_add();
  add->set_row(row);
  add->mutable_blocks()->Add(blocks.begin(), blocks.end());
  add->set_context_length(context_length);
  const std::span<const uint32_t> others = prompt.subspan(context_length);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(row);
  chunk->mutable_tokens()->Add(others.begin(), others.end());
  chunk->set_sample(true);
}

TEST(StepStream, GroupsOfTwoSessionsMayHaveOneNumber) {
  ServedModel served;
  StreamClient clients[] = {StreamClient(served.NewChannel()), StreamClient(served.NewChannel())};
  const std::vector<uint32_t> prompts[] = {kLongPrompt, {64, 1, 17, 88, 35}};
  std::map<uint32_t, std::vector<uint32_t>> tokens[2];
  for (size_t c = 0; c < 2; ++c) {
    // Two rows over the prompt's first block.
    std::vector<uint32_t> blocks = clients[c].Allocate(10);
    v1::StepRequest step = clients[c].NewStep();
    AddRow(step, kRow, std::span(blocks).first(5), prompts[c], 0);
    Collect(clients[c], step, &tokens[c]);
    step = clients[c].NewStep();
    blocks[5] = blocks[0];
    AddRow(step, kRow + 1, std::span(blocks).last(5), prompts[c], kBlockSize);
    v1::PrefixGroup* prefix = step.add_prefixes();
    prefix->set_group(1);
    prefix->set_num_blocks(1);
    prefix->add_rows(kRow);
    prefix->add_rows(kRow + 1);
    Collect(clients[c], step, &tokens[c]);
  }
  for (int i = 0; i < 5; ++i) {
    for (size_t c = 0; c < 2; ++c) {
      v1::StepRequest step = clients[c].NewStep();
      step.set_continue_all(true);
      Collect(clients[c], step, &tokens[c]);
    }
  }
  for (size_t c = 0; c < 2; ++c) {
    const std::vector<uint32_t> expected = served.Reference(prompts[c], 6);
    EXPECT_EQ(tokens[c][kRow], expected);
    EXPECT_EQ(tokens[c][kRow + 1], expected);
  }
}

TEST(StepStream, SessionLeftOutIsTheStreamsOwn) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  v1::StepRequest step = client.NewStep();
  client.StartRow(kRow, kLongPrompt, 32);
  step = client.NewStep();
  step.clear_session();
  step.set_continue_all(true);
  EXPECT_THAT(client.Step(step).rows().row(), ElementsAre(kRow));
}

TEST(StepStream, ReportsRowsGraphAndLedger) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  const v1::StepResponse response = client.Step(step);
  EXPECT_EQ(response.sequence(), 2u);
  EXPECT_THAT(response.rows().row(), ElementsAre(kRow));
  EXPECT_THAT(response.rows().status(), ElementsAre(v1::ROW_STATUS_RAN));
  EXPECT_THAT(response.rows().sampled(), ElementsAre(true));
  EXPECT_THAT(response.rows().context_length(), ElementsAre(kLongPrompt.size() + 1));
  EXPECT_LT(response.rows().logprob(0), 0.0f);
  EXPECT_THAT(response.report().graph(), StartsWith("decode/"));
  EXPECT_TRUE(response.report().replayed());
  EXPECT_EQ(response.report().rows(), 1u);
  EXPECT_EQ(response.report().tokens(), 1u);
  const v1::StepLedger& ledger = response.ledger();
  EXPECT_GT(ledger.wire_ns(), 0u);
  EXPECT_GT(ledger.device_ns(), 0u);
  EXPECT_GT(ledger.reply_ns(), 0u);
  EXPECT_GE(ledger.total_ns(), ledger.wire_ns() + ledger.queue_ns() + ledger.validate_ns() +
                                   ledger.ring_ns() + ledger.launch_ns() + ledger.reply_ns());
  EXPECT_GE(ledger.total_ns(), ledger.device_ns());
}

TEST(StepStream, EagerStepSaysSoAndSpeaksTheSameTokens) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 32)};
  for (int i = 0; i < 5; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    step.set_mode(v1::EXECUTION_MODE_EAGER);
    const v1::StepResponse response = client.Step(step);
    EXPECT_FALSE(response.report().replayed());
    ASSERT_THAT(response.rows().token(), SizeIs(1));
    tokens.push_back(response.rows().token(0));
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 6));
}

TEST(StepStream, OmitsRowsWhenAsked) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_omit_rows(true);
  const v1::StepResponse response = client.Step(step);
  EXPECT_FALSE(response.has_rows());
  EXPECT_EQ(response.report().rows(), 1u);
}

TEST(StepStream, PipelinesTwoDeepAndAnswersInOrder) {
  ServedModel served(Slowed(200));
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, kMaxContext)};
  constexpr uint64_t kSteps = 40;
  const uint64_t first = client.next_sequence();
  uint64_t sent = 0;
  auto send = [&] {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    ASSERT_TRUE(client.Send(step));
    client.CountStep();
    ++sent;
  };
  send();
  for (uint64_t i = 0; i < kSteps; ++i) {
    if (sent < kSteps) send();  // always one ahead of what is read
    v1::StepStreamResponse response;
    ASSERT_TRUE(client.Receive(&response));
    ASSERT_TRUE(response.has_step()) << response.ShortDebugString();
    EXPECT_EQ(response.step().sequence(), first + i);
    ASSERT_THAT(response.step().rows().token(), SizeIs(1));
    tokens.push_back(response.step().rows().token(0));
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, kSteps + 1));
}

// More than the pipeline takes: the rest waits in the server, and says how long.
TEST(StepStream, QueuesStepsBeyondThePipelineDepth) {
  ServedModel served(Slowed(200));
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, kMaxContext);
  constexpr uint64_t kSteps = 12;
  const uint64_t first = client.next_sequence();
  for (uint64_t i = 0; i < kSteps; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    ASSERT_TRUE(client.Send(step));
    client.CountStep();
  }
  uint64_t longest_queue_ns = 0;
  for (uint64_t i = 0; i < kSteps; ++i) {
    v1::StepStreamResponse response;
    ASSERT_TRUE(client.Receive(&response));
    ASSERT_TRUE(response.has_step()) << response.ShortDebugString();
    EXPECT_EQ(response.step().sequence(), first + i);
    longest_queue_ns = std::max(longest_queue_ns, response.step().ledger().queue_ns());
  }
  EXPECT_GT(longest_queue_ns, 100000u);
}

TEST(StepStream, RefusedStepIsAnsweredInItsPlace) {
  ServedModel served(Slowed(200));
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, kMaxContext);
  v1::StepRequest good = client.NewStep();
  good.set_continue_all(true);
  v1::StepRequest bad = good;
  bad.set_sequence(good.sequence() + 1);
  bad.add_copy_blocks(1);
  v1::StepRequest behind = good;
  behind.set_sequence(good.sequence() + 2);
  ASSERT_TRUE(client.Send(good) && client.Send(bad) && client.Send(behind));
  v1::StepStreamResponse response;
  ASSERT_TRUE(client.Receive(&response));
  EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
  ASSERT_TRUE(client.Receive(&response));
  EXPECT_EQ(response.error().code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(response.error().sequence(), bad.sequence());
  // The number of the refused step is free again, so the one behind it came too early.
  ASSERT_TRUE(client.Receive(&response));
  EXPECT_EQ(response.error().code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(response.error().sequence(), behind.sequence());
  client.CountStep();
  v1::StepRequest again = client.NewStep();
  again.set_continue_all(true);
  EXPECT_EQ(client.Step(again).sequence(), bad.sequence());
}

TEST(StepStream, TwoSessionsInterleave) {
  ServedModel served(Slowed(100));
  StreamClient first(served.NewChannel());
  StreamClient second(served.NewChannel());
  EXPECT_NE(first.session(), second.session());
  const std::vector<uint32_t> other_prompt = {9, 9, 60};
  // The same row id in two sessions is two rows.
  std::vector<uint32_t> tokens = {first.StartRow(kRow, kLongPrompt, 32)};
  std::vector<uint32_t> other = {second.StartRow(kRow, other_prompt, 32)};
  for (int i = 0; i < 15; ++i) {
    v1::StepRequest step = first.NewStep();
    step.set_continue_all(true);
    v1::StepRequest other_step = second.NewStep();
    other_step.set_continue_all(true);
    ASSERT_TRUE(first.Send(step) && second.Send(other_step));
    v1::StepStreamResponse response;
    ASSERT_TRUE(first.Receive(&response));
    ASSERT_THAT(response.step().rows().token(), SizeIs(1));
    tokens.push_back(response.step().rows().token(0));
    ASSERT_TRUE(second.Receive(&response));
    ASSERT_THAT(response.step().rows().token(), SizeIs(1));
    other.push_back(response.step().rows().token(0));
    first.CountStep();
    second.CountStep();
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 16));
  EXPECT_EQ(other, served.Reference(other_prompt, 16));
}

// As many streams as rows, each two deep, nothing slowed down: reads, answers and writes of a
// stream meet on several threads.
TEST(StepStream, ManyStreamsPipelineAtFullSpeed) {
  ServedModel served;
  constexpr int kSteps = 50;
  std::vector<std::thread> threads;
  std::vector<std::vector<uint32_t>> tokens(kMaxRows);
  for (uint32_t i = 0; i < kMaxRows; ++i) {
    threads.emplace_back([&served, &mine = tokens[i], i] {
      StreamClient client(served.NewChannel());
      mine = {client.StartRow(i, kLongPrompt, kMaxContext)};
      int sent = 0;
      auto send = [&] {
        v1::StepRequest step = client.NewStep();
        step.set_continue_all(true);
        EXPECT_TRUE(client.Send(step));
        client.CountStep();
        ++sent;
      };
      send();
      for (int step = 0; step < kSteps; ++step) {
        if (sent < kSteps) send();
        v1::StepStreamResponse response;
        EXPECT_TRUE(client.Receive(&response));
        ASSERT_THAT(response.step().rows().token(), SizeIs(1)) << response.ShortDebugString();
        mine.push_back(response.step().rows().token(0));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<uint32_t> reference = served.Reference(kLongPrompt, kSteps + 1);
  for (const std::vector<uint32_t>& mine : tokens) EXPECT_EQ(mine, reference);
}

TEST(StepStream, EndOfStreamFreesWhatTheSessionHeld) {
  ServedModel served;
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks - 8);
  EXPECT_TRUE(client.Finish().ok());
  // Whoever has seen the end of the stream finds the blocks free.
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks);
}

TEST(StepStream, HalfClosedStreamStillGetsItsAnswers) {
  ServedModel served(Slowed(200));
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  for (int i = 0; i < 4; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    ASSERT_TRUE(client.Send(step));
    client.CountStep();
  }
  client.HalfClose();
  v1::StepStreamResponse response;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(client.Receive(&response));
    EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
  }
  EXPECT_FALSE(client.Receive(&response));
  EXPECT_TRUE(client.Finish().ok());
}

TEST(UnaryStep, SharesTheSessionsRowsAndSequence) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 32)};
  for (int i = 0; i < 6; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    if (i % 2 == 0) {
      grpc::ClientContext context;
      v1::StepResponse response;
      const grpc::Status status = client.stub().Step(&context, step, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      client.CountStep();
      ASSERT_THAT(response.rows().token(), SizeIs(1));
      EXPECT_EQ(response.sequence(), step.sequence());
      EXPECT_GT(response.ledger().total_ns(), 0u);
      tokens.push_back(response.rows().token(0));
    } else {
      tokens.push_back(Continue(client, kRow, 1).at(0));
    }
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 7));
}

TEST(Allocate, HandsOutDistinctBlocksAndFreeTakesThemBack) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  const std::vector<uint32_t> blocks = client.Allocate(10);
  EXPECT_THAT(std::set<uint32_t>(blocks.begin(), blocks.end()), SizeIs(10));
  grpc::ClientContext context;
  v1::FreeRequest request;
  request.set_session(client.session());
  request.mutable_blocks()->Add(blocks.begin(), blocks.end());
  v1::FreeResponse response;
  const grpc::Status status = client.stub().Free(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.free_blocks(), free_blocks);
}

}  // namespace
}  // namespace reprise::service
