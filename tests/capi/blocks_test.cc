// SPDX-License-Identifier: Apache-2.0
// KV blocks through reprise.h beyond a session's own use: shared, read and written, swapped; and
// what an engine lets be replaced while it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Gt;

constexpr uint32_t kBlockSize = 16;

class CApiBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
    reprise_engine_options options = TinyOptions(Model());
    options.swap_bytes = 1 << 18;
    engine_ = Make<EngineHandle>([&](reprise_engine** made, reprise_error* error) {
      return reprise_engine_create(device_.get(), &options, made, error);
    });
    session_ = Open();
    info_.struct_size = sizeof(info_);
    EXPECT_DONE(reprise_engine_get_info(engine_.get(), &info_, &error));
  }
  SessionHandle Open(uint32_t account = 0, uint32_t max_swapped = 0) {
    reprise_session_limits limits = {};
    limits.struct_size = sizeof(limits);
    limits.account = account;
    limits.max_swapped = max_swapped;
    return Make<SessionHandle>([&](reprise_session** made, reprise_error* error) {
      return reprise_session_open(engine_.get(), &limits, made, error);
    });
  }
  std::vector<uint32_t> Allocate(const SessionHandle& session, uint32_t count) {
    std::vector<uint32_t> blocks(count);
    EXPECT_DONE(reprise_session_allocate_blocks(session.get(), count, blocks.data(), &error));
    return blocks;
  }
  // Writes `num_tokens` tokens into blocks of the session, by a row that is dropped again.
  void Fill(const SessionHandle& session, const std::vector<uint32_t>& blocks,
            uint32_t num_tokens) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < num_tokens; ++i) tokens.push_back(3 + i % 40);
    reprise_row_add add = {};
    add.struct_size = sizeof(add);
    add.row = 1;
    add.blocks = blocks.data();
    add.num_blocks = blocks.size();
    reprise_row_chunk chunk = {};
    chunk.struct_size = sizeof(chunk);
    chunk.row = 1;
    chunk.tokens = tokens.data();
    chunk.num_tokens = tokens.size();
    const auto step = Make<StepHandle>(reprise_step_create);
    const auto result = Make<ResultHandle>(reprise_result_create);
    EXPECT_DONE(reprise_step_add_row(step.get(), &add, &error));
    EXPECT_DONE(reprise_step_run_chunk(step.get(), &chunk, &error));
    EXPECT_DONE(reprise_session_step(session.get(), step.get(), result.get(), &error));
    EXPECT_DONE(reprise_step_clear(step.get(), &error));
    EXPECT_DONE(reprise_step_drop_row(step.get(), 1, &error));
    EXPECT_DONE(reprise_session_step(session.get(), step.get(), result.get(), &error));
  }
  reprise_session_use Use(const SessionHandle& session) {
    reprise_session_use use = {};
    use.struct_size = sizeof(use);
    EXPECT_DONE(reprise_session_get_use(session.get(), &use, &error));
    return use;
  }
  // All layers of a block.
  std::vector<char> Read(const SessionHandle& session, uint32_t block, uint32_t* num_tokens) {
    reprise_kv_part part = {block, 0, info_.kv_num_layers, 0};
    std::vector<char> contents(info_.kv_token_bytes * kBlockSize * info_.kv_num_layers);
    size_t bytes = 0;
    EXPECT_DONE(reprise_session_read_blocks(session.get(), &part, 1, contents.data(),
                                            contents.size(), &bytes, &error));
    *num_tokens = part.num_tokens;
    contents.resize(bytes);
    return contents;
  }

  DeviceHandle device_ = HostDevice();
  EngineHandle engine_;
  SessionHandle session_;
  reprise_engine_info info_ = {};
};

