// SPDX-License-Identifier: Apache-2.0
// Metrics of a real server over HTTP: what they say is what was done.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/http2_client.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

constexpr uint32_t kRowBlocks = 4;  // of 16 tokens

ServedModel::Options WithMetrics() {
  ServedModel::Options options;
  options.server.metrics_listen = "127.0.0.1:0";
  return options;
}

std::string OfGraph(const std::string& name, const std::string& graph) {
  return absl::StrCat(name, "{graph=\"", graph, "\"}");
}

std::string Refused(const std::string& code) {
  return absl::StrCat("reprise_requests_refused_total{code=\"", code, "\"}");
}

class Metrics : public ::testing::Test {
 protected:
  Scrape Now() const { return Scrape(served_.server().metrics_address()); }
  mutable ServedModel served_{WithMetrics()};
};

TEST_F(Metrics, AgreeWithAKnownSequenceOfSteps) {
  StreamClient client(served_.NewChannel());
  client.StartRow(kRow, kPrompt, kRowBlocks * kBlockSize);
  Continue(client, kRow, 4);
  const Scrape now = Now();
  EXPECT_EQ(now[OfGraph("reprise_steps_total", "mixed/8")], 1);
  EXPECT_EQ(now[OfGraph("reprise_steps_total", "decode/1")], 4);
  EXPECT_EQ(now.Sum("reprise_steps_total"), 5);
  EXPECT_EQ(now[OfGraph("reprise_step_tokens_total", "mixed/8")], 3);
  EXPECT_EQ(now[OfGraph("reprise_step_padding_tokens_total", "mixed/8")], 5);
  EXPECT_EQ(now[OfGraph("reprise_step_rows_total", "decode/1")], 4);
  EXPECT_EQ(now["reprise_sampled_tokens_total"], 5);
  EXPECT_EQ(now["reprise_prompt_tokens_total"], 3);
  for (const char* name : {"reprise_step_device_seconds", "reprise_request_wall_seconds",
                           "reprise_request_queue_seconds", "reprise_request_launch_seconds"}) {
    EXPECT_EQ(now[OfGraph(absl::StrCat(name, "_count"), "decode/1")], 4) << name;
    EXPECT_EQ(now[OfGraph(absl::StrCat(name, "_count"), "mixed/8")], 1) << name;
  }
  EXPECT_GT(now[OfGraph("reprise_step_device_seconds_sum", "decode/1")], 0);
  EXPECT_GT(now[OfGraph("reprise_request_wall_seconds_sum", "decode/1")],
            now[OfGraph("reprise_request_launch_seconds_sum", "decode/1")]);
  EXPECT_EQ(now.Sum("reprise_requests_refused_total"), 0);
  EXPECT_EQ(now["reprise_eager_steps_total"], 0);
}

