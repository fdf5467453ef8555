// SPDX-License-Identifier: Apache-2.0
// What an administrator does with sessions: lists them, and evicts one while its steps run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "tests/service/refusal.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kHourMs = 3'600'000;

ServedModel::Options Open(int max_delay_us = 0) {
  ServedModel::Options options;
  options.server.allow_administration = true;
  options.server.max_resume_grace_ms = kHourMs;
  options.server.metrics_listen = "127.0.0.1:0";
  options.max_delay_us = max_delay_us;
  return options;
}

grpc::Status List(ServedModel& served, const v1::ListSessionsRequest& request,
                  v1::ListSessionsResponse* response, const std::string& token = "") {
  grpc::ClientContext context;
  AddToken(token, &context);
  return v1::StepService::NewStub(served.NewChannel())->ListSessions(&context, request, response);
}

std::vector<v1::SessionStatus> ListAll(ServedModel& served) {
  v1::ListSessionsResponse response;
  const grpc::Status status = List(served, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(response.more());
  return {response.sessions().begin(), response.sessions().end()};
}

grpc::Status Evict(ServedModel& served, uint64_t id, const std::string& reason,
                   const std::string& token = "") {
  grpc::ClientContext context;
  AddToken(token, &context);
  v1::EvictSessionRequest request;
  request.set_id(id);
  request.set_reason(reason);
  v1::EvictSessionResponse response;
  return v1::StepService::NewStub(served.NewChannel())->EvictSession(&context, request, &response);
}

TEST(ListSessions, SaysWhatEachHoldsAndHasDone) {
  ServedModel served(Open());
  EXPECT_TRUE(ListAll(served).empty());
  StreamClient first(served.NewChannel(), OpenWithGrace(5000));
  first.StartRow(kRow, kOwnPrompt, 32);
  Continue(first, kRow, 3);
  StreamClient second(served.NewChannel());
  const std::vector<v1::SessionStatus> sessions = ListAll(served);
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_LT(sessions[0].id(), sessions[1].id());
  EXPECT_EQ(sessions[0].identity(), "");
  EXPECT_THAT(sessions[0].peer(), HasSubstr("unix:"));
  EXPECT_EQ(sessions[0].client(), "test");
  EXPECT_TRUE(sessions[0].attached());
  EXPECT_EQ(sessions[0].resume_grace_ms(), 5000u);
  EXPECT_EQ(sessions[0].grace_left_ms(), 0u);
  EXPECT_LE(sessions[0].idle_ms(), sessions[0].age_ms());
  EXPECT_EQ(sessions[0].rows(), 1u);
  EXPECT_EQ(sessions[0].blocks(), 8u);
  EXPECT_EQ(sessions[0].last_sequence(), 4u);
  EXPECT_EQ(sessions[0].requests(), 4u);
  EXPECT_EQ(sessions[0].joint_requests(), 0u);
  EXPECT_EQ(sessions[1].rows(), 0u);
  EXPECT_EQ(sessions[1].requests(), 0u);
  for (const v1::SessionStatus& session : sessions)
    EXPECT_EQ(session.SerializeAsString().find(first.session()), std::string::npos);
}

TEST(ListSessions, OfADetachedOneSaysHowLongItHasLeft) {
  ServedModel served(Open());
  StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
  client.Cancel();
  EXPECT_TRUE(Eventually([&] { return !ListAll(served)[0].attached(); }));
  const uint64_t left_ms = ListAll(served)[0].grace_left_ms();
  EXPECT_GT(left_ms, 0u);
  EXPECT_LE(left_ms, kHourMs);
}

TEST(ListSessions, ComesInPages) {
  ServedModel served(Open());
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (int i = 0; i < 5; ++i)
    clients.push_back(std::make_unique<StreamClient>(served.NewChannel()));
  std::vector<uint64_t> ids;
  v1::ListSessionsRequest request;
  request.set_max_sessions(2);
  v1::ListSessionsResponse response;
  do {
    ASSERT_TRUE(List(served, request, &response).ok());
    ASSERT_LE(response.sessions_size(), 2);
    ASSERT_GE(response.sessions_size(), 1);
    for (const v1::SessionStatus& session : response.sessions()) ids.push_back(session.id());
    request.set_after(ids.back());
  } while (response.more());
  std::vector<uint64_t> all;
  for (const v1::SessionStatus& session : ListAll(served)) all.push_back(session.id());
  EXPECT_EQ(ids, all);
  EXPECT_EQ(ids.size(), 5u);
  request.set_max_sessions(1001);
  EXPECT_EQ(List(served, request, &response).error_code(), kRange);
}

TEST(EvictSession, EndsItWithTheReasonAndFreesWhatItHeld) {
  ServedModel served(Open());
  StreamClient victim(served.NewChannel(), OpenWithGrace(kHourMs));
  victim.StartRow(kRow, kOwnPrompt, 32);
  StreamClient other(served.NewChannel());
  std::vector<uint32_t> tokens = {other.StartRow(kRow, kOwnPrompt, 32)};
  const uint64_t id = ListAll(served)[0].id();
  EXPECT_TRUE(Evict(served, id, "out of hours").ok());
  const engine::PoolInfo pool = served.engine().pool();
  EXPECT_EQ(pool.free_blocks, pool.num_blocks - 1 - 8);
  EXPECT_EQ(served.engine().num_resident_rows(), 1u);
  const grpc::Status status = victim.Finish();
  EXPECT_EQ(status.error_code(), kAborted);
  EXPECT_THAT(status.error_message(), HasSubstr("evicted by an administrator: out of hours"));
  // So does whoever comes with its token.
  StreamClient late(served.NewChannel(), ResumeOf(victim.session(), 1));
  const grpc::Status refused = late.Finish();
  EXPECT_EQ(refused.error_code(), kAborted);
  EXPECT_THAT(refused.error_message(), HasSubstr("out of hours"));
  for (const uint32_t token : Continue(other, kRow, 4)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kOwnPrompt, 5));
  EXPECT_EQ(
      Scrape(served.server().metrics_address())["reprise_sessions_ended_total{reason=\"evicted\"}"],
      1);
  EXPECT_EQ(Evict(served, id, "").error_code(), kNotFound);
}