TEST_F(CApiBlocks, SessionsOfAnAccountReadTogether) {
  uint32_t account = 0;
  EXPECT_DONE(reprise_engine_open_account(engine_.get(), nullptr, &account, &error));
  EXPECT_EQ(account, 1u);
  const SessionHandle mine = Open(account);
  const SessionHandle other = Open(account);
  const std::vector<uint32_t> blocks = Allocate(mine, 2);
  EXPECT_REFUSED(reprise_session_share_blocks(mine.get(), "prompt", blocks.data(), 2, &error),
                 REPRISE_FAILED_PRECONDITION, "");  // they are not full
  Fill(mine, blocks, 2 * kBlockSize);
  EXPECT_DONE(reprise_session_share_blocks(mine.get(), "prompt", blocks.data(), 2, &error));
  std::vector<uint32_t> adopted(info_.max_blocks_per_row);
  size_t count = 0;
  const auto adopt = [&](const SessionHandle& session, const char* name, reprise_error* error) {
    return reprise_session_adopt_blocks(session.get(), name, adopted.data(), adopted.size(), &count,
                                        error);
  };
  EXPECT_DONE(adopt(other, "prompt", &error));
  adopted.resize(count);
  EXPECT_THAT(adopted, ElementsAreArray(blocks));
  EXPECT_EQ(Use(other).num_shared, 2u);
  EXPECT_EQ(Use(other).num_blocks, 0u);
  EXPECT_REFUSED(adopt(other, "prompt", &error), REPRISE_OUT_OF_RANGE,
                 "blocks: capacity is 2; allowed: at least max_blocks_per_row");
  EXPECT_EQ(Use(other).num_shared, 2u);
  adopted.resize(info_.max_blocks_per_row);
  EXPECT_REFUSED(adopt(session_, "prompt", &error), REPRISE_NOT_FOUND, "");  // of no account
  EXPECT_REFUSED(reprise_session_share_blocks(other.get(), "prompt", blocks.data(), 2, &error),
                 REPRISE_FAILED_PRECONDITION, "");
  EXPECT_DONE(reprise_session_release_blocks(other.get(), "prompt", &error));
  EXPECT_EQ(Use(other).num_shared, 0u);
  EXPECT_REFUSED(reprise_session_release_blocks(other.get(), "prompt", &error), REPRISE_NOT_FOUND,
                 "name: got one under which this session can use no blocks");
  EXPECT_REFUSED(reprise_session_share_blocks(mine.get(), nullptr, blocks.data(), 2, &error),
                 REPRISE_INVALID_ARGUMENT, "name: got NULL");
  EXPECT_REFUSED(reprise_session_share_blocks(mine.get(), "", blocks.data(), 2, &error),
                 REPRISE_INVALID_ARGUMENT, "");
}

