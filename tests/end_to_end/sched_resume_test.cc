// SPDX-License-Identifier: Apache-2.0
// `reprise sched`, and the client in it, on a connection that breaks: its session goes on, no token
// is missing, and none comes twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/service/proxy.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"
#include "tools/sched/client.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using service::Eventually;
using service::Proxy;
using service::Scrape;
using service::ServedModel;
using ::testing::HasSubstr;
using tools::GrpcClient;

// ---- the client ----

constexpr std::chrono::milliseconds kGrace(10000);

class ResumingClient : public ::testing::Test {
 protected:
  static ServedModel::Options Listening() {
    ServedModel::Options options;
    options.server.metrics_listen = "127.0.0.1:0";
    return options;
  }
  void Connect(std::chrono::milliseconds grace = kGrace) {
    auto client = GrpcClient::Connect({.connection = {.address = proxy_.address()},
                                       .name = "test",
                                       .wait = std::chrono::seconds(10),
                                       .resume_grace = grace,
                                       .note = [this](const std::string& what) { notes_ += what; },
                                       .interrupted = &interrupted_});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  // A row with blocks for its whole life, and the first step.
  void Start() {
    const auto blocks = client_->Allocate(service::kMaxContext / service::kBlockSize);
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    tools::PlannedStep step;
    step.sequence = 1;
    step.add.push_back({.row = 3, .blocks = *blocks});
    step.chunks.push_back({.row = 3, .tokens = prompt_, .sample = true});
    ASSERT_TRUE(client_->Submit(step).ok());
    Receive(1);
  }
  absl::Status Submit(uint64_t sequence) {
    tools::PlannedStep step;
    step.sequence = sequence;
    step.continue_all = true;
    return client_->Submit(step);
  }
  void Receive(uint64_t sequence) {
    tools::StepOutcome outcome;
    const absl::Status received = client_->Receive(&outcome);
    ASSERT_TRUE(received.ok()) << received;
    ASSERT_TRUE(outcome.refusal.ok()) << outcome.refusal;
    EXPECT_EQ(outcome.sequence, sequence);
    ASSERT_EQ(outcome.rows.size(), 1u);
    tokens_.push_back(outcome.rows[0].token);
  }
  double Metric(const std::string& name) {
    return Scrape(served_.server().metrics_address())[name];
  }
  bool StepsHaveRun(double count) {
    return Eventually([&] {
      return Scrape(served_.server().metrics_address()).Sum("reprise_steps_total") == count;
    });
  }

  ServedModel served_{Listening()};
  Proxy proxy_{served_.address()};
  const std::vector<uint32_t> prompt_ = {5, 80, 33};
  std::atomic<bool> interrupted_ = false;
  std::string notes_;
  std::vector<uint32_t> tokens_;
  std::unique_ptr<GrpcClient> client_;
};

TEST_F(ResumingClient, HasEveryResultOnceWhereverTheConnectionBreaks) {
  Connect();
  Start();
  // Before a step is sent, before its answer is read, and with both.
  proxy_.Break();
  ASSERT_TRUE(Submit(2).ok());
  Receive(2);
  ASSERT_TRUE(Submit(3).ok());
  ASSERT_TRUE(Submit(4).ok());
  ASSERT_TRUE(StepsHaveRun(4));
  proxy_.Break();
  Receive(3);
  ASSERT_TRUE(Submit(5).ok());
  proxy_.Break();
  Receive(4);
  Receive(5);
  EXPECT_EQ(tokens_, served_.Reference(prompt_, 5));
  // What had come before the last break is read without noticing it.
  EXPECT_GE(client_->num_resumed(), 2u);
  EXPECT_EQ(Metric("reprise_sessions_resumed_total"), client_->num_resumed());
  EXPECT_THAT(notes_, HasSubstr("was lost"));
  EXPECT_THAT(notes_, HasSubstr("resumed the session"));
  EXPECT_TRUE(client_->Close().ok());
  EXPECT_EQ(Metric("reprise_sessions_opened_total"), 1);
  EXPECT_TRUE(
      Eventually([&] { return Metric("reprise_sessions_ended_total{reason=\"closed\"}") == 1; }));
}

TEST_F(ResumingClient, IsToldOfARefusalAgain) {
  Connect();
  Start();
  ASSERT_TRUE(Submit(9).ok());
  proxy_.Break();
  tools::StepOutcome outcome;
  ASSERT_TRUE(client_->Receive(&outcome).ok());
  EXPECT_EQ(outcome.refusal.code(), absl::StatusCode::kFailedPrecondition) << outcome.refusal;
  ASSERT_TRUE(Submit(2).ok());
  Receive(2);
  EXPECT_EQ(tokens_, served_.Reference(prompt_, 2));
}

TEST_F(ResumingClient, GoesOnWithItsBlocks) {
  Connect();
  Start();
  proxy_.Break();
  const auto blocks = client_->Allocate(1);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  proxy_.Break();
  EXPECT_TRUE(client_->Free(*blocks).ok());
  ASSERT_TRUE(Submit(2).ok());
  proxy_.Break();
  Receive(2);
  EXPECT_EQ(tokens_, served_.Reference(prompt_, 2));
}

TEST_F(ResumingClient, ClosesASessionWhoseConnectionIsLost) {
  Connect();
  Start();
  proxy_.Break();
  const absl::Status closed = client_->Close();
  EXPECT_TRUE(closed.ok()) << closed;
  EXPECT_TRUE(Eventually([&] { return Metric("reprise_sessions_open") == 0; }));
  EXPECT_EQ(Metric("reprise_sessions_detached"), 0);
}

TEST_F(ResumingClient, LeavesNoSessionToBeResumedWhereItIsDropped) {
  Connect();
  Start();
  client_.reset();
  EXPECT_TRUE(Eventually([&] { return Metric("reprise_sessions_open") == 0; }));
}

TEST_F(ResumingClient, GivesUpWhenItsGraceTimeIsOver) {
  Connect(std::chrono::milliseconds(300));
  Start();
  proxy_.Refuse(true);
  proxy_.Break();
  const absl::Status lost = Submit(2);
  tools::StepOutcome outcome;
  const absl::Status status = lost.ok() ? client_->Receive(&outcome) : lost;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ended the session after 1 steps"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it was not resumed"));
  EXPECT_EQ(client_->num_resumed(), 0u);
}

