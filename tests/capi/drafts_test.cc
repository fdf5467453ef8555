// SPDX-License-Identifier: Apache-2.0
// Draft tokens through reprise.h: rows sample what they would have without, in fewer steps.
// tests/engine/drafts_test.cc has what drafts do beside every other feature.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <vector>

#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

using ::testing::ElementsAre;
using ::testing::Pointwise;

class CApiDrafts : public ::testing::Test {
 protected:
  void SetUp() override {
    reprise_engine_options options = TinyOptions(Model());
    options.max_draft_tokens = 6;
    engine_ = Make<EngineHandle>([&](reprise_engine** made, reprise_error* error) {
      return reprise_engine_create(device_.get(), &options, made, error);
    });
    session_ = Make<SessionHandle>([&](reprise_session** made, reprise_error* error) {
      return reprise_session_open(engine_.get(), nullptr, made, error);
    });
  }
  // The row's prompt, to be run.
  void Start(uint32_t row) {
    static constexpr uint32_t kPrompt[] = {5, 9, 2, 7};
    uint32_t blocks[2] = {};
    EXPECT_DONE(reprise_session_allocate_blocks(session_.get(), 2, blocks, &error));
    reprise_row_add add = {};
    add.struct_size = sizeof(add);
    add.row = row;
    add.sampling = &sampling_;
    add.blocks = blocks;
    add.num_blocks = 2;
    EXPECT_DONE(reprise_step_add_row(step_.get(), &add, &error));
    reprise_row_chunk chunk = {};
    chunk.struct_size = sizeof(chunk);
    chunk.row = row;
    chunk.sample = 1;
    chunk.tokens = kPrompt;
    chunk.num_tokens = 4;
    EXPECT_DONE(reprise_step_run_chunk(step_.get(), &chunk, &error));
  }
  reprise_result_view Run() {
    EXPECT_DONE(reprise_session_step(session_.get(), step_.get(), result_.get(), &error));
    EXPECT_DONE(reprise_step_clear(step_.get(), &error));
    EXPECT_DONE(reprise_step_continue_all(step_.get(), &error));
    reprise_result_view view = {};
    view.struct_size = sizeof(view);
    EXPECT_DONE(reprise_result_get(result_.get(), &view, &error));
    return view;
  }
  void Draft(uint32_t row, const std::vector<uint32_t>& tokens) {
    EXPECT_DONE(reprise_step_draft_tokens(step_.get(), row, tokens.data(), tokens.size(), &error));
  }
  void Refused(reprise_code code, const char* words) {
    EXPECT_REFUSED(reprise_session_step(session_.get(), step_.get(), result_.get(), &error), code,
                   words);
    EXPECT_DONE(reprise_step_clear(step_.get(), &error));
    EXPECT_DONE(reprise_step_continue_all(step_.get(), &error));
  }

  DeviceHandle device_ = HostDevice();
  EngineHandle engine_;
  SessionHandle session_;
  StepHandle step_ = Make<StepHandle>(reprise_step_create);
  ResultHandle result_ = Make<ResultHandle>(reprise_result_create);
  reprise_sampling sampling_ = [] {
    reprise_sampling sampling;
    EXPECT_EQ(reprise_sampling_init(&sampling, sizeof(sampling), nullptr), REPRISE_OK);
    return sampling;
  }();
};

