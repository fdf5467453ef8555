// SPDX-License-Identifier: Apache-2.0
// KV blocks over a socket: rows fork, move to another server and wait in swap space, and say what
// they would have said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "service/kv/kv_wire.h"
#include "tests/service/kv_client.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

constexpr uint32_t kNewRow = 4;

// Runs the prompt but for its last token, over blocks of its own.
std::vector<uint32_t> Prefill(StreamClient& client, const std::vector<uint32_t>& prompt) {
  const std::vector<uint32_t> blocks = client.Allocate(4);
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(kRow);
  add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(kRow);
  chunk->mutable_tokens()->Assign(prompt.begin(), prompt.end() - 1);
  client.Step(step);
  return blocks;
}

// A step that adds a row over `blocks`, which hold all of `prompt` but its last token, and runs it.
v1::StepRequest GoOn(const StreamClient& client, const std::vector<uint32_t>& blocks,
                     const std::vector<uint32_t>& prompt) {
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(kNewRow);
  add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  add->set_context_length(static_cast<uint32_t>(prompt.size()) - 1);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(kNewRow);
  chunk->add_tokens(prompt.back());
  chunk->set_sample(true);
  return step;
}

std::vector<uint32_t> TokensFrom(StreamClient& client, const v1::StepRequest& first) {
  const v1::StepResponse response = client.Step(first);
  std::vector<uint32_t> tokens = {response.rows().token(response.rows().token_size() - 1)};
  const std::vector<uint32_t> more = Continue(client, kNewRow, 4);
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

TEST(KvCalls, DescribeSaysWhatMayBeMoved) {
  ServedModel::Options options;
  options.swap_bytes = 64 << 10;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  const v1::DescribeResponse described = DescribeOf(client);
  EXPECT_EQ(described.kv_layout().version(), 1u);
  EXPECT_EQ(described.kv_layout().block_size(), kBlockSize);
  EXPECT_EQ(described.kv_layout().num_layers(), described.model().num_layers());
  EXPECT_EQ(described.kv_layout().dtype(), described.model().kv_dtype());
  EXPECT_EQ(described.kv_layout().model().size(), 32u);
  EXPECT_EQ(described.limits().max_copies(), kMaxRows);
  EXPECT_EQ(described.limits().max_kv_transfer_bytes(), uint64_t{3} << 20);
  EXPECT_EQ(described.limits().max_kv_blocks_per_call(), 256u);
  EXPECT_GT(described.pool().swap_blocks(), 0u);
  EXPECT_EQ(described.pool().free_swap_blocks(), described.pool().swap_blocks());
  EXPECT_EQ(
      described.memory().swap_bytes(),
      described.pool().bytes() / described.pool().num_blocks() * described.pool().swap_blocks());
}

TEST(KvCalls, ARowForks) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  const std::vector<uint32_t> prompt = {5, 80, 33, 12, 96, 7, 41};
  const std::vector<uint32_t> blocks = Prefill(client, prompt);
  std::vector<uint32_t> table = client.Allocate(3);
  v1::StepRequest fork;
  {
    std::vector<uint32_t> child = table;
    child.insert(child.begin(), blocks[0]);
    fork = GoOn(client, child, prompt);
  }
  fork.add_copy_blocks(blocks[1]);
  fork.add_copy_blocks(table[0]);
  EXPECT_EQ(TokensFrom(client, fork), served.Reference(prompt, 5));
}

TEST(KvCalls, ARowMovesToAnotherServer) {
  ServedModel from, to;
  StreamClient source(from.NewChannel()), target(to.NewChannel());
  const std::vector<uint32_t> prompt = {5, 80, 33, 12, 96, 7, 41};
  const std::vector<uint32_t> blocks = Prefill(source, prompt);
  v1::ReadBlocksResponse read;
  ASSERT_TRUE(Read(source, blocks, &read).ok());
  ASSERT_EQ(read.parts_size(), 4);
  EXPECT_EQ(read.parts(0).num_tokens(), 4u);
  EXPECT_EQ(read.parts(1).num_tokens(), 2u);
  EXPECT_EQ(read.parts(2).num_tokens(), 0u);
  for (const v1::KvPart& part : read.parts()) EXPECT_EQ(part.crc32(), Crc32Of(part));
  target.Allocate(3);  // other ids than there
  const std::vector<uint32_t> new_blocks = target.Allocate(4);
  const grpc::Status written = Write(target, WriteOf(read, new_blocks));
  ASSERT_TRUE(written.ok()) << written.error_message();
  EXPECT_EQ(TokensFrom(target, GoOn(target, new_blocks, prompt)), to.Reference(prompt, 5));
}

TEST(KvCalls, BlocksWaitInSwapSpace) {
  ServedModel::Options options;
  options.swap_bytes = 64 << 10;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  const std::vector<uint32_t> prompt = {5, 80, 33, 12, 96, 7, 41};
  const std::vector<uint32_t> blocks = Prefill(client, prompt);
  v1::StepRequest drop = client.NewStep();
  drop.add_drop(kRow);
  client.Step(drop);
  v1::SwapOutResponse swapped;
  ASSERT_TRUE(SwapOut(client, blocks, &swapped).ok());
  EXPECT_EQ(swapped.free_blocks(), free_blocks);
  EXPECT_EQ(swapped.free_swap_blocks(), served.engine().pool().swap_blocks - 4);
  {
    StreamClient other(served.NewChannel());
    other.StartRow(1, kOtherPrompt, kMaxContext);
    Continue(other, 1, 3);
  }
  v1::SwapInResponse back;
  const grpc::Status status =
      SwapIn(client, {swapped.swapped().begin(), swapped.swapped().end()}, &back);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(back.blocks_size(), 4);
  EXPECT_EQ(back.free_swap_blocks(), served.engine().pool().swap_blocks);
  EXPECT_EQ(TokensFrom(client, GoOn(client, {back.blocks().begin(), back.blocks().end()}, prompt)),
            served.Reference(prompt, 5));
}

