// SPDX-License-Identifier: Apache-2.0
// Whose session is whose: tokens, and what others can do with a session whose token they lack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "service/session_token.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SessionToken, IsItselfAndNothingElse) {
  const SessionToken token = SessionToken::Random();
  const std::string bytes(token.bytes());
  EXPECT_EQ(bytes.size(), 16u);
  EXPECT_TRUE(token.Is(bytes));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string other = bytes;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(token.Is(other)) << bit;
  }
  EXPECT_FALSE(token.Is(""));
  EXPECT_FALSE(token.Is(bytes.substr(1)));
  EXPECT_FALSE(token.Is(bytes + bytes[0]));
}

TEST(SessionToken, NoTwoAreAlike) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(seen.insert(std::string(SessionToken::Random().bytes())).second);
  }
}

// Every token that a client could guess: numbers as sessions had them once, and lengths of all
// kinds.
std::vector<std::string> Guesses() {
  std::vector<std::string> guesses = {"",
                                      "1",
                                      std::string(16, '\0'),
                                      std::string(15, 'x'),
                                      std::string(17, 'x'),
                                      std::string(1000, 'x')};
  for (char number = 1; number < 8; ++number) {
    guesses.push_back(std::string(1, number) + std::string(15, '\0'));
    guesses.push_back(std::string(15, '\0') + std::string(1, number));
  }
  return guesses;
}

TEST(Session, CannotBeSteppedNorRobbedByWhoGuesses) {
  ServedModel served;
  StreamClient owner(served.NewChannel());
  std::vector<uint32_t> tokens = {owner.StartRow(kRow, kOwnPrompt, 32)};
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  auto stub = v1::StepService::NewStub(served.NewChannel());
  for (const std::string& guess : Guesses()) {
    v1::StepRequest step;
    step.set_session(guess);
    step.set_sequence(owner.next_sequence());
    step.set_continue_all(true);
    v1::AllocateRequest allocate;
    allocate.set_session(guess);
    allocate.set_count(1);
    v1::FreeRequest free;
    free.set_session(guess);
    free.add_blocks(1);
    grpc::ClientContext contexts[3];
    v1::StepResponse step_response;
    v1::AllocateResponse allocate_response;
    v1::FreeResponse free_response;
    for (const grpc::Status& status : {stub->Step(&contexts[0], step, &step_response),
                                       stub->Allocate(&contexts[1], allocate, &allocate_response),
                                       stub->Free(&contexts[2], free, &free_response)}) {
      EXPECT_EQ(status.error_code(), guess.size() == 16 ? kNotFound : kInvalid)
          << status.error_message();
      // Nothing that helps to guess better, and never what was got.
      EXPECT_THAT(status.error_message(), Not(HasSubstr("next")));
      if (guess.size() > 1) {
        EXPECT_THAT(status.error_message(), Not(HasSubstr(guess)));
      }
    }
  }
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks);
  for (const uint32_t token : Continue(owner, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kOwnPrompt, 6));
}

TEST(Session, TokenOfAnEarlierServerOpensNothing) {
  std::string token;
  {
    ServedModel served;
    token = StreamClient(served.NewChannel()).session();
  }
  ServedModel served;
  StreamClient owner(served.NewChannel());
  owner.StartRow(kRow, kOwnPrompt, 32);
  grpc::ClientContext context;
  v1::FreeRequest request;
  request.set_session(token);
  request.add_blocks(1);
  v1::FreeResponse response;
  EXPECT_EQ(owner.stub().Free(&context, request, &response).error_code(), kNotFound);
}

TEST(Session, EngineSessionsOfAnEmbedderCannotBeReached) {
  ServedModel served;
  const engine::SessionInfo own = served.engine().OpenSession();
  ASSERT_TRUE(served.engine().AllocateBlocks(own.id, 2).ok());
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks + 8);
  EXPECT_TRUE(served.engine().IsOpen(own.id));
  EXPECT_TRUE(served.engine().CloseSession(own.id).ok());
}

TEST(Session, MoreThanAllowedAreRefusedUntilOneEnds) {
  ServedModel::Options options;
  options.server.max_sessions = 2;
  ServedModel served(options);
  StreamClient first(served.NewChannel());
  StreamClient second(served.NewChannel());
  EXPECT_TRUE(second.opened());
  {
    StreamClient third(served.NewChannel());
    EXPECT_FALSE(third.opened());
    const grpc::Status status = third.Finish();
    EXPECT_EQ(status.error_code(), kExhausted);
    EXPECT_THAT(status.error_message(), HasSubstr("allowed: 2"));
  }
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_TRUE(StreamClient(served.NewChannel()).opened());
}