TEST_F(ResumingClient, DoesNotTryWithoutAGraceTime) {
  Connect(std::chrono::milliseconds(0));
  Start();
  proxy_.Break();
  const absl::Status lost = Submit(2);
  tools::StepOutcome outcome;
  const absl::Status status = lost.ok() ? client_->Receive(&outcome) : lost;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(notes_, "");
}

TEST_F(ResumingClient, StopsTryingWhenInterrupted) {
  Connect(std::chrono::minutes(1));
  Start();
  proxy_.Refuse(true);
  proxy_.Break();
  std::thread interrupt([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    interrupted_ = true;
  });
  const absl::Status lost = Submit(2);
  tools::StepOutcome outcome;
  const absl::Status status = lost.ok() ? client_->Receive(&outcome) : lost;
  interrupt.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(ResumingClient, DoesNotTryWhereTheServerStops) {
  Connect();
  Start();
  std::thread drain([this] { served_.server().Drain(); });
  tools::StepOutcome outcome;
  const absl::Status status = client_->Receive(&outcome);
  drain.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("draining"));
  EXPECT_EQ(notes_, "");
}

// ---- the program ----

class ResumingSched : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::vector<std::string> Sched(const std::string& address) const {
    return {"sched",
            "--address",
            address,
            "--prompt-lengths",
            "3..40",
            "--requests",
            "60",
            "--max-new-tokens",
            "60",
            "--ignore-eos",
            "--seed",
            "7",
            "--temperature",
            "0.8",
            "--quiet",
            "--json",
            Json()};
  }
  std::string Json() const { return directory_.path() + "/figures.json"; }
  json Tokens() const {
    const json outcome = json::parse(ReadTextFile(Json()), nullptr, false);
    EXPECT_TRUE(outcome.is_object());
    json tokens;
    for (const json& request : outcome["requests"]) tokens.push_back(request["tokens"]);
    return tokens;
  }
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(ResumingSched, GivesTheSameTokensOverAConnectionThatBreaks) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  Program straight(Sched(served.address()));
  EXPECT_EQ(straight.Wait(), 0) << straight.stderr_text();
  const json expected = Tokens();
  ASSERT_EQ(expected.size(), 60u);
  Proxy proxy(served.address());
  Program broken(Sched(proxy.address()));
  EXPECT_TRUE(broken.AwaitOutput("connected to"));
  for (int i = 0; i < 20 && broken.running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    proxy.Break();
  }
  EXPECT_EQ(broken.Wait(), 0) << broken.stderr_text();
  EXPECT_THAT(broken.stderr_text(), HasSubstr("resumed the session"));
  EXPECT_EQ(Tokens(), expected);
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0) << "nobody's session is left";
}

}  // namespace
}  // namespace reprise::testing