TEST_F(CApiBlocks, AccountsLimitTheirSessionsTogether) {
  reprise_session_limits limits = {};
  limits.struct_size = sizeof(limits);
  limits.max_blocks = 3;
  uint32_t account = 0;
  EXPECT_DONE(reprise_engine_open_account(engine_.get(), &limits, &account, &error));
  const SessionHandle a = Open(account);
  const SessionHandle b = Open(account);
  Allocate(a, 2);
  uint32_t blocks[2] = {};
  EXPECT_REFUSED(reprise_session_allocate_blocks(b.get(), 2, blocks, &error),
                 REPRISE_RESOURCE_EXHAUSTED, "the sessions of this account hold 2 of the 3");
  limits.account = 7;
  reprise_session* session = nullptr;
  EXPECT_REFUSED(reprise_session_open(engine_.get(), &limits, &session, &error), REPRISE_NOT_FOUND,
                 "account is 7; 1 were opened");
  EXPECT_REFUSED(reprise_engine_open_account(engine_.get(), &limits, &account, &error),
                 REPRISE_INVALID_ARGUMENT, "account is 7; allowed of an account: 0");
  limits.account = 0;
  limits.max_blocks = 4;
  EXPECT_DONE(reprise_engine_set_account_limits(engine_.get(), account, &limits, &error));
  EXPECT_DONE(reprise_session_allocate_blocks(b.get(), 2, blocks, &error));
  EXPECT_REFUSED(reprise_engine_set_account_limits(engine_.get(), 0, &limits, &error),
                 REPRISE_NOT_FOUND, "account is 0; 1 were opened");
  EXPECT_REFUSED(reprise_engine_set_account_limits(nullptr, 1, &limits, &error),
                 REPRISE_INVALID_ARGUMENT, "engine: got NULL");
  EXPECT_REFUSED(reprise_engine_open_account(engine_.get(), nullptr, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "account: got NULL");
}

TEST_F(CApiBlocks, ContentsAreReadAndWritten) {
  const std::vector<uint32_t> blocks = Allocate(session_, 2);
  Fill(session_, {blocks[0]}, 5);
  uint32_t num_tokens = 0;
  const std::vector<char> contents = Read(session_, blocks[0], &num_tokens);
  EXPECT_EQ(num_tokens, 5u);
  EXPECT_EQ(contents.size(), 5 * info_.kv_num_layers * info_.kv_token_bytes);
  EXPECT_THAT(contents, ::testing::Contains(::testing::Ne(0)));

  // Into another session, layer by layer.
  const SessionHandle other = Open();
  const uint32_t to = Allocate(other, 1)[0];
  const size_t of_layer = 5 * info_.kv_token_bytes;
  for (uint32_t layer = 0; layer < info_.kv_num_layers; ++layer) {
    const reprise_kv_part part = {to, layer, 1, 5};
    EXPECT_DONE(reprise_session_write_blocks(other.get(), &part, 1,
                                             contents.data() + layer * of_layer, of_layer, &error));
  }
  EXPECT_EQ(Read(other, to, &num_tokens), contents);
  EXPECT_EQ(num_tokens, 5u);

  reprise_kv_part part = {blocks[0], 0, info_.kv_num_layers, 5};
  std::vector<char> room(contents.size() - 1);
  EXPECT_REFUSED(reprise_session_read_blocks(session_.get(), &part, 1, room.data(), room.size(),
                                             nullptr, &error),
                 REPRISE_OUT_OF_RANGE, "contents: capacity is " + std::to_string(room.size()));
  EXPECT_REFUSED(
      reprise_session_write_blocks(session_.get(), &part, 1, room.data(), room.size(), &error),
      REPRISE_INVALID_ARGUMENT, "");
  EXPECT_REFUSED(
      reprise_session_read_blocks(other.get(), &part, 1, room.data(), room.size(), nullptr, &error),
      REPRISE_PERMISSION_DENIED, "");
  EXPECT_REFUSED(reprise_session_read_blocks(session_.get(), nullptr, 1, room.data(), room.size(),
                                             nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "parts: got NULL for 1 elements");
  EXPECT_REFUSED(reprise_session_read_blocks(session_.get(), &part, 1, nullptr, 9, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "contents: got NULL for 9 elements");
  part.first_layer = info_.kv_num_layers;
  EXPECT_REFUSED(reprise_session_read_blocks(session_.get(), &part, 1, room.data(), room.size(),
                                             nullptr, &error),
                 REPRISE_OUT_OF_RANGE, "");
}

TEST_F(CApiBlocks, BlocksWaitInSwapSpace) {
  const SessionHandle session = Open(0, 2);
  const std::vector<uint32_t> blocks = Allocate(session, 3);
  Fill(session, {blocks[0]}, 7);
  uint32_t num_tokens = 0;
  const std::vector<char> before = Read(session, blocks[0], &num_tokens);
  uint32_t swapped[3] = {};
  EXPECT_REFUSED(reprise_session_swap_out(session.get(), blocks.data(), 3, swapped, &error),
                 REPRISE_RESOURCE_EXHAUSTED, "");  // its limit
  EXPECT_DONE(reprise_session_swap_out(session.get(), blocks.data(), 2, swapped, &error));
  EXPECT_EQ(Use(session).num_swapped, 2u);
  EXPECT_EQ(Use(session).num_blocks, 1u);
  reprise_pool_info pool = {};
  pool.struct_size = sizeof(pool);
  EXPECT_DONE(reprise_engine_get_pool(engine_.get(), &pool, &error));
  EXPECT_EQ(pool.swap_blocks - pool.free_swap_blocks, 2u);
  EXPECT_GT(info_.swap_bytes, 0u);

  EXPECT_REFUSED(reprise_session_swap_in(session_.get(), swapped, 1, swapped, &error),
                 REPRISE_PERMISSION_DENIED, "");
  uint32_t back = 0;
  EXPECT_DONE(reprise_session_swap_in(session.get(), swapped, 1, &back, &error));
  EXPECT_EQ(Read(session, back, &num_tokens), before);
  EXPECT_EQ(num_tokens, 7u);
  EXPECT_DONE(reprise_session_free_swapped(session.get(), swapped + 1, 1, &error));
  EXPECT_EQ(Use(session).num_swapped, 0u);
  EXPECT_REFUSED(reprise_session_swap_out(session.get(), nullptr, 1, swapped, &error),
                 REPRISE_INVALID_ARGUMENT, "blocks: got NULL for 1 elements");
  EXPECT_REFUSED(reprise_session_swap_out(session.get(), &back, 1, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "swapped: got NULL for 1 elements");
  EXPECT_REFUSED(reprise_session_swap_out(nullptr, &back, 1, swapped, &error),
                 REPRISE_INVALID_ARGUMENT, "session: got NULL");
}

// The model's rows carry nothing; hybrid_test.cc has those that do.
TEST_F(CApiBlocks, StatesOfRowsAreRefusedByName) {
  const SessionHandle session = Open();
  uint32_t state = 0;
  EXPECT_REFUSED(reprise_session_swap_out_state(session.get(), 1, &state, nullptr, &error),
                 REPRISE_FAILED_PRECONDITION, "nothing beside their KV");
  EXPECT_REFUSED(reprise_session_swap_out_state(session.get(), 1, nullptr, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "swapped_state");
  EXPECT_REFUSED(reprise_session_free_swapped_states(session.get(), &state, 1, &error),
                 REPRISE_OUT_OF_RANGE, "swapped state");
  EXPECT_REFUSED(reprise_session_free_swapped_states(session.get(), nullptr, 1, &error),
                 REPRISE_INVALID_ARGUMENT, "swapped_states: got NULL for 1 elements");
}

TEST_F(CApiBlocks, TheAttentionTreeMayBeReplaced) {
  uint64_t version = 0;
  size_t bytes = 0;
  EXPECT_DONE(
      reprise_engine_get_attention_tree(engine_.get(), nullptr, 0, &bytes, &version, &error));
  EXPECT_EQ(version, 1u);
  std::string text(bytes, 'x');
  EXPECT_REFUSED(reprise_engine_get_attention_tree(engine_.get(), text.data(), bytes - 1, nullptr,
                                                   nullptr, &error),
                 REPRISE_OUT_OF_RANGE, "allowed: 0, or at least " + std::to_string(bytes));
  EXPECT_DONE(reprise_engine_get_attention_tree(engine_.get(), text.data(), bytes, nullptr, nullptr,
                                                &error));
  EXPECT_EQ(text.back(), '\0');
  EXPECT_DONE(reprise_engine_set_attention_tree(engine_.get(), text.c_str(), &version, &error));
  EXPECT_EQ(version, 2u);
  EXPECT_REFUSED(reprise_engine_set_attention_tree(engine_.get(), "{", &version, &error),
                 REPRISE_INVALID_ARGUMENT, "");
  EXPECT_REFUSED(reprise_engine_set_attention_tree(engine_.get(), nullptr, &version, &error),
                 REPRISE_INVALID_ARGUMENT, "text: got NULL");
  EXPECT_EQ(version, 2u);
}

}  // namespace
}  // namespace reprise::capi