TEST(Session, EndsWhenNothingIsAskedOfItForTooLong) {
  ServedModel::Options options;
  options.server.idle_timeout_ms = 1500;
  ServedModel served(options);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  StreamClient idle(served.NewChannel());
  StreamClient busy(served.NewChannel());
  StreamClient beside(served.NewChannel());
  idle.StartRow(kRow, kOwnPrompt, 32);
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    v1::StepStreamResponse response;
    EXPECT_FALSE(idle.Receive(&response));
    ended = true;
  });
  // Until it has ended, and on for as long as the server takes to look for idle sessions again.
  int rounds_left = 5;
  for (int i = 0; i < 150 && rounds_left > 0; ++i) {
    if (ended) --rounds_left;
    v1::StepRequest step = busy.NewStep();
    step.add_add()->set_row(1);
    busy.Step(step);
    step = busy.NewStep();
    step.add_drop(1);
    busy.Step(step);
    beside.Allocate(1);  // a call beside the stream counts as well
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  if (!ended) idle.Cancel();
  reader.join();
  const grpc::Status status = idle.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("idle"));
  EXPECT_TRUE(beside.Finish().ok());
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks);
  EXPECT_TRUE(busy.Finish().ok());
}

// Its answers cannot be written, so it is not idle: it has steps without an answer.
TEST(Session, EndsWhenItsClientTakesNoAnswersForTooLong) {
  ServedModel::Options options;
  options.server.idle_timeout_ms = 1500;
  ServedModel served(options);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  grpc::ChannelArguments fixed_windows;  // of HTTP/2; gRPC would let them grow
  fixed_windows.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  StreamClient client(grpc::CreateCustomChannel(served.address(),
                                                grpc::InsecureChannelCredentials(), fixed_windows));
  client.StartRow(kRow, kOwnPrompt, 32);
  EXPECT_LT(served.engine().pool().free_blocks, free_blocks);
  // More refusals than HTTP/2's windows take. Once the server reads no more either, sending blocks
  // until the call ends.
  v1::StepRequest unknown_row = client.NewStep();
  unknown_row.add_chunks()->set_row(kRow + 1);
  for (int i = 0; i < 5000 && client.Send(unknown_row);) ++i;
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
  v1::StepStreamResponse response;
  while (client.Receive(&response)) EXPECT_TRUE(response.has_error());
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(StreamClient(served.NewChannel()).opened());
}

TEST(Session, HoldsNoMoreThanASessionMay) {
  ServedModel::Options options;
  options.server.session_limits = {.max_rows = 2, .max_blocks = 9};
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  StreamClient other(served.NewChannel());
  EXPECT_EQ(client.Allocate(8).size(), 8u);
  v1::AllocateRequest request;
  request.set_session(client.session());
  request.set_count(2);
  grpc::ClientContext context;
  v1::AllocateResponse response;
  const grpc::Status status = client.stub().Allocate(&context, request, &response);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_THAT(status.error_message(), HasSubstr("holds 8 of the 9"));
  const std::vector<uint32_t> last = client.Allocate(1);
  // Given back, it may be had again.
  v1::FreeRequest free;
  free.set_session(client.session());
  free.add_blocks(last.at(0));
  grpc::ClientContext free_context;
  v1::FreeResponse freed;
  EXPECT_TRUE(client.stub().Free(&free_context, free, &freed).ok());
  EXPECT_EQ(client.Allocate(1).size(), 1u);

  v1::StepRequest step = client.NewStep();
  for (const uint32_t row : {1u, 2u, 3u}) step.add_add()->set_row(row);
  const v1::StepError error = client.Refused(step);
  EXPECT_EQ(error.code(), static_cast<int>(kExhausted));
  EXPECT_THAT(error.message(), HasSubstr("would have 3 of the 2"));
  step.mutable_add()->RemoveLast();
  client.Step(step);
  // As many go as come.
  v1::StepRequest exchange = client.NewStep();
  exchange.add_drop(1);
  exchange.add_add()->set_row(3);
  client.Step(exchange);
  // What one may not have is there for another.
  EXPECT_EQ(other.Allocate(9).size(), 9u);
}

}  // namespace
}  // namespace reprise::service
