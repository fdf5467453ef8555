// SPDX-License-Identifier: Apache-2.0
// Stamped steps through a server: who may ask for them, what they answer, that they run alone and
// disturb nobody, and that nothing of a profile outlives its session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_profiler.h"
#include "tests/service/refusal.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ServedModel::Options Allowing(int max_delay_us = 0) {
  ServedModel::Options options;
  options.server.allow_administration = true;
  options.max_delay_us = max_delay_us;
  return options;
}

v1::StartProfileRequest RequestOf(const StreamClient& client, const std::vector<uint32_t>& rows,
                                  const std::vector<uint32_t>& tokens = {}) {
  v1::StartProfileRequest request;
  request.set_session(client.session());
  request.mutable_rows()->Assign(rows.begin(), rows.end());
  request.mutable_tokens()->Assign(tokens.begin(), tokens.end());
  return request;
}

grpc::Status Start(StreamClient& client, const v1::StartProfileRequest& request,
                   v1::StartProfileResponse* response, const std::string& token = "") {
  grpc::ClientContext context;
  AddToken(token, &context);
  return client.stub().StartProfile(&context, request, response);
}

v1::StartProfileResponse Started(StreamClient& client, const std::vector<uint32_t>& rows,
                                 const std::vector<uint32_t>& tokens = {}) {
  v1::StartProfileResponse response;
  const grpc::Status status = Start(client, RequestOf(client, rows, tokens), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

v1::StepRequest Stamped(const StreamClient& client) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_stamped(true);
  return step;
}

size_t NumGraphs(ServedModel& served) {
  return engine::EngineProfiler(served.engine()).captured().size();
}

// The launches are those of the plain graph, with their names and in their order.
void ExpectNodesOf(ServedModel& served, const std::string& plain,
                   const v1::ProfiledGraph& profiled) {
  const auto nodes = engine::EngineProfiler(served.engine()).ListNodes(plain);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(static_cast<size_t>(profiled.launches_size()), nodes->size());
  EXPECT_EQ(profiled.bucket().kernel_nodes(), 2 * nodes->size());
  for (size_t i = 0; i < nodes->size(); ++i) {
    const v1::Launch& launch = profiled.launches(static_cast<int>(i));
    EXPECT_EQ(launch.kernel(), (*nodes)[i].kernel);
    EXPECT_EQ(launch.op(), (*nodes)[i].op);
    EXPECT_EQ(launch.shape(), (*nodes)[i].shape);
  }
}

void ExpectStamps(const v1::StepResponse& answer, const v1::ProfiledGraph& graph) {
  EXPECT_EQ(answer.report().graph(), graph.bucket().name());
  EXPECT_TRUE(answer.report().replayed());
  EXPECT_EQ(answer.report().other_rows(), 0u);
  ASSERT_TRUE(answer.has_stamps());
  EXPECT_GT(answer.stamps().begin_ns(), 0u);
  EXPECT_EQ(answer.stamps().took_ns_size(), graph.launches_size());
}

TEST(StartProfile, AnswersWhatFiguresOfKernelsNeed) {
  ServedModel served(Allowing());
  StreamClient client(served.NewChannel());
  v1::StartProfileRequest request = RequestOf(client, {1, 3}, {5});
  request.set_bandwidth_bytes(1 << 20);
  request.set_products(true);
  v1::StartProfileResponse response;
  const grpc::Status status = Start(client, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_THAT(response.graphs(), SizeIs(3));
  EXPECT_EQ(response.graphs(0).bucket().name(), "profiled/1");
  EXPECT_EQ(response.graphs(0).bucket().kind(), "decode");
  EXPECT_EQ(response.graphs(2).bucket().name(), "profiled_mixed/8");
  EXPECT_EQ(response.graphs(2).bucket().kind(), "mixed");
  ExpectNodesOf(served, "decode/1", response.graphs(0));
  ExpectNodesOf(served, "decode/4", response.graphs(1));
  ExpectNodesOf(served, "mixed/8", response.graphs(2));
  EXPECT_GT(response.capture_ns(), 0u);
  EXPECT_GT(response.stamp_cost_ns_size(), 1);
  EXPECT_EQ(response.model().architecture(), "llama");
  EXPECT_EQ(response.model().vocab_size(), kVocab);
  EXPECT_EQ(response.bandwidth().bytes(), 1u << 20);
  EXPECT_THAT(response.bandwidth().read(), SizeIs(8));
  EXPECT_THAT(response.bandwidth().copy(), SizeIs(8));
  EXPECT_EQ(response.bandwidth_missing(), "");
  EXPECT_GT(response.products().tokens(), 0u);
  EXPECT_THAT(response.products().flops_per_s(), SizeIs(8));
  EXPECT_EQ(response.products_missing(), "");
  EXPECT_EQ(response.telemetry(), "");
  EXPECT_THAT(response.telemetry_missing(), HasSubstr("'host' reports neither"));
  // Asked again, without bandwidth and for other sizes: these alone.
  response = Started(client, {2});
  EXPECT_THAT(response.graphs(), SizeIs(1));
  EXPECT_FALSE(response.has_bandwidth());
  EXPECT_EQ(NumGraphs(served), 1u);
}

// Longer than a session may be idle, and asks nothing of it meanwhile.
TEST(StartProfile, KeepsItsSessionInUseHoweverLongItTakes) {
  ServedModel::Options options = Allowing(/*max_delay_us=*/400);
  options.server.idle_timeout_ms = 1500;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  v1::StartProfileRequest request = RequestOf(client, {1, 3}, {5});
  request.set_bandwidth_bytes(1 << 20);
  request.set_products(true);
  v1::StartProfileResponse response;
  const auto begin = std::chrono::steady_clock::now();
  const grpc::Status status = Start(client, request, &response);
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_GT(took, std::chrono::milliseconds(2500)) << "too short for the server to look twice";
  EXPECT_THAT(client.Allocate(1), SizeIs(1));
  EXPECT_TRUE(client.Finish().ok());
}

TEST(StartProfile, TelemetryOfTheHostIsLeftOut) {
  ServedModel served(Allowing());
  grpc::ClientContext context;
  v1::ReadTelemetryResponse response;
  const auto stub = v1::StepService::NewStub(served.NewChannel());
  ASSERT_TRUE(stub->ReadTelemetry(&context, {}, &response).ok());
  EXPECT_FALSE(response.has_sm_clock_mhz() || response.has_memory_clock_mhz() ||
               response.has_power_w());
}

TEST(StartProfile, IsForAdministrators) {
  ServedModel open;  // without identities, and nobody may administer
  StreamClient client(open.NewChannel());
  v1::StartProfileResponse response;
  const grpc::Status status = Start(client, RequestOf(client, {1}), &response);
  EXPECT_EQ(status.error_code(), kDenied);
  EXPECT_THAT(status.error_message(), HasSubstr("profile: this server has no administrators"));
  grpc::ClientContext context;
  v1::ReadTelemetryResponse telemetry;
  EXPECT_EQ(client.stub().ReadTelemetry(&context, {}, &telemetry).error_code(), kDenied);

  ServedModel::Options options;
  Identity both{.name = "both"}, stepper{.name = "stepper"};
  for (const Role role : {Role::kStep, Role::kAdminister}) both.roles.Add(role);
  stepper.roles.Add(Role::kStep);
  both.tokens = {TokenDigest::Of("token-both")};
  stepper.tokens = {TokenDigest::Of("token-stepper")};
  options.server.identities = {both, stepper};
  ServedModel served(options);
  StreamClient theirs(served.NewChannel(), "token-stepper");
  const grpc::Status denied = Start(theirs, RequestOf(theirs, {1}), &response, "token-stepper");
  EXPECT_EQ(denied.error_code(), kDenied);
  EXPECT_THAT(denied.error_message(),
              AllOf(HasSubstr("StartProfile"), HasSubstr("got the identity stepper")));
  // Not for a session of somebody else's either.
  EXPECT_EQ(Start(theirs, RequestOf(theirs, {1}), &response, "token-both").error_code(), kNotFound);
  StreamClient own(served.NewChannel(), "token-both");
  EXPECT_TRUE(Start(own, RequestOf(own, {1}), &response, "token-both").ok());
  // The server goes on to serve those that were refused.
  EXPECT_EQ(theirs.StartRow(kRow, kPrompt, 32), served.Reference(kPrompt, 1)[0]);
}

TEST(StartProfile, RefusesWhatItCannotCapture) {
  ServedModel served(Allowing());
  StreamClient client(served.NewChannel());
  struct Refusal {
    v1::StartProfileRequest request;
    grpc::StatusCode code;
    std::string says;
  };
  v1::StartProfileRequest little = RequestOf(client, {1}), much = little, nobody = little;
  little.set_bandwidth_bytes(1000);
  much.set_bandwidth_bytes(uint64_t{1} << 40);
  nobody.set_session(std::string(16, 'x'));
  const std::vector<Refusal> refusals = {
      {RequestOf(client, {}), kInvalid, "got neither rows nor tokens"},
      {RequestOf(client, {0}), kInvalid, "size is 0"},
      {RequestOf(client, {kMaxRows + 1}), kRange, "size is 7"},
      {RequestOf(client, {}, {kMaxStepTokens + 1}), kRange, "size is 33"},
      {RequestOf(client, std::vector<uint32_t>(257, 1)), kInvalid,
       "rows: got 257 sizes, allowed: at most 256"},
      {little, kRange, "bandwidth_bytes: got 1000, allowed 0, or 262144 to"},
      {much, kRange, "bandwidth_bytes: got 1099511627776"},
      {nobody, kNotFound, "session"},
  };
  for (const Refusal& refusal : refusals) {
    v1::StartProfileResponse response;
    const grpc::Status status = Start(client, refusal.request, &response);
    EXPECT_EQ(status.error_code(), refusal.code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(refusal.says));
  }
  EXPECT_EQ(NumGraphs(served), 0u);
  StreamClient other(served.NewChannel());
  Started(client, {1});
  v1::StartProfileResponse response;
  const grpc::Status second = Start(other, RequestOf(other, {1}), &response);
  EXPECT_EQ(second.error_code(), kAborted);
  EXPECT_THAT(second.error_message(), HasSubstr("profile: got it while session "));
  EXPECT_EQ(NumGraphs(served), 1u);
}

TEST(StampedStep, GivesTheTokensOfAnyOtherAndAStampForEveryLaunch) {
  ServedModel served(Allowing());
  StreamClient client(served.NewChannel());
  const v1::StartProfileResponse started = Started(client, {1}, {4});
  ASSERT_THAT(started.graphs(), SizeIs(2));
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  for (int i = 0; i < 6; ++i) {
    v1::StepRequest step = Stamped(client);
    step.set_stamped(i % 3 != 2);
    const v1::StepResponse answer = client.Step(step);
    tokens.push_back(answer.rows().token(0));
    if (step.stamped()) {
      ExpectStamps(answer, started.graphs(0));
    } else {
      EXPECT_FALSE(answer.has_stamps());
      EXPECT_EQ(answer.report().graph(), "decode/1");
    }
  }
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  // A prompt beside it.
  v1::StepRequest mixed = client.NewStep();
  v1::AddRow* add = mixed.add_add();
  add->set_row(kRow + 1);
  for (const uint32_t block : client.Allocate(2)) add->add_blocks(block);
  v1::Chunk* chunk = mixed.add_chunks();
  chunk->set_row(kRow + 1);
  chunk->mutable_tokens()->Assign(kPrompt.begin(), kPrompt.end());
  chunk->set_sample(true);
  mixed.add_continue_rows(kRow);
  mixed.set_stamped(true);
  const v1::StepResponse answer = client.Step(mixed);
  ExpectStamps(answer, started.graphs(1));
  EXPECT_EQ(answer.rows().token(0), tokens[0]);
}

v1::StepRequest Unpadded(const StreamClient& client) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_unpadded(true);
  return step;
}

// Three rows: a bucket has two or four.
TEST(UnpaddedStep, ReplaysAGraphOfExactlyItsSize) {
  ServedModel served(Allowing());
  StreamClient client(served.NewChannel());
  v1::StartProfileRequest request = RequestOf(client, {3});
  request.add_unpadded_rows(3);
  request.add_unpadded_tokens(5);
  v1::StartProfileResponse started;
  ASSERT_TRUE(Start(client, request, &started).ok());
  ASSERT_THAT(started.unpadded_graphs(), SizeIs(2));
  EXPECT_EQ(started.unpadded_graphs(0).name(), "unpadded/3");
  EXPECT_EQ(started.unpadded_graphs(0).kind(), "decode");
  EXPECT_EQ(started.unpadded_graphs(1).name(), "unpadded_mixed/5");
  EXPECT_EQ(started.unpadded_graphs(1).kind(), "mixed");
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  for (const uint32_t row : {kRow + 1, kRow + 2}) client.StartRow(row, kLongPrompt, kMaxContext);
  for (int i = 0; i < 6; ++i) {
    v1::StepRequest step = Unpadded(client);
    if (i % 3 == 1) step = Stamped(client);
    if (i % 3 == 2) step.set_unpadded(false);
    const v1::StepResponse answer = client.Step(step);
    ASSERT_EQ(answer.rows().row_size(), 3);
    EXPECT_EQ(answer.rows().row(0), kRow);
    tokens.push_back(answer.rows().token(0));
    const char* const graphs[] = {"unpadded/3", "profiled/4", "decode/4"};
    EXPECT_EQ(answer.report().graph(), graphs[i % 3]);
    EXPECT_EQ(answer.report().padding_rows(), i % 3 == 0 ? 0u : 1u);
    EXPECT_EQ(answer.has_stamps(), i % 3 == 1);
  }
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  // Neither beside the other, nor of another size, nor once a profile without them has begun.
  v1::StepRequest both = Unpadded(client);
  both.set_stamped(true);
  const v1::StepError of_both = client.Refused(both);
  EXPECT_EQ(of_both.code(), kInvalid);
  EXPECT_THAT(of_both.message(), HasSubstr("unpadded: got it beside stamped"));
  Started(client, {3});
  const v1::StepError none = client.Refused(Unpadded(client));
  EXPECT_EQ(none.code(), kPrecondition);
  EXPECT_THAT(none.message(), HasSubstr("3 rows has no graph of that size"));
  ASSERT_TRUE(Start(client, request, &started).ok());
  v1::StepRequest drop = Unpadded(client);
  drop.set_continue_all(false);
  for (const uint32_t row : {kRow, kRow + 1}) drop.add_continue_rows(row);
  EXPECT_EQ(client.Refused(drop).code(), kPrecondition);
  EXPECT_EQ(client.Step(Unpadded(client)).report().graph(), "unpadded/3");
  // They go with the session.
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(engine::EngineProfiler(served.engine()).captured_unpadded().empty());
}

TEST(UnpaddedStep, IsRefusedByNameWithoutAProfile) {
  ServedModel served(Allowing());
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  const v1::StepError error = client.Refused(Unpadded(client));
  EXPECT_EQ(error.code(), kDenied);
  EXPECT_THAT(error.message(), HasSubstr("unpadded: got it of a session that profiles nothing"));
  v1::StartProfileRequest request = RequestOf(client, {1});
  for (int i = 0; i < 257; ++i) request.add_unpadded_rows(1);
  v1::StartProfileResponse response;
  const grpc::Status many = Start(client, request, &response);
  EXPECT_EQ(many.error_code(), kInvalid);
  EXPECT_THAT(many.error_message(), HasSubstr("unpadded_rows: got 257 sizes"));
  request.clear_unpadded_rows();
  request.add_unpadded_tokens(kMaxStepTokens + 1);
  EXPECT_EQ(Start(client, request, &response).error_code(), kRange);
  // What there was before went, and the session may begin anew.
  EXPECT_EQ(NumGraphs(served), 0u);
  Started(client, {1});
  EXPECT_TRUE(client.Step(Stamped(client)).has_stamps());
}

TEST(StampedStep, MayBeUnaryAndCountsUnderOtherGraphs) {
  ServedModel::Options options = Allowing();
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  const v1::StartProfileResponse started = Started(client, {1});
  client.StartRow(kRow, kPrompt, 32);
  grpc::ClientContext context;
  v1::StepResponse answer;
  const grpc::Status status = client.stub().Step(&context, Stamped(client), &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectStamps(answer, started.graphs(0));
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_steps_total{graph=\"other\"}"], 1);
}

TEST(StampedStep, IsRefusedByNameWithoutAProfile) {
  ServedModel served(Allowing());
  StreamClient profiling(served.NewChannel()), other(served.NewChannel());
  Started(profiling, {1});
  std::vector<uint32_t> tokens = {other.StartRow(kRow, kPrompt, 32)};
  const v1::StepError error = other.Refused(Stamped(other));
  EXPECT_EQ(error.code(), kDenied);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("stamped: got it of a session that profiles nothing"),
                    HasSubstr("administrators")));
  grpc::ClientContext context;
  v1::StepResponse answer;
  EXPECT_EQ(other.stub().Step(&context, Stamped(other), &answer).error_code(), kDenied);
  // The stream goes on, and the number is free again.
  for (const uint32_t token : Continue(other, kRow, 3)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
}