TEST_F(CApiDrafts, AreAcceptedUpToTheFirstThatIsNotWhatTheRowSamples) {
  sampling_.num_logprobs = 2;
  Start(1);
  std::vector<uint32_t> tokens;
  std::vector<float> logprobs;
  for (int i = 0; i < 6; ++i) {
    const reprise_result_view view = Run();
    tokens.push_back(view.token[0]);
    logprobs.push_back(view.logprob[0]);
    EXPECT_EQ(view.num_sampled, 1u);
    EXPECT_EQ(view.num_accepted, 0u);
    EXPECT_EQ(view.accepted_count[0], 0u);
  }
  EXPECT_DONE(reprise_step_clear(step_.get(), &error));

  Start(2);
  EXPECT_DONE(reprise_step_drop_row(step_.get(), 1, &error));
  EXPECT_EQ(Run().token[0], tokens[0]);
  Start(3);
  Draft(2, {tokens[1], tokens[2], tokens[3] ^ 1, tokens[4]});
  reprise_result_view view = Run();
  ASSERT_EQ(view.num_rows, 2u);  // chunks come first
  EXPECT_EQ(view.row[1], 2u);
  EXPECT_EQ(view.token[1], tokens[3]);
  EXPECT_EQ(view.context_length[1], 4u + 3);
  EXPECT_EQ(view.accepted_count[0], 0u);
  EXPECT_EQ(view.accepted_count[1], 2u);
  EXPECT_EQ(view.accepted_begin[1], 0u);
  ASSERT_EQ(view.num_accepted, 2u);
  EXPECT_THAT(std::vector(view.accepted_token, view.accepted_token + 2),
              ElementsAre(tokens[1], tokens[2]));
  EXPECT_THAT(std::vector(view.accepted_logprob, view.accepted_logprob + 2),
              Pointwise(::testing::FloatNear(1e-4f), {logprobs[1], logprobs[2]}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(view.accepted_rank[i], 1u);  // greedy
    ASSERT_EQ(view.accepted_top_count[i], 2u);
    EXPECT_EQ(view.top_token[view.accepted_top_begin[i]], tokens[1 + i]);
  }
  EXPECT_EQ(view.num_sampled, 4u);
  EXPECT_EQ(view.step_query_tokens[0], 4u + 5);
  EXPECT_STREQ(view.step_graph[0], "mixed/32");

  // The next step goes on behind what was accepted.
  EXPECT_DONE(reprise_step_drop_row(step_.get(), 3, &error));
  Draft(2, {tokens[4], tokens[5]});
  view = Run();
  EXPECT_EQ(view.num_accepted, 2u);
  EXPECT_EQ(view.context_length[0], 4u + 6);
}

TEST_F(CApiDrafts, AreRefusedByWhatIsWrong) {
  reprise_engine_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_engine_get_info(engine_.get(), &info, &error));
  EXPECT_EQ(info.max_draft_tokens, 6u);
  Start(1);
  Run();
  Draft(1, {1, 2, 3, 4, 5, 6, 7});
  Refused(REPRISE_OUT_OF_RANGE, "7");
  Draft(1, {});
  Refused(REPRISE_INVALID_ARGUMENT, "row 1");
  Draft(7, {1});
  Refused(REPRISE_NOT_FOUND, "7");
  Draft(1, {4'000'000'000});
  Refused(REPRISE_INVALID_ARGUMENT, "4000000000");
  Draft(1, {1});
  Draft(1, {2});
  Refused(REPRISE_INVALID_ARGUMENT, "row 1");
  Draft(1, {1});
  EXPECT_DONE(reprise_step_set_num_steps(step_.get(), 2, &error));
  Refused(REPRISE_INVALID_ARGUMENT, "num_steps");
  EXPECT_REFUSED(reprise_step_draft_tokens(step_.get(), 1, nullptr, 2, &error),
                 REPRISE_INVALID_ARGUMENT, "tokens: got NULL for 2 elements");
  EXPECT_REFUSED(reprise_step_draft_tokens(nullptr, 1, nullptr, 0, &error),
                 REPRISE_INVALID_ARGUMENT, "step: got NULL");
  EXPECT_EQ(Run().context_length[0], 5u);  // nothing has changed
}

TEST_F(CApiDrafts, OptionsBeyondWhatThereIsAreRefused) {
  reprise_engine_options options = TinyOptions(Model());
  options.max_draft_tokens = 65536;
  reprise_engine* engine = nullptr;
  EXPECT_REFUSED(reprise_engine_create(device_.get(), &options, &engine, &error),
                 REPRISE_INVALID_ARGUMENT, "max_draft_tokens is 65536; allowed: 0 to 65535");
  options.max_draft_tokens = (uint64_t{1} << 32) + 3;
  EXPECT_REFUSED(reprise_engine_create(device_.get(), &options, &engine, &error),
                 REPRISE_INVALID_ARGUMENT, "allowed: 0 to 65535");
  options = TinyOptions(Model());
  options.decode = "fast";
  EXPECT_REFUSED(reprise_engine_create(device_.get(), &options, &engine, &error),
                 REPRISE_INVALID_ARGUMENT,
                 "decode is \"fast\"; allowed: auto, tuned, chain, step-kernel");
}

}  // namespace
}  // namespace reprise::capi