TEST(EvictSession, OfOneThatIsDetached) {
  ServedModel served(Open());
  StreamClient victim(served.NewChannel(), OpenWithGrace(kHourMs));
  victim.StartRow(kRow, kOwnPrompt, 32);
  victim.Cancel();
  EXPECT_TRUE(Eventually([&] { return !ListAll(served)[0].attached(); }));
  EXPECT_TRUE(Evict(served, ListAll(served)[0].id(), "").ok());
  const engine::PoolInfo pool = served.engine().pool();
  EXPECT_EQ(pool.free_blocks, pool.num_blocks - 1);
  StreamClient late(served.NewChannel(), ResumeOf(victim.session(), 1));
  EXPECT_EQ(late.Finish().error_code(), kAborted);
}

// Blocks that a step in flight reads are nobody else's before it has ended: neighbours that take
// what becomes free at once, and write to it, have the tokens of an undisturbed life.
TEST(EvictSession, WhileItsStepsAreInFlight) {
  ServedModel served(Open(/*max_delay_us=*/300));
  const std::vector<uint32_t> expected = served.Reference(kOtherPrompt, 4);
  for (int round = 0; round < 10; ++round) {
    StreamClient victim(served.NewChannel(), OpenWithGrace(round % 2 == 0 ? kHourMs : 0));
    victim.StartRow(kRow, kOwnPrompt, 32);
    for (int i = 0; i < 4; ++i) {  // two in flight, two queued
      v1::StepRequest step = victim.NewStep();
      step.set_continue_all(true);
      ASSERT_TRUE(victim.Send(step));
      victim.CountStep();
    }
    EXPECT_TRUE(Evict(served, ListAll(served)[0].id(), "").ok());
    StreamClient neighbour(served.NewChannel());
    std::vector<uint32_t> tokens = {neighbour.StartRow(kRow, kOtherPrompt, 32)};
    for (const uint32_t token : Continue(neighbour, kRow, 3)) tokens.push_back(token);
    EXPECT_EQ(tokens, expected);
    EXPECT_EQ(victim.Finish().error_code(), kAborted);
    EXPECT_TRUE(neighbour.Finish().ok());
    EXPECT_TRUE(Eventually([&] {
      const engine::PoolInfo pool = served.engine().pool();
      return pool.free_blocks == pool.num_blocks - 1;
    }));
  }
  EXPECT_TRUE(served.engine().health().ok());
}

