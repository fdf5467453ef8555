// SPDX-License-Identifier: Apache-2.0
// Requests of several sessions in one launch, through reprise.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <vector>

#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

using ::testing::ElementsAre;

EngineHandle TinyEngine(reprise_device* device) {
  const reprise_engine_options options = TinyOptions(Model());
  return Make<EngineHandle>([&](reprise_engine** made, reprise_error* error) {
    return reprise_engine_create(device, &options, made, error);
  });
}
SessionHandle Open(reprise_engine* engine) {
  return Make<SessionHandle>([&](reprise_session** made, reprise_error* error) {
    return reprise_session_open(engine, nullptr, made, error);
  });
}
// A row of the session, and its prompt.
StepHandle Prompt(reprise_session* session) {
  static constexpr uint32_t kPrompt[] = {5, 9, 2, 7};
  StepHandle step = Make<StepHandle>(reprise_step_create);
  uint32_t block = 0;
  EXPECT_DONE(reprise_session_allocate_blocks(session, 1, &block, &error));
  reprise_row_add add = {};
  add.struct_size = sizeof(add);
  add.row = 1;
  add.blocks = &block;
  add.num_blocks = 1;
  reprise_row_chunk chunk = {};
  chunk.struct_size = sizeof(chunk);
  chunk.row = 1;
  chunk.sample = 1;
  chunk.tokens = kPrompt;
  chunk.num_tokens = 4;
  EXPECT_DONE(reprise_step_add_row(step.get(), &add, &error));
  EXPECT_DONE(reprise_step_run_chunk(step.get(), &chunk, &error));
  return step;
}
reprise_result_view View(const ResultHandle& result) {
  reprise_result_view view = {};
  view.struct_size = sizeof(view);
  EXPECT_DONE(reprise_result_get(result.get(), &view, &error));
  return view;
}

class CApiJoint : public ::testing::Test {
 protected:
  reprise_code Submit(const std::vector<reprise_session*>& sessions,
                      const std::vector<const reprise_step*>& steps, reprise_error* error) {
    outcomes_.assign(sessions.size(), -1);
    errors_.assign(sessions.size(), {});
    return reprise_engine_submit_joint(engine_.get(), sessions.data(), steps.data(),
                                       sessions.size(), outcomes_.data(), errors_.data(), &ticket_,
                                       error);
  }

  DeviceHandle device_ = HostDevice();
  EngineHandle engine_ = TinyEngine(device_.get());
  SessionHandle a_ = Open(engine_.get());
  SessionHandle b_ = Open(engine_.get());
  std::vector<reprise_joint_outcome> outcomes_;
  std::vector<reprise_error> errors_;
  uint64_t ticket_ = 0;
};

TEST_F(CApiJoint, RowsOfSeveralSessionsRunInOneLaunch) {
  const StepHandle of_a = Prompt(a_.get());
  const StepHandle of_b = Prompt(b_.get());
  const StepHandle bad = Make<StepHandle>(reprise_step_create);
  EXPECT_DONE(reprise_step_continue_row(bad.get(), 9, &error));
  // The second is of a session that is there already, the third names a row that is not.
  EXPECT_DONE(Submit({a_.get(), a_.get(), b_.get(), b_.get()},
                     {of_a.get(), of_a.get(), bad.get(), of_b.get()}, &error));
  EXPECT_THAT(outcomes_, ElementsAre(REPRISE_JOINT_TAKEN, REPRISE_JOINT_LEFT, REPRISE_JOINT_REFUSED,
                                     REPRISE_JOINT_TAKEN));
  EXPECT_EQ(errors_[0].code, REPRISE_OK);
  EXPECT_EQ(errors_[2].code, REPRISE_NOT_FOUND);
  EXPECT_NE(ticket_, 0u);

  const ResultHandle first = Make<ResultHandle>(reprise_result_create);
  const ResultHandle second = Make<ResultHandle>(reprise_result_create);
  reprise_result* results[] = {first.get(), first.get()};
  EXPECT_REFUSED(reprise_engine_wait_joint(engine_.get(), ticket_, results, 2, &error),
                 REPRISE_INVALID_ARGUMENT, "result 1 is there twice");
  EXPECT_REFUSED(reprise_engine_wait_joint(engine_.get(), ticket_, results, 1, &error),
                 REPRISE_INVALID_ARGUMENT, "");
  results[1] = second.get();
  EXPECT_DONE(reprise_engine_wait_joint(engine_.get(), ticket_, results, 2, &error));
  const reprise_result_view of_first = View(first);
  const reprise_result_view of_second = View(second);
  ASSERT_EQ(of_first.num_rows, 1u);
  ASSERT_EQ(of_second.num_rows, 1u);
  EXPECT_EQ(of_first.token[0], of_second.token[0]);
  EXPECT_EQ(of_first.logprob[0], of_second.logprob[0]);
  EXPECT_EQ(of_first.step_query_tokens[0], 4u);
  EXPECT_EQ(of_first.sequence, 1u);
}

TEST_F(CApiJoint, RefusesWhatItCannotRead) {
  const EngineHandle other = TinyEngine(device_.get());
  const SessionHandle stranger = Open(other.get());
  const StepHandle step = Make<StepHandle>(reprise_step_create);
  EXPECT_REFUSED(Submit({a_.get(), stranger.get()}, {step.get(), step.get()}, &error),
                 REPRISE_INVALID_ARGUMENT, "session 1 is of another engine");
  EXPECT_REFUSED(Submit({a_.get()}, {nullptr}, &error), REPRISE_INVALID_ARGUMENT, "step: got NULL");
  EXPECT_REFUSED(Submit({nullptr}, {step.get()}, &error), REPRISE_INVALID_ARGUMENT,
                 "session: got NULL");
  reprise_session* session = a_.get();
  const reprise_step* request = step.get();
  EXPECT_REFUSED(reprise_engine_submit_joint(engine_.get(), &session, &request, 1, nullptr, nullptr,
                                             &ticket_, &error),
                 REPRISE_INVALID_ARGUMENT, "outcomes: got NULL for 1 elements");
  EXPECT_REFUSED(reprise_engine_submit_joint(nullptr, &session, &request, 1, nullptr, nullptr,
                                             &ticket_, &error),
                 REPRISE_INVALID_ARGUMENT, "engine: got NULL");
  EXPECT_DONE(Submit({}, {}, &error));
  EXPECT_EQ(ticket_, 0u);
  EXPECT_REFUSED(reprise_engine_wait_joint(engine_.get(), 1, nullptr, 1, &error),
                 REPRISE_INVALID_ARGUMENT, "results: got NULL for 1 elements");
}

}  // namespace
}  // namespace reprise::capi