TEST(StampedStep, RefusesWhatNoProfiledGraphIsFor) {
  ServedModel served(Allowing());
  StreamClient client(served.NewChannel());
  Started(client, {4});
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, 32)};
  const v1::StepError other_size = client.Refused(Stamped(client));
  EXPECT_EQ(other_size.code(), kPrecondition);
  EXPECT_THAT(other_size.message(), HasSubstr("'decode/1' has no profiled graph"));
  v1::StepRequest several = Stamped(client), eager = several;
  several.set_num_steps(2);
  EXPECT_EQ(client.Refused(several).code(), kInvalid);
  eager.set_mode(v1::EXECUTION_MODE_EAGER);
  EXPECT_EQ(client.Refused(eager).code(), kInvalid);
  // Other buckets take them along.
  Started(client, {1});
  EXPECT_TRUE(client.Step(Stamped(client)).has_stamps());
  ASSERT_TRUE(served.engine().SetBuckets({.decode = {1, 2}}).ok());
  EXPECT_EQ(client.Refused(Stamped(client)).code(), kPrecondition);
  Started(client, {1});
  EXPECT_TRUE(client.Step(Stamped(client)).has_stamps());
}

// Two sessions at once: the plain one pipelines, and its tokens are those of a run alone.
TEST(StampedStep, RunsAloneWhileOthersAreServed) {
  ServedModel served(Allowing(200));
  StreamClient stamping(served.NewChannel());
  const v1::StartProfileResponse started = Started(stamping, {1});
  std::atomic<bool> done = false;
  std::vector<uint32_t> plain;
  std::thread streaming([&] {
    while (!done) {
      StreamClient client(served.NewChannel());
      std::vector<uint32_t> tokens = {client.StartRow(kRow, kOwnPrompt, kMaxContext)};
      for (int sent = 0; sent < 40; ++sent) {
        v1::StepRequest step = client.NewStep();
        step.set_continue_all(true);
        ASSERT_TRUE(client.Send(step));
        client.CountStep();
        if (sent < 2) continue;
        v1::StepStreamResponse response;
        ASSERT_TRUE(client.Receive(&response));
        ASSERT_TRUE(response.has_step()) << response.error().message();
        EXPECT_FALSE(response.step().has_stamps());
        tokens.push_back(response.step().rows().token(0));
      }
      if (plain.empty()) plain = tokens;
      EXPECT_EQ(tokens, plain);
      EXPECT_TRUE(client.Finish().ok());
    }
  });
  std::vector<uint32_t> tokens = {stamping.StartRow(kRow, kPrompt, kMaxContext)};
  for (int i = 0; i < 40; ++i) {
    const v1::StepResponse answer = stamping.Step(Stamped(stamping));
    ExpectStamps(answer, started.graphs(0));
    tokens.push_back(answer.rows().token(0));
  }
  // A profile that is started anew waits for the others' steps, and they for it.
  Started(stamping, {1}, {8});
  EXPECT_TRUE(stamping.Step(Stamped(stamping)).has_stamps());
  done = true;
  streaming.join();
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  EXPECT_EQ(plain, served.Reference(kOwnPrompt, plain.size()));
}