// Of a model whose rows carry state beside their KV: a row that was swapped, and a fork of it, go
// on as the row would have.
TEST(KvCalls, TheStateOfARowWaitsInSwapSpaceToo) {
  ServedModel::Options options;
  options.swap_bytes = 64 << 10;
  options.architecture = "granitemoehybrid";
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  const v1::DescribeResponse described = DescribeOf(client);
  EXPECT_GT(described.limits().row_state_bytes(), 0u);
  EXPECT_GT(described.pool().swap_states(), 0u);
  EXPECT_EQ(described.pool().free_swap_states(), described.pool().swap_states());
  // Whole blocks, so that a fork needs no copy.
  const std::vector<uint32_t> prompt = {5, 80, 33, 12, 96, 7, 41, 3, 14};
  const std::vector<uint32_t> blocks = Prefill(client, prompt);

  grpc::ClientContext context;
  v1::SwapOutStateRequest request;
  v1::SwapOutStateResponse state;
  request.set_session(client.session());
  request.set_row(kRow);
  const grpc::Status saved = client.stub().SwapOutState(&context, request, &state);
  ASSERT_TRUE(saved.ok()) << saved.error_message();
  EXPECT_EQ(state.context_length(), 8u);
  EXPECT_EQ(state.free_swap_states(), described.pool().swap_states() - 1);
  v1::StepRequest drop = client.NewStep();
  drop.add_drop(kRow);
  client.Step(drop);
  v1::SwapOutResponse swapped;
  ASSERT_TRUE(SwapOut(client, blocks, &swapped).ok());
  v1::SwapInResponse back;
  ASSERT_TRUE(SwapIn(client, {swapped.swapped().begin(), swapped.swapped().end()}, &back).ok());
  const std::vector<uint32_t> table = {back.blocks().begin(), back.blocks().end()};
  // Without its state it is refused.
  EXPECT_THAT(client.Refused(GoOn(client, table, prompt)).message(),
              ::testing::HasSubstr("fork_of or swapped_state"));
  v1::StepRequest add = GoOn(client, table, prompt);
  add.mutable_add(0)->set_swapped_state(state.swapped_state());
  add.clear_chunks();
  client.Step(add);
  EXPECT_EQ(DescribeOf(client).pool().free_swap_states(), described.pool().swap_states());

  v1::StepRequest fork = GoOn(client, {table[0], table[1], client.Allocate(1)[0]}, prompt);
  fork.mutable_add(0)->set_row(kRow);
  fork.mutable_add(0)->set_fork_of(kNewRow);
  fork.mutable_chunks(0)->set_row(kRow);
  v1::Chunk* chunk = fork.add_chunks();  // the row itself, in the same step
  *chunk = fork.chunks(0);
  chunk->set_row(kNewRow);
  const v1::StepResponse first = client.Step(fork);
  const std::vector<uint32_t> expected = served.Reference(prompt, 3);
  ASSERT_EQ(first.rows().token_size(), 2);
  EXPECT_EQ(first.rows().token(0), expected[0]);
  EXPECT_EQ(first.rows().token(1), expected[0]);
  v1::StepRequest next = client.NewStep();
  next.set_continue_all(true);
  const v1::StepResponse second = client.Step(next);
  EXPECT_EQ(second.rows().token(0), expected[1]);
  EXPECT_EQ(second.rows().token(1), expected[1]);

  grpc::ClientContext again;
  EXPECT_TRUE(client.stub().SwapOutState(&again, request, &state).ok());
  grpc::ClientContext freeing;
  v1::FreeSwappedRequest forget;
  v1::FreeSwappedResponse forgot;
  forget.set_session(client.session());
  forget.add_swapped_states(state.swapped_state());
  EXPECT_TRUE(client.stub().FreeSwapped(&freeing, forget, &forgot).ok());
  EXPECT_EQ(forgot.free_swap_states(), described.pool().swap_states());
}

TEST(KvCalls, TheEndOfASessionFreesItsSwapSpace) {
  ServedModel::Options options;
  options.swap_bytes = 64 << 10;
  ServedModel served(options);
  const uint32_t all = served.engine().pool().swap_blocks;
  {
    StreamClient client(served.NewChannel());
    v1::SwapOutResponse swapped;
    ASSERT_TRUE(SwapOut(client, client.Allocate(3), &swapped).ok());
    EXPECT_EQ(served.engine().pool().free_swap_blocks, all - 3);
    grpc::ClientContext context;
    v1::FreeSwappedRequest request;
    v1::FreeSwappedResponse response;
    request.set_session(client.session());
    request.add_swapped(swapped.swapped(1));
    EXPECT_TRUE(client.stub().FreeSwapped(&context, request, &response).ok());
    EXPECT_EQ(response.free_swap_blocks(), all - 2);
    client.Cancel();
  }
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_swap_blocks == all; }));
}

}  // namespace
}  // namespace reprise::service
