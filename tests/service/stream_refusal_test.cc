// SPDX-License-Identifier: Apache-2.0
// Bad calls over a socket, whatever the step in them: messages out of order, that do not parse or
// are too large, unary steps without their session. Each gets its typed error, and others go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

grpc::Status EndOf(ServedModel& served, const v1::StepStreamRequest& first) {
  auto stub = v1::StepService::NewStub(served.NewChannel());
  grpc::ClientContext context;
  auto stream = stub->StepStream(&context);
  stream->Write(first);
  v1::StepStreamResponse response;
  EXPECT_FALSE(stream->Read(&response)) << response.ShortDebugString();
  return stream->Finish();
}

TEST(BadStream, FirstMessageMustBeOpen) {
  ServedModel served;
  v1::StepStreamRequest step;
  step.mutable_step()->set_sequence(1);
  const grpc::Status status = EndOf(served, step);
  EXPECT_EQ(status.error_code(), kPrecondition);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("got step"), HasSubstr("allowed open")));
  EXPECT_EQ(EndOf(served, v1::StepStreamRequest()).error_code(), kPrecondition);
}

TEST(BadStream, ClientNameIsLimited) {
  ServedModel served;
  v1::StepStreamRequest open;
  open.mutable_open()->set_client(std::string(257, 'x'));
  const grpc::Status status = EndOf(served, open);
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("257"), HasSubstr("256")));
}

TEST(BadStream, UnknownFieldInOpenIsUnimplemented) {
  ServedModel served;
  v1::StepStreamRequest open;
  v1::Open* message = open.mutable_open();
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(9, 1);
  EXPECT_EQ(EndOf(served, open).error_code(), kUnimplemented);
}

TEST(BadStream, SecondOpenIsRefusedAndTheStreamGoesOn) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepStreamRequest open;
  open.mutable_open();
  ASSERT_TRUE(client.SendRaw(open));
  v1::StepStreamResponse response;
  ASSERT_TRUE(client.Receive(&response));
  EXPECT_EQ(response.error().code(), kPrecondition);
  EXPECT_EQ(response.error().sequence(), 0u);
  EXPECT_THAT(Continue(client, kRow, 2), SizeIs(2));
}

// Sends bytes that are no message at all.
TEST(BadStream, BytesThatDoNotParseAreInvalid) {
  ServedModel served;
  const auto channel = served.NewChannel();
  for (const char* method : {"Describe", "Step", "Allocate", "Free"}) {
    const grpc::Status status =
        CallWithBytes(channel, method, std::string("\x0a\xff not a message"));
    EXPECT_EQ(status.error_code(), kInvalid) << method << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("do not parse"));
  }
}

TEST(BadStream, MessageOverTheSizeLimitEndsItsCallAlone) {
  ServedModel::Options options;
  options.server.max_message_bytes = 4096;
  ServedModel served(options);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  StreamClient other(served.NewChannel());
  std::vector<uint32_t> tokens = {other.StartRow(kRow, kOtherPrompt, 32)};
  const uint32_t held = free_blocks - served.engine().pool().free_blocks;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepRequest large = client.NewStep();
  v1::Chunk* chunk = large.add_chunks();
  chunk->set_row(kRow);
  chunk->set_sample(true);
  for (int i = 0; i < 5000; ++i) chunk->add_tokens(1);

  grpc::ClientContext context;
  v1::StepResponse response;
  const grpc::Status unary = client.stub().Step(&context, large, &response);
  EXPECT_EQ(unary.error_code(), kExhausted) << unary.error_message();
  EXPECT_THAT(unary.error_message(), HasSubstr("4096"));

  client.Send(large);
  v1::StepStreamResponse reply;
  EXPECT_FALSE(client.Receive(&reply)) << reply.ShortDebugString();
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), kExhausted) << status.error_message();
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks - held; }));

  for (const uint32_t token : Continue(other, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kOtherPrompt, 6));
}

TEST(BadUnaryStep, UnknownSessionIsNotFound) {
  ServedModel served;
  auto stub = v1::StepService::NewStub(served.NewChannel());
  const std::string unknown(16, 'x');
  grpc::ClientContext context;
  v1::StepRequest step;
  step.set_session(unknown);
  step.set_sequence(1);
  v1::StepResponse response;
  const grpc::Status status = stub->Step(&context, step, &response);
  EXPECT_EQ(status.error_code(), kNotFound);
  EXPECT_THAT(status.error_message(), Not(HasSubstr(unknown)));
}

TEST(BadUnaryStep, SessionOfAStreamThatEndedIsNotFound) {
  ServedModel served;
  v1::StepRequest step;
  auto stub = v1::StepService::NewStub(served.NewChannel());
  {
    StreamClient client(served.NewChannel());
    client.StartRow(kRow, kOwnPrompt, 32);
    step = client.NewStep();
    step.set_continue_all(true);
    EXPECT_TRUE(client.Finish().ok());
  }
  grpc::ClientContext context;
  v1::StepResponse response;
  EXPECT_EQ(stub->Step(&context, step, &response).error_code(), kNotFound);
}

TEST(BadUnaryStep, GetsTheEnginesError) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepRequest step = client.NewStep();
  step.set_sequence(9);
  step.set_continue_all(true);
  grpc::ClientContext context;
  v1::StepResponse response;
  EXPECT_EQ(client.stub().Step(&context, step, &response).error_code(), kPrecondition);
  EXPECT_THAT(Continue(client, kRow, 1), SizeIs(1));
}

}  // namespace
}  // namespace reprise::service