TEST(StampedStep, AClientThatDiesInTheMiddleLeavesNothing) {
  ServedModel served(Allowing(100));
  StreamClient neighbour(served.NewChannel());
  std::vector<uint32_t> tokens = {neighbour.StartRow(kRow, kPrompt, kMaxContext)};
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  for (int round = 0; round < 4; ++round) {
    StreamClient client(served.NewChannel());
    Started(client, {1});
    client.StartRow(kRow, kOwnPrompt, 32);
    for (int i = 0; i < 4; ++i) {  // one in flight, three queued
      ASSERT_TRUE(client.Send(Stamped(client)));
      client.CountStep();
    }
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    client.Cancel();
    EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
    EXPECT_TRUE(Eventually([&] { return NumGraphs(served) == 0; }));
    for (const uint32_t token : Continue(neighbour, kRow, 2)) tokens.push_back(token);
  }
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  EXPECT_TRUE(served.engine().health().ok());
}

TEST(StampedStep, TheNextSessionMayProfileWhenOneHasEnded) {
  ServedModel served(Allowing());
  for (int round = 0; round < 3; ++round) {
    StreamClient client(served.NewChannel());
    Started(client, {1, 4});
    client.StartRow(kRow, kPrompt, 32);
    EXPECT_TRUE(client.Step(Stamped(client)).has_stamps());
    EXPECT_EQ(NumGraphs(served), 2u);
    EXPECT_TRUE(client.Finish().ok());
    EXPECT_EQ(NumGraphs(served), 0u);
  }
}

TEST(StampedStep, AnEvictedSessionsProfileGoesWithIt) {
  ServedModel served(Allowing(100));
  StreamClient client(served.NewChannel());
  Started(client, {1});
  client.StartRow(kRow, kPrompt, 32);
  ASSERT_TRUE(client.Send(Stamped(client)));
  grpc::ClientContext context, again;
  v1::ListSessionsResponse sessions;
  StreamClient other(served.NewChannel());
  ASSERT_TRUE(other.stub().ListSessions(&context, {}, &sessions).ok());
  ASSERT_EQ(sessions.sessions_size(), 2);
  v1::EvictSessionRequest evict;
  evict.set_id(sessions.sessions(0).id());
  v1::EvictSessionResponse evicted;
  ASSERT_TRUE(other.stub().EvictSession(&again, evict, &evicted).ok());
  EXPECT_TRUE(Eventually([&] { return NumGraphs(served) == 0; }));
  Started(other, {1});
  other.StartRow(kRow, kPrompt, 32);
  EXPECT_TRUE(other.Step(Stamped(other)).has_stamps());
}

}  // namespace
}  // namespace reprise::service
