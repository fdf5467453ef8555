// SPDX-License-Identifier: Apache-2.0
// service/server.h: loading, health, addresses, drain.
#include "service/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "service/clock.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using grpc::health::v1::HealthCheckResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ServedModel::Options Slow() {
  ServedModel::Options options;
  options.max_delay_us = 300;
  return options;
}

v1::StepRequest ContinueAll(const StreamClient& client) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  return step;
}

// Waits until the server has taken that many steps: they wait, are on the device, or have ended.
// REQUIRES: it answers metrics.
bool AwaitAccepted(ServedModel& served, int num_steps) {
  const std::string address = served.server().metrics_address();
  return Eventually([&] {
    // Those that have ended are looked at first, so that no step counts twice.
    const double ended = Scrape(address).Sum("reprise_steps_total");
    const Scrape now(address);
    return ended + now["reprise_requests_in_flight"] + now["reprise_requests_waiting"] >= num_steps;
  });
}

// ---- loading and health ----

TEST(Server, AnswersLoadingUntilAnEngineIsAttached) {
  ServedModel::Options options;
  options.attach = false;
  ServedModel served(options);
  auto channel = served.NewChannel();
  EXPECT_EQ(CheckHealth(channel), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(CheckHealth(channel, "reprise.v1.StepService"), HealthCheckResponse::NOT_SERVING);
  auto stub = v1::StepService::NewStub(channel);
  grpc::ClientContext context;
  v1::DescribeResponse described;
  const grpc::Status status = stub->Describe(&context, v1::DescribeRequest(), &described);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("loading"));
  {
    StreamClient early(channel);
    EXPECT_FALSE(early.opened());
    EXPECT_EQ(early.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }

  served.server().AttachEngine(served.engine());
  EXPECT_EQ(CheckHealth(channel), HealthCheckResponse::SERVING);
  EXPECT_EQ(CheckHealth(channel, "reprise.v1.StepService"), HealthCheckResponse::SERVING);
  StreamClient client(channel);
  EXPECT_TRUE(client.opened());
}

TEST(Health, UnknownServiceIsNotFound) {
  ServedModel served;
  EXPECT_EQ(CheckHealth(served.NewChannel(), "reprise.v2.StepService"),
            -static_cast<int>(grpc::StatusCode::NOT_FOUND));
}

TEST(Health, WatchFollowsLoadingServingAndDraining) {
  ServedModel::Options options;
  options.attach = false;
  ServedModel served(options);
  auto stub = grpc::health::v1::Health::NewStub(served.NewChannel());
  grpc::ClientContext context;
  auto watch = stub->Watch(&context, grpc::health::v1::HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  served.server().AttachEngine(served.engine());
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  std::thread drain([&] { EXPECT_TRUE(served.server().Drain()); });
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  drain.join();
}

TEST(Health, WatchOfAnUnknownServiceSaysSo) {
  ServedModel served;
  auto stub = grpc::health::v1::Health::NewStub(served.NewChannel());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("nobody");
  auto watch = stub->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_FALSE(watch->Read(&response));
}

// The watchdog gives up on a step that a slow device would still have finished: a fault like any
// other.
TEST(Health, TurnsNotServingWhenTheDeviceFails) {
  ServedModel::Options options;
  options.max_delay_us = 8000;  // per kernel; a step has a few dozen
  options.watchdog_timeout_ms = 1;
  ServedModel served(options);
  auto channel = served.NewChannel();
  auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  auto watch = stub->Watch(&context, grpc::health::v1::HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);

  StreamClient client(channel);
  v1::StepRequest step = client.NewStep();
  step.add_add()->set_row(kRow);
  step.mutable_add(0)->add_blocks(client.Allocate(1).at(0));
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(kRow);
  chunk->add_tokens(5);
  chunk->set_sample(true);
  const v1::StepError lost = client.Refused(step);
  EXPECT_EQ(lost.code(), grpc::StatusCode::DEADLINE_EXCEEDED) << lost.message();
  EXPECT_EQ(CheckHealth(channel), HealthCheckResponse::NOT_SERVING);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);

  const v1::StepError refused = client.Refused(step);
  EXPECT_EQ(refused.code(), grpc::StatusCode::UNAVAILABLE) << refused.message();
  EXPECT_THAT(refused.message(), HasSubstr(lost.message()));
  v1::DescribeResponse described;
  grpc::ClientContext describe_context;
  EXPECT_TRUE(v1::StepService::NewStub(channel)
                  ->Describe(&describe_context, v1::DescribeRequest(), &described)
                  .ok());
  EXPECT_TRUE(client.Finish().ok());
}

// Two steps were in flight: both are lost to the same fault, and the third never goes to the
// device.
TEST(Health, EveryStepInFlightLearnsOfTheFault) {
  ServedModel::Options options;
  options.server.metrics_listen = "127.0.0.1:0";
  options.max_delay_us = 16000;  // a step takes about 200 ms
  options.watchdog_timeout_ms = 100;
  double num_lost = 0;  // that were in flight
  // On a busy machine the second step may come after the fault; then everything is tried again.
  for (int tries = 0; tries < 5 && num_lost != 2; ++tries) {
    ServedModel served(options);
    StreamClient client(served.NewChannel());
    v1::StepRequest step = client.NewStep();
    for (uint32_t row = 1; row <= 3; ++row) {
      step.clear_add();
      step.add_add()->set_row(row);
      step.set_sequence(row);
      ASSERT_TRUE(client.Send(step));
    }
    std::vector<int> codes;
    for (int i = 0; i < 3; ++i) {
      v1::StepStreamResponse answer;
      ASSERT_TRUE(client.Receive(&answer));
      codes.push_back(answer.error().code());
    }
    num_lost = Scrape(served.server().metrics_address())["reprise_requests_lost_total"];
    constexpr int kLost = grpc::StatusCode::DEADLINE_EXCEEDED;
    constexpr int kRefused = grpc::StatusCode::UNAVAILABLE;
    EXPECT_THAT(codes, ElementsAre(kLost, num_lost == 2 ? kLost : kRefused, kRefused))
        << num_lost << " in flight";
  }
  EXPECT_EQ(num_lost, 2);
}

// ---- addresses ----

TEST(Server, ListensOnSeveralAddressesAndNamesTheFreePortItTook) {
  testing::TemporaryDirectory directory;
  ServedModel::Options options;
  options.server.listen = {"unix:" + directory.path() + "/s", "127.0.0.1:0"};
  ServedModel served(options);
  const std::vector<std::string>& addresses = served.server().addresses();
  ASSERT_EQ(addresses.size(), 2u);
  EXPECT_EQ(addresses[0], options.server.listen[0]);
  EXPECT_NE(addresses[1], "127.0.0.1:0");
  for (const std::string& address : addresses) {
    EXPECT_EQ(CheckHealth(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
              HealthCheckResponse::SERVING)
        << address;
  }
}

TEST(Server, BusyAddressesAreTypedErrorsAndDisturbNobody) {
  testing::TemporaryDirectory directory;
  ServedModel::Options options;
  options.server.listen = {"unix:" + directory.path() + "/s", "127.0.0.1:0"};
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  for (const std::string& address : served.server().addresses()) {
    const auto second = Server::Start({.listen = {address}});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  }
  EXPECT_THAT(Continue(client, kRow, 3), ::testing::SizeIs(3));
  EXPECT_EQ(CheckHealth(served.NewChannel()), HealthCheckResponse::SERVING);
}

TEST(Server, RemovesItsSocketFileAndFreesItsPort) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/s";
  std::string tcp;
  {
    const auto server = Server::Start({.listen = {"unix:" + path, "127.0.0.1:0"}});
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE(std::filesystem::is_socket(path));
    tcp = (*server)->addresses()[1];
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto again = Server::Start({.listen = {"unix:" + path, tcp}});
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(Server, RefusesBadOptions) {
  EXPECT_EQ(Server::Start({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Server::Start({.listen = {"nonsense"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Server::Start({.listen = {"127.0.0.1:0"}, .max_message_bytes = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto twice = Server::Start({.listen = {"unix:/tmp/x", "127.0.0.1:0", "unix:/tmp/x"}});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("twice"));
  // The first address is given back when a later one fails.
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/s";
  EXPECT_FALSE(Server::Start({.listen = {"unix:" + path, "nonsense"}}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

// ---- drain ----

TEST(Drain, FinishesAcceptedStepsThenEndsStreamsAsUnavailable) {
  ServedModel::Options options = Slowed(3000);  // a step takes about 40 ms
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  constexpr int kSteps = 4;  // all that a stream may have unanswered
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(client.Send(ContinueAll(client)));
    client.CountStep();
  }
  ASSERT_TRUE(AwaitAccepted(served, 1 + kSteps));
  std::atomic<bool> complete = false;
  std::thread drain([&] { complete = served.server().Drain(); });
  v1::StepStreamResponse response;
  int answers = 0;
  while (client.Receive(&response)) {
    EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
    ++answers;
  }
  EXPECT_EQ(answers, kSteps);
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
  drain.join();
  EXPECT_TRUE(complete);
  EXPECT_EQ(served.engine().pool().free_blocks, served.engine().pool().num_blocks - 1);
}

// The stream of the step's session has nothing else to wait for.
TEST(Drain, AnswersAUnaryStepThatWaits) {
  ServedModel::Options options = Slowed(8000);  // a step takes about 100 ms
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  StreamClient busy(served.NewChannel()), client(served.NewChannel());
  busy.StartRow(kRow, kPrompt, kMaxContext);
  client.StartRow(kRow, kPrompt, kMaxContext);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(busy.Send(ContinueAll(busy)));
    busy.CountStep();
  }
  ASSERT_TRUE(AwaitAccepted(served, 2 + 4));
  grpc::Status answered;
  std::thread call([&] {
    grpc::ClientContext context;
    v1::StepRequest step = ContinueAll(client);
    v1::StepResponse response;
    answered = client.stub().Step(&context, step, &response);
  });
  ASSERT_TRUE(AwaitAccepted(served, 2 + 4 + 1));
  EXPECT_TRUE(served.server().Drain());
  call.join();
  EXPECT_TRUE(answered.ok()) << answered.error_message();
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
}

// Keeps the server draining: a stream that reads nothing holds its answers back.
TEST(Drain, RefusesNewWorkAndSaysSo) {
  ServedModel::Options options = Slow();
  options.max_delay_us = 20000;
  ServedModel served(options);
  auto channel = served.NewChannel();
  StreamClient busy(channel);
  busy.StartRow(kRow, kPrompt, kMaxContext);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(busy.Send(ContinueAll(busy)));
    busy.CountStep();
  }
  v1::StepStreamResponse response;
  ASSERT_TRUE(busy.Receive(&response));
  std::thread drain([&] { served.server().Drain(); });
  ASSERT_TRUE(Eventually([&] { return CheckHealth(channel) != HealthCheckResponse::SERVING; }));
  EXPECT_EQ(CheckHealth(channel), HealthCheckResponse::NOT_SERVING);
  StreamClient late(channel);
  EXPECT_FALSE(late.opened());
  const grpc::Status refused = late.Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("draining"));
  grpc::ClientContext context;
  v1::StepResponse step_response;
  const grpc::Status unary = busy.stub().Step(&context, ContinueAll(busy), &step_response);
  EXPECT_EQ(unary.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(unary.error_message(), HasSubstr("draining"));
  drain.join();
}

TEST(Drain, CutsOffAtItsDeadlineWhatDoesNotEnd) {
  ServedModel::Options options;
  options.server.drain_timeout_ms = 200;
  options.server.metrics_listen = "127.0.0.1:0";
  options.max_delay_us = 20000;  // a step takes about 260 ms
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(client.Send(ContinueAll(client)));
    client.CountStep();
  }
  ASSERT_TRUE(AwaitAccepted(served, 1 + 4));
  const uint64_t start_ns = NowNs();
  EXPECT_FALSE(served.server().Drain());
  EXPECT_LT(NowNs() - start_ns, 30'000'000'000u);
  EXPECT_FALSE(client.Finish().ok());
  EXPECT_TRUE(served.server().Drain());  // already stopped
}

TEST(Drain, IdleServerStopsAtOnce) {
  ServedModel::Options options;
  options.server.drain_timeout_ms = 60000;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  const uint64_t start_ns = NowNs();
  EXPECT_TRUE(served.server().Drain());
  EXPECT_LT(NowNs() - start_ns, 30'000'000'000u);
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A client that has connected and asks nothing: Python's, for one, keeps its connection.
TEST(Drain, IdleConnectionsDoNotHoldItUp) {
  ServedModel::Options options;
  options.server.drain_timeout_ms = 60000;
  ServedModel served(options);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 4; ++i) {
    channels.push_back(served.NewChannel());
    EXPECT_EQ(CheckHealth(channels.back()), HealthCheckResponse::SERVING);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(served.server().Drain());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Ordinary keepalive of a client, as often as gRPC's own clients can be told to.
TEST(Server, TakesAClientsKeepaliveWithAndWithoutCalls) {
  ServedModel served;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 1100);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  StreamClient client(
      grpc::CreateCustomChannel(served.address(), grpc::InsecureChannelCredentials(), arguments));
  client.StartRow(kRow, kPrompt, 32);
  // Five pings; after three that come too soon a connection is closed.
  std::this_thread::sleep_for(std::chrono::milliseconds(6000));
  EXPECT_EQ(Continue(client, kRow, 2).size(), 2u);
}

TEST(Server, DestructionWithoutDrainFreesWhatSessionsHeld) {
  ServedModel served(Slow());
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  ASSERT_TRUE(client.Send(ContinueAll(client)));
  served.StopServer();
  EXPECT_EQ(served.engine().pool().free_blocks, served.engine().pool().num_blocks - 1);
}

}  // namespace
}  // namespace reprise::service
