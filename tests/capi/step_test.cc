// SPDX-License-Identifier: Apache-2.0
// Steps through reprise.h: the tokens are the engine's own, and everything that a request can say
// arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/step_draft.h"
#include "runtime/device.h"
#include "tests/capi/handles.h"
#include "tests/testing/status_matchers.h"

namespace reprise::capi {
namespace {

using ::testing::ElementsAre;

const std::vector<uint32_t> kPrompt = {5, 9, 2, 7};

template <typename T>
std::vector<T> Column(const T* column, size_t count) {
  return {column, column + count};
}

class CApiStep : public ::testing::Test {
 protected:
  CApiStep() {
    const reprise_engine_options options = TinyOptions(Model());
    engine_ = Make<EngineHandle>([&](reprise_engine** made, reprise_error* error) {
      return reprise_engine_create(device_.get(), &options, made, error);
    });
    session_ = Make<SessionHandle>([&](reprise_session** made, reprise_error* error) {
      return reprise_session_open(engine_.get(), nullptr, made, error);
    });
    step_ = Make<StepHandle>(reprise_step_create);
    result_ = Make<ResultHandle>(reprise_result_create);
    EXPECT_EQ(reprise_sampling_init(&sampling_, sizeof(sampling_), nullptr), REPRISE_OK);
    chunk_.struct_size = sizeof(chunk_);
  }
  std::vector<uint32_t> Allocate(uint32_t count) {
    std::vector<uint32_t> blocks(count);
    EXPECT_DONE(reprise_session_allocate_blocks(session_.get(), count, blocks.data(), &error));
    return blocks;
  }
  // A row with blocks for 32 tokens that samples as `sampling_` says, and its prompt.
  void Start(uint32_t row) {
    const std::vector<uint32_t> blocks = Allocate(2);
    reprise_row_add add = {};
    add.struct_size = sizeof(add);
    add.row = row;
    add.sampling = &sampling_;
    add.blocks = blocks.data();
    add.num_blocks = blocks.size();
    EXPECT_DONE(reprise_step_add_row(step_.get(), &add, &error));
    chunk_.row = row;
    chunk_.sample = 1;
    chunk_.tokens = kPrompt.data();
    chunk_.num_tokens = kPrompt.size();
    EXPECT_DONE(reprise_step_run_chunk(step_.get(), &chunk_, &error));
  }
  reprise_result_view View() {
    reprise_result_view view = {};
    view.struct_size = sizeof(view);
    EXPECT_DONE(reprise_result_get(result_.get(), &view, &error));
    return view;
  }
  reprise_result_view Run() {
    EXPECT_DONE(reprise_session_step(session_.get(), step_.get(), result_.get(), &error));
    EXPECT_DONE(reprise_step_clear(step_.get(), &error));
    return View();
  }
  reprise_result_view Continue() {
    EXPECT_DONE(reprise_step_continue_all(step_.get(), &error));
    return Run();
  }

  DeviceHandle device_ = HostDevice();
  EngineHandle engine_;
  SessionHandle session_;
  StepHandle step_;
  ResultHandle result_;
  reprise_sampling sampling_;
  reprise_row_chunk chunk_ = {};
};

// Greedy tokens of kPrompt by the C++ interface.
std::vector<uint32_t> ExpectedTokens(uint32_t count) {
  auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost, .host_threads = 2});
  EXPECT_OK(device);
  engine::DecodeEngineOptions options;
  options.kv_cache_bytes = 1 << 20;
  options.max_rows = 4;
  options.mixed_buckets = {32};
  auto engine = engine::DecodeEngine::Create(**device, {.directory = Model()}, options);
  EXPECT_OK(engine);
  const engine::SessionInfo session = (*engine)->OpenSession();
  engine::StepDraft draft;
  draft.add.push_back({.row = 1, .blocks = *(*engine)->AllocateBlocks(session.id, 2)});
  draft.chunks.push_back({.row = 1, .tokens = kPrompt});
  std::vector<uint32_t> tokens;
  engine::StepResult result;
  for (uint64_t sequence = 1; sequence <= count; ++sequence) {
    EXPECT_OK((*engine)->Step(engine::DraftView(draft, session, sequence).request(), &result));
    tokens.push_back(result.rows.at(0).token);
    draft = {};
    draft.continue_all = true;
  }
  return tokens;
}