TEST_F(Metrics, CountEveryStepOfARequestOfSeveral) {
  StreamClient client(served_.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_num_steps(4);
  client.Step(step);
  const Scrape now = Now();
  EXPECT_EQ(now[OfGraph("reprise_steps_total", "decode/1")], 4);
  EXPECT_EQ(now[OfGraph("reprise_step_device_seconds_count", "decode/1")], 4);
  EXPECT_EQ(now[OfGraph("reprise_request_wall_seconds_count", "decode/1")], 1);
  EXPECT_EQ(now["reprise_sampled_tokens_total"], 5);
}

TEST_F(Metrics, CountDraftsAndThoseOfThemThatAreAccepted) {
  StreamClient client(served_.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  const std::vector<uint32_t> tokens = served_.Reference(kPrompt, 3);
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  v1::RowDraft* draft = step.add_drafts();
  draft->set_row(kRow);
  draft->add_tokens(tokens[1]);
  draft->add_tokens((tokens[2] + 1) % kVocab);
  client.Step(step);
  const Scrape now = Now();
  EXPECT_EQ(now["reprise_draft_tokens_total"], 2);
  EXPECT_EQ(now["reprise_accepted_tokens_total"], 1);
  EXPECT_EQ(now["reprise_sampled_tokens_total"], 3);
}

TEST_F(Metrics, CountStepsThatWereAskedToRunEagerly) {
  StreamClient client(served_.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_mode(v1::EXECUTION_MODE_EAGER);
  client.Step(step);
  EXPECT_EQ(Now()["reprise_eager_steps_total"], 1);
}

TEST_F(Metrics, CountRefusalsByCode) {
  StreamClient client(served_.NewChannel());
  v1::StepRequest step = client.NewStep();
  step.add_continue_rows(kRow);
  client.Refused(step);
  step = client.NewStep();
  step.set_sequence(9);
  step.set_continue_all(true);
  client.Refused(step);
  grpc::ClientContext context;
  v1::StepRequest unary;
  unary.set_session(std::string(16, 'x'));
  v1::StepResponse response;
  EXPECT_EQ(client.stub().Step(&context, unary, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  const Scrape now = Now();
  EXPECT_EQ(now[Refused("NOT_FOUND")], 2);
  EXPECT_EQ(now[Refused("FAILED_PRECONDITION")], 1);
  EXPECT_EQ(now.Sum("reprise_requests_refused_total"), 3);
  EXPECT_EQ(now["reprise_requests_lost_total"], 0);
  EXPECT_EQ(now.Sum("reprise_steps_total"), 0);
}

TEST_F(Metrics, SayWhatThePoolAndTheSessionsHold) {
  Scrape now = Now();
  const double usable = now["reprise_pool_blocks"];
  EXPECT_GT(usable, kRowBlocks);
  EXPECT_EQ(now["reprise_pool_free_blocks"], usable);
  StreamClient client(served_.NewChannel());
  client.StartRow(kRow, kPrompt, kRowBlocks * kBlockSize);
  now = Now();
  EXPECT_EQ(now["reprise_pool_held_blocks"], kRowBlocks);
  EXPECT_EQ(now["reprise_pool_free_blocks"], usable - kRowBlocks);
  EXPECT_EQ(now["reprise_resident_rows"], 1);
  EXPECT_EQ(now["reprise_resident_rows_limit"], kMaxRows);
  EXPECT_EQ(now["reprise_sessions_open"], 1);
  EXPECT_EQ(now["reprise_sessions_opened_total"], 1);
  EXPECT_TRUE(client.Finish().ok());
  now = Now();
  EXPECT_EQ(now["reprise_sessions_open"], 0);
  EXPECT_EQ(now["reprise_sessions_ended_total{reason=\"closed\"}"], 1);
  EXPECT_EQ(now["reprise_pool_free_blocks"], usable);
  EXPECT_EQ(now["reprise_resident_rows"], 0);
}

TEST_F(Metrics, SayThatAClientCancelled) {
  auto client = std::make_unique<StreamClient>(served_.NewChannel());
  ASSERT_TRUE(client->opened());
  client->Cancel();
  client.reset();
  EXPECT_TRUE(Eventually([&] { return Now().Sum("reprise_sessions_ended_total") == 1; }));
  EXPECT_EQ(Now()["reprise_sessions_ended_total{reason=\"cancelled\"}"], 1);
}

TEST_F(Metrics, CountConnections) {
  StreamClient client(served_.NewChannel());
  ASSERT_TRUE(client.opened());
  EXPECT_EQ(Now()["reprise_connections_accepted_total"], 1);
  EXPECT_EQ(Now()["reprise_connections_open"], 1);
  EXPECT_EQ(Now().Sum("reprise_connections_refused_total"), 0);
  EXPECT_EQ(Now().Sum("reprise_connections_cut_total"), 0);
}

TEST_F(Metrics, SayWhatConnectionsWereCutOffFor) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "frames are not metered: ThreadSanitizer's build links gRPC as a shared library";
#endif
  Http2Client flood(served_.address());
  flood.Send(Http2Opening());
  std::string frames;
  for (int i = 0; i < 1000; ++i) frames += Frame(static_cast<FrameType>(77), 0, 1, "");
  for (int i = 0; i < 200 && flood.Send(frames); ++i) {
  }
  EXPECT_TRUE(Eventually(
      [&] { return Now()["reprise_connections_cut_total{reason=\"other_frames\"}"] == 1; }));
  EXPECT_EQ(Now().Sum("reprise_connections_cut_total"), 1);
}

TEST_F(Metrics, SayWhichConnectionsWereRefused) {
  ServedModel::Options options = WithMetrics();
  options.server.connections.max_connections = 1;
  options.server.connections.max_connections_per_peer = 1;
  ServedModel served(options);
  const Http2Client first(served.address());
  Http2Client second(served.address());
  EXPECT_TRUE(second.AwaitEnd());
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_connections_refused_total{reason=\"limit\"}"], 1);
  EXPECT_EQ(now["reprise_connections_accepted_total"], 1);
}

TEST_F(Metrics, SayWhatTheServerIs) {
  const Scrape now = Now();
  EXPECT_EQ(now["reprise_serving"], 1);
  EXPECT_EQ(now["reprise_device_faults_total"], 0);
  EXPECT_GT(now["reprise_start_time_seconds"], 1.7e9);
  EXPECT_GE(now["reprise_uptime_seconds"], 0);
  EXPECT_TRUE(now.Has("reprise_build_info{version=\"" REPRISE_VERSION "\",commit=\"\"}"));
  const engine::EngineInfo& info = served_.engine().info();
  EXPECT_EQ(now["reprise_bucket_changes_total"], 0);
  EXPECT_EQ(now["reprise_graphs"],
            static_cast<double>(info.decode_buckets.size() + info.mixed_buckets.size()));
  served_.server().Drain();
  EXPECT_EQ(Now()["reprise_serving"], 0);
}

TEST(MetricsOfALoadingServer, AreThereAlready) {
  ServedModel::Options options = WithMetrics();
  options.attach = false;
  ServedModel served(options);
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_serving"], 0);
  EXPECT_FALSE(now.Has("reprise_pool_blocks"));
}

TEST(MetricsOfALostStep, CountTheFault) {
  ServedModel::Options options = WithMetrics();
  options.max_delay_us = 8000;  // per kernel; a step has a few dozen
  options.watchdog_timeout_ms = 1;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(kRow);
  for (const uint32_t block : client.Allocate(1)) add->add_blocks(block);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(kRow);
  chunk->add_tokens(5);
  client.Refused(step);
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_requests_lost_total"], 1);
  EXPECT_EQ(now[Refused("DEADLINE_EXCEEDED")], 1);
  EXPECT_EQ(now["reprise_device_faults_total"], 1);
  EXPECT_EQ(now["reprise_serving"], 0);
}

// Several sessions that want more than there is: some wait, and the figures of that moment agree.
TEST(MetricsOfWaitingSteps, SayWhoWaits) {
  ServedModel::Options options = WithMetrics();
  options.max_delay_us = 20'000;
  ServedModel served(options);
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<StreamClient>(served.NewChannel()));
    clients.back()->StartRow(kRow, kPrompt, kRowBlocks * kBlockSize);
  }
  for (const auto& client : clients) {
    for (int i = 0; i < 4; ++i) {
      v1::StepRequest step = client->NewStep();
      step.set_continue_all(true);
      EXPECT_TRUE(client->Send(step));
      client->CountStep();
    }
  }
  EXPECT_TRUE(Eventually([&] {
    const Scrape now(served.server().metrics_address());
    return now["reprise_requests_in_flight"] >= 1 && now["reprise_sessions_waiting"] >= 2 &&
           now["reprise_requests_waiting"] >= now["reprise_sessions_waiting"] &&
           now["reprise_oldest_wait_seconds"] > 0;
  }));
  for (const auto& client : clients) {
    v1::StepStreamResponse response;
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(client->Receive(&response));
  }
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_requests_waiting"], 0);
  EXPECT_EQ(now["reprise_served_spread_seconds"], 0);
}

TEST_F(Metrics, AreReadWhileStepsRun) {
  std::atomic<bool> stop = false;
  std::thread scraper([&] {
    double before = 0;
    while (!stop) {
      const double steps = Now().Sum("reprise_steps_total");
      EXPECT_GE(steps, before);
      before = steps;
    }
  });
  StreamClient client(served_.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  Continue(client, kRow, 40);
  stop = true;
  scraper.join();
  EXPECT_EQ(Now().Sum("reprise_steps_total"), 41);
}

}  // namespace
}  // namespace reprise::service
