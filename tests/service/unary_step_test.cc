// SPDX-License-Identifier: Apache-2.0
// Unary steps whose answers are lost, sent again, late or given up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Answer {
  grpc::Status status;
  v1::StepResponse response;
};

Answer CallStep(StreamClient& client, const v1::StepRequest& step,
                std::chrono::microseconds timeout = std::chrono::seconds(60)) {
  Answer answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  answer.status = client.stub().Step(&context, step, &answer.response);
  return answer;
}

v1::StepRequest NextStep(const StreamClient& client) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  return step;
}

TEST(UnaryStepAgain, IsGivenTheSameAnswerAndRunsNothing) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 32)};
  const v1::StepRequest step = NextStep(client);
  const Answer first = CallStep(client, step);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  client.CountStep();
  for (int i = 0; i < 3; ++i) {
    const Answer again = CallStep(client, step);
    ASSERT_TRUE(again.status.ok()) << again.status.error_message();
    EXPECT_EQ(again.response.SerializeAsString(), first.response.SerializeAsString());
  }
  ASSERT_THAT(first.response.rows().token(), SizeIs(1));
  tokens.push_back(first.response.rows().token(0));
  for (const uint32_t token : Continue(client, kRow, 4)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 6));
}

TEST(UnaryStepAgain, WithAnotherRequestIsRefused) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  v1::StepRequest step = NextStep(client);
  ASSERT_TRUE(CallStep(client, step).status.ok());
  step.set_omit_rows(true);
  const Answer other = CallStep(client, step);
  EXPECT_EQ(other.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(other.status.error_message(), HasSubstr("another request"));
}

TEST(UnaryStepAgain, OnlyTheLastAnswerIsKept) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kLongPrompt, 32);
  const v1::StepRequest first = NextStep(client);
  ASSERT_TRUE(CallStep(client, first).status.ok());
  client.CountStep();
  ASSERT_TRUE(CallStep(client, NextStep(client)).status.ok());
  EXPECT_EQ(CallStep(client, first).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(UnaryStepAgain, ARefusedStepIsNotKept) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  v1::StepRequest step = client.NewStep();
  step.add_drop(99);
  EXPECT_EQ(CallStep(client, step).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(CallStep(client, step).status.error_code(), grpc::StatusCode::NOT_FOUND);
  client.StartRow(kRow, kLongPrompt, 32);  // with the sequence number of the refused step
}

// The client gives up before its step is launched or while it runs, and asks again at once.
TEST(UnaryStepAgain, AfterALostAnswerIsGivenIt) {
  ServedModel served(Slowed(2000));
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 32)};
  for (int i = 1; i <= 5; ++i) {
    const v1::StepRequest step = NextStep(client);
    // From too short for the launch to long enough for it, far too short for the step.
    const Answer lost = CallStep(client, step, std::chrono::milliseconds(i));
    const Answer again = CallStep(client, step);
    ASSERT_TRUE(again.status.ok()) << again.status.error_message();
    if (lost.status.ok()) {
      EXPECT_EQ(again.response.SerializeAsString(), lost.response.SerializeAsString());
    } else {
      EXPECT_EQ(lost.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    }
    client.CountStep();
    ASSERT_THAT(again.response.rows().token(), SizeIs(1));
    tokens.push_back(again.response.rows().token(0));
  }
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 6));
}

// Two calls of one request at a time: one runs, both are answered.
TEST(UnaryStepAgain, WhileItIsOnItsWayWaitsForIt) {
  ServedModel served(Slowed(2000));
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, 32)};
  const v1::StepRequest step = NextStep(client);
  Answer answers[2];
  std::thread other([&] { answers[0] = CallStep(client, step); });
  answers[1] = CallStep(client, step);
  other.join();
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.response.SerializeAsString(), answers[0].response.SerializeAsString());
  }
  client.CountStep();
  tokens.push_back(answers[0].response.rows().token(0));
  for (const uint32_t token : Continue(client, kRow, 2)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 4));
}

// A step whose deadline passes while it waits behind others is not run.
TEST(UnaryStepLate, IsRefusedBeforeItsLaunchAndChangesNothing) {
  ServedModel served(Slowed(20000));
  StreamClient busy(served.NewChannel());
  StreamClient late(served.NewChannel());
  busy.StartRow(kRow, kLongPrompt, 32);
  std::vector<uint32_t> tokens = {late.StartRow(kRow, kLongPrompt, 32)};
  // Fill the pipeline and the queue behind it.
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(busy.Send(NextStep(busy)));
    busy.CountStep();
  }
  // They are on their way to the server; each takes a tenth of a second and more.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Answer answer = CallStep(late, NextStep(late), std::chrono::milliseconds(1));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  v1::StepStreamResponse response;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(busy.Receive(&response));
  // The number is free again, and the row is where it was.
  for (const uint32_t token : Continue(late, kRow, 3)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kLongPrompt, 4));
}

}  // namespace
}  // namespace reprise::service