TEST_F(CApiStep, TokensAreThoseOfTheEngine) {
  const std::vector<uint32_t> expected = ExpectedTokens(6);
  Start(1);
  reprise_result_view view = Run();
  EXPECT_EQ(view.sequence, 1u);
  ASSERT_EQ(view.num_rows, 1u);
  EXPECT_EQ(view.row[0], 1u);
  EXPECT_EQ(view.status[0], REPRISE_ROW_RAN);
  EXPECT_EQ(view.sampled[0], 1);
  EXPECT_EQ(view.token[0], expected[0]);
  EXPECT_LT(view.logprob[0], 0.0f);
  EXPECT_EQ(view.context_length[0], kPrompt.size());
  EXPECT_EQ(view.finish[0], REPRISE_FINISH_NONE);
  ASSERT_EQ(view.num_steps, 1u);
  EXPECT_STREQ(view.step_graph[0], "mixed/32");
  EXPECT_EQ(view.step_replayed[0], 1);
  EXPECT_EQ(view.step_padding_tokens[0], 28u);
  EXPECT_GT(view.total_ns, 0u);
  EXPECT_GE(view.total_ns, view.validate_ns + view.ring_ns);
  view = Continue();
  EXPECT_EQ(view.sequence, 2u);
  EXPECT_EQ(view.token[0], expected[1]);
  EXPECT_STREQ(view.step_graph[0], "decode/1");
  // By name, and not by replay: the same bits.
  EXPECT_DONE(reprise_step_continue_row(step_.get(), 1, &error));
  EXPECT_DONE(reprise_step_set_mode(step_.get(), REPRISE_STEP_EAGER, &error));
  view = Run();
  EXPECT_EQ(view.token[0], expected[2]);
  EXPECT_EQ(view.step_replayed[0], 0);
  // Several steps in one request.
  EXPECT_DONE(reprise_step_set_num_steps(step_.get(), 3, &error));
  view = Continue();
  EXPECT_EQ(view.num_steps, 3u);
  EXPECT_THAT(Column(view.step_num_rows, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(Column(view.token, view.num_rows),
              ElementsAre(expected[3], expected[4], expected[5]));
}

TEST_F(CApiStep, ARefusedRequestChangesNothingAndUsesNoNumber) {
  EXPECT_DONE(reprise_step_continue_row(step_.get(), 7, &error));
  EXPECT_REFUSED(reprise_session_step(session_.get(), step_.get(), result_.get(), &error),
                 REPRISE_NOT_FOUND, "row 7");
  EXPECT_EQ(View().sequence, 0u);
  EXPECT_EQ(View().num_rows, 0u);
  EXPECT_DONE(reprise_step_clear(step_.get(), &error));
  EXPECT_DONE(reprise_step_set_num_steps(step_.get(), 5, &error));
  Start(1);
  EXPECT_REFUSED(reprise_session_step(session_.get(), step_.get(), result_.get(), &error),
                 REPRISE_OUT_OF_RANGE, "num_steps");
  EXPECT_DONE(reprise_step_set_num_steps(step_.get(), 1, &error));
  EXPECT_EQ(Run().sequence, 1u);
}

TEST_F(CApiStep, SamplingReachesTheRow) {
  const uint32_t stop[] = {3};
  const uint32_t bias_tokens[] = {3};
  const float biases[] = {100.0f};
  sampling_.num_logprobs = 2;
  sampling_.stop_tokens = stop;
  sampling_.num_stop_tokens = 1;
  sampling_.min_tokens = 2;
  Start(1);
  sampling_.bias_tokens = bias_tokens;
  sampling_.biases = biases;
  sampling_.num_biases = 1;
  sampling_.min_tokens = 0;
  Start(2);
  const reprise_result_view view = Run();
  ASSERT_EQ(view.num_rows, 2u);
  EXPECT_EQ(view.finish[0], REPRISE_FINISH_NONE);
  EXPECT_EQ(view.finish[1], REPRISE_FINISH_STOP_TOKEN);
  EXPECT_EQ(view.token[1], 3u);
  EXPECT_EQ(view.rank[0], 1u);  // greedy, and nothing adjusts
  EXPECT_EQ(view.num_top, 4u);
  EXPECT_THAT(Column(view.top_count, 2), ElementsAre(2, 2));
  EXPECT_EQ(view.top_token[view.top_begin[0]], view.token[0]);
  EXPECT_EQ(view.top_logprob[view.top_begin[0]], view.logprob[0]);
}

TEST_F(CApiStep, AllowedTokensMayBeReplaced) {
  reprise_engine_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_engine_get_info(engine_.get(), &info, &error));
  std::vector<uint8_t> allowed((info.vocab_size + 7) / 8);
  allowed[1] = 1 << 3;  // token 11
  sampling_.allowed_tokens = allowed.data();
  sampling_.num_allowed_bytes = allowed.size();
  Start(1);
  EXPECT_EQ(Run().token[0], 11u);
  allowed[1] = 1 << 4;
  EXPECT_DONE(
      reprise_step_set_allowed_tokens(step_.get(), 1, allowed.data(), allowed.size(), &error));
  EXPECT_EQ(Continue().token[0], 12u);
}

TEST_F(CApiStep, ReportsLogitsAndTheLikelihoodOfPrompts) {
  sampling_.return_logits = 1;
  chunk_.prompt_logprobs = 1;
  chunk_.has_next_token = 1;
  chunk_.next_token = 4;
  Start(1);
  const reprise_result_view view = Run();
  EXPECT_EQ(view.has_logits[0], 1);
  ASSERT_EQ(view.num_logit_rows, 1u);
  const float* logits = view.logits;
  EXPECT_GE(logits[view.token[0]], logits[0]);
  ASSERT_EQ(view.num_prompt, kPrompt.size());
  EXPECT_THAT(Column(view.prompt_position, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Column(view.prompt_row, 4), ::testing::Each(1u));
  EXPECT_GT(view.prompt_rank[0], 0u);
}

TEST_F(CApiStep, RowsGrowForkDropAndAreRefusedAlone) {
  Start(1);
  Run();
  const std::vector<uint32_t> more = Allocate(2);
  EXPECT_DONE(reprise_step_append_blocks(step_.get(), 1, more.data(), 1, &error));
  EXPECT_DONE(reprise_step_continue_row(step_.get(), 1, &error));
  EXPECT_DONE(reprise_step_continue_row(step_.get(), 99, &error));
  EXPECT_DONE(reprise_step_set_isolate_bad_rows(step_.get(), 1, &error));
  const reprise_result_view view = Run();
  ASSERT_EQ(view.num_refused, 1u);
  EXPECT_EQ(view.refused_row[0], 99u);
  EXPECT_EQ(view.refused_code[0], REPRISE_NOT_FOUND);
  EXPECT_NE(std::string(view.refused_message[0]).find("99"), std::string::npos);
  EXPECT_EQ(view.num_rows, 1u);
  // What the row's table names cannot be freed; after the drop it can.
  EXPECT_REFUSED(reprise_session_free_blocks(session_.get(), more.data(), 1, &error),
                 REPRISE_FAILED_PRECONDITION, "");
  EXPECT_DONE(reprise_step_copy_block(step_.get(), more[0], more[1], &error));
  EXPECT_DONE(reprise_step_drop_row(step_.get(), 1, &error));
  EXPECT_REFUSED(reprise_session_step(session_.get(), step_.get(), result_.get(), &error),
                 REPRISE_FAILED_PRECONDITION, "");  // nothing was written to more[0]
  EXPECT_DONE(reprise_step_clear(step_.get(), &error));
  EXPECT_DONE(reprise_step_drop_row(step_.get(), 1, &error));
  EXPECT_EQ(Run().num_rows, 0u);
  EXPECT_DONE(reprise_session_free_blocks(session_.get(), more.data(), 2, &error));
}

TEST_F(CApiStep, PrefixGroupsReachTheEngine) {
  Start(1);
  Run();
  const uint32_t rows[] = {1, 5};
  EXPECT_DONE(reprise_step_set_prefix_group(step_.get(), 1, 1, rows, 2, &error));
  EXPECT_REFUSED(reprise_session_step(session_.get(), step_.get(), result_.get(), &error),
                 REPRISE_NOT_FOUND, "row 5");
}

TEST_F(CApiStep, RequestsArePipelined) {
  const std::vector<uint32_t> expected = ExpectedTokens(2);
  Start(1);
  uint64_t first = 0;
  uint64_t second = 0;
  EXPECT_DONE(reprise_session_submit(session_.get(), step_.get(), &first, &error));
  EXPECT_DONE(reprise_step_clear(step_.get(), &error));
  EXPECT_DONE(reprise_step_continue_all(step_.get(), &error));
  EXPECT_DONE(reprise_session_submit(session_.get(), step_.get(), &second, &error));
  uint64_t third = 0;
  EXPECT_REFUSED(reprise_session_submit(session_.get(), step_.get(), &third, &error),
                 REPRISE_RESOURCE_EXHAUSTED, "pipeline");
  EXPECT_REFUSED(reprise_session_step(session_.get(), step_.get(), result_.get(), &error),
                 REPRISE_FAILED_PRECONDITION, "");
  EXPECT_REFUSED(reprise_engine_wait(engine_.get(), second, result_.get(), &error),
                 REPRISE_FAILED_PRECONDITION, "");
  EXPECT_DONE(reprise_engine_wait(engine_.get(), first, result_.get(), &error));
  EXPECT_EQ(View().token[0], expected[0]);
  EXPECT_DONE(reprise_engine_wait(engine_.get(), second, result_.get(), &error));
  EXPECT_EQ(View().token[0], expected[1]);
}

TEST_F(CApiStep, RefusesWhatItCannotRead) {
  reprise_row_add add = {};
  EXPECT_REFUSED(reprise_step_add_row(step_.get(), &add, &error), REPRISE_INVALID_ARGUMENT,
                 "row add: struct_size is 0");
  add.struct_size = sizeof(add);
  add.num_blocks = 3;
  EXPECT_REFUSED(reprise_step_add_row(step_.get(), &add, &error), REPRISE_INVALID_ARGUMENT,
                 "blocks: got NULL for 3 elements");
  add.num_blocks = 0;
  sampling_.struct_size = 1;
  add.sampling = &sampling_;
  EXPECT_REFUSED(reprise_step_add_row(step_.get(), &add, &error), REPRISE_INVALID_ARGUMENT,
                 "sampling: struct_size is 1");
  sampling_.struct_size = sizeof(sampling_);
  sampling_.stop_at_eos = 2;
  EXPECT_REFUSED(reprise_step_add_row(step_.get(), &add, &error), REPRISE_INVALID_ARGUMENT,
                 "stop_at_eos is 2; allowed: 0, 1");
  sampling_.stop_at_eos = 0;
  add.is_fork = 2;
  EXPECT_REFUSED(reprise_step_add_row(step_.get(), &add, &error), REPRISE_INVALID_ARGUMENT,
                 "is_fork is 2; allowed: 0, 1");
  add.is_fork = 0;
  add.prompt_length = uint64_t{1} << 32;
  EXPECT_REFUSED(reprise_step_add_row(step_.get(), &add, &error), REPRISE_INVALID_ARGUMENT,
                 "prompt_length is 4294967296");
  chunk_.num_tokens = 1;
  EXPECT_REFUSED(reprise_step_run_chunk(step_.get(), &chunk_, &error), REPRISE_INVALID_ARGUMENT,
                 "tokens: got NULL for 1 elements");
  chunk_.num_tokens = 0;
  chunk_.has_next_token = 1;
  chunk_.next_token = uint64_t{1} << 32;
  EXPECT_REFUSED(reprise_step_run_chunk(step_.get(), &chunk_, &error), REPRISE_INVALID_ARGUMENT,
                 "next_token is 4294967296; allowed: a token id");
  EXPECT_REFUSED(reprise_session_submit(session_.get(), step_.get(), nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "ticket: got NULL");
}

}  // namespace
}  // namespace reprise::capi