// Nothing can be written behind an answer that it does not take, so it is not told why.
TEST(EvictSession, AClientThatTakesNoAnswersIsCutOff) {
  ServedModel served(Open());
  grpc::ChannelArguments fixed_windows;  // of HTTP/2; gRPC would let them grow
  fixed_windows.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  StreamClient client(grpc::CreateCustomChannel(served.address(),
                                                grpc::InsecureChannelCredentials(), fixed_windows),
                      OpenWithGrace(kHourMs));
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepRequest unknown_row = client.NewStep();
  unknown_row.add_chunks()->set_row(kRow + 1);
  std::atomic<int> sent = 0;
  std::thread writer([&] {  // until the call ends
    while (client.Send(unknown_row)) ++sent;
  });
  for (int before = -1; before != sent;) {  // nothing more is taken
    before = sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  EXPECT_TRUE(Evict(served, ListAll(served)[0].id(), "").ok());
  const engine::PoolInfo pool = served.engine().pool();
  EXPECT_EQ(pool.free_blocks, pool.num_blocks - 1);
  writer.join();
  v1::StepStreamResponse response;
  while (client.Receive(&response)) EXPECT_TRUE(response.has_error());
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(EvictSession, ReasonIsBounded) {
  ServedModel served(Open());
  StreamClient client(served.NewChannel());
  const uint64_t id = ListAll(served)[0].id();
  EXPECT_EQ(Evict(served, id, std::string(257, 'x')).error_code(), kInvalid);
  client.StartRow(kRow, kOwnPrompt, 32);
  EXPECT_TRUE(Evict(served, id, std::string(256, 'x')).ok());
}

TEST(SessionAdministration, IsForAdministrators) {
  ServedModel::Options options;
  for (const auto& [name, role] :
       {std::pair("stepper", Role::kStep), std::pair("observer", Role::kObserve),
        std::pair("admin", Role::kAdminister)}) {
    Identity identity{.name = name, .tokens = {TokenDigest::Of(name)}};
    identity.roles.Add(role);
    options.server.identities.push_back(identity);
  }
  ServedModel served(options);
  StreamClient client(served.NewChannel(), "stepper");
  v1::ListSessionsResponse response;
  for (const std::string name : {"stepper", "observer"}) {
    EXPECT_EQ(List(served, {}, &response, name).error_code(), kDenied);
    EXPECT_EQ(Evict(served, 1, "", name).error_code(), kDenied);
  }
  ASSERT_TRUE(List(served, {}, &response, "admin").ok());
  ASSERT_EQ(response.sessions_size(), 1);
  EXPECT_EQ(response.sessions(0).identity(), "stepper");
  EXPECT_TRUE(Evict(served, response.sessions(0).id(), "", "admin").ok());
}

TEST(SessionAdministration, NeedsTheFlagWithoutIdentities) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  v1::ListSessionsResponse response;
  const grpc::Status status = List(served, {}, &response);
  EXPECT_EQ(status.error_code(), kDenied);
  EXPECT_THAT(status.error_message(), HasSubstr("--allow-administration"));
  EXPECT_EQ(Evict(served, 1, "").error_code(), kDenied);
  client.StartRow(kRow, kOwnPrompt, 32);
}

}  // namespace
}  // namespace reprise::service
