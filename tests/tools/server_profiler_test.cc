// SPDX-License-Identifier: Apache-2.0
// Steps of a profile through a server's session: what is sent, against a server that is strict
// about the contract, and what becomes of its answers; their report.
#include "tools/profile/server_profiler.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/config/model_presets.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/fake_step_server.h"
#include "tools/profile/assertion.h"
#include "tools/profile/report.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ServerInfo Server() {
  return {.limits = {.block_size = 4,
                     .vocab_size = 97,
                     .max_rows = 8,
                     .max_context_length = 256,
                     .max_blocks_per_row = 64,
                     .max_step_tokens = 16,
                     .max_prompt_tokens = 16,
                     .pipeline_depth = 1,
                     .max_steps_per_request = 1},
          .num_blocks = 100};
}

// What a ledger says of a step that took 1 us on the device, and waited around it.
class TimedChannel : public StepChannel {
 public:
  explicit TimedChannel(FakeStepServer* server) : server_(server) {}
  absl::Status Submit(const PlannedStep& step) override {
    form_ = step.form;
    num_stamped += step.form == engine::StepForm::kProfiled ? 1 : 0;
    num_unpadded += step.form == engine::StepForm::kUnpadded ? 1 : 0;
    return server_->Submit(step);
  }
  absl::Status Receive(StepOutcome* outcome) override {
    const absl::Status status = server_->Receive(outcome);
    outcome->ledger = {.validate_ns = 10,
                       .ring_ns = 20,
                       .launch_ns = 300,
                       .device_ns = 1000,
                       .total_ns = 10 + 20 + 1500 + 40 + 50 + 60};
    outcome->wire_ns = 40;
    outcome->queue_ns = 50;
    outcome->reply_ns = 60;
    outcome->round_trip_ns = 2500;
    outcome->report.other_rows = outcome->rows.empty() ? 0 : other_rows;
    outcome->report.attention_tree = 3;
    outcome->report.attention_leaf = 1;
    outcome->stamps_done_ns.clear();
    if (form_ == engine::StepForm::kUnpadded) {
      outcome->report.graph = "unpadded";
      outcome->report.padding_rows = padding_rows;
      outcome->ledger.device_ns = 900;
      outcome->ledger.total_ns -= 100;
    }
    if (form_ == engine::StepForm::kProfiled) {
      outcome->report.graph = "profiled";
      outcome->stamps_begin_ns = 100;
      outcome->stamps_done_ns = stamps;
    }
    return status;
  }
  uint32_t other_rows = 0;
  uint32_t num_stamped = 0, num_unpadded = 0;
  uint32_t padding_rows = 0;                       // of unpadded steps, which should have none
  std::vector<uint64_t> stamps = {130, 150, 210};  // of a stamped step

 private:
  engine::StepForm form_ = engine::StepForm::kPlain;
  FakeStepServer* server_;
};

// Graphs of three launches, of a model of two layers with a window of 30 in one of them.
ServerStamps Stamps() {
  ServerStamps stamps;
  stamps.spec = *models::PresetSpec("gemma-2-9b");
  stamps.spec.num_layers = 2;
  stamps.spec.slides = {true, false};
  stamps.spec.sliding_window = 30;
  const auto launch = [](const char* op) {
    return graphs::ProfiledLaunch{.kernel = std::string("reprise_") + op, .op = op, .shape = ""};
  };
  const std::vector<graphs::ProfiledLaunch> launches = {launch("fetch"), launch("rms_norm"),
                                                        launch("rms_norm")};
  stamps.graphs["profiled"] = {
      .num_kernel_nodes = 6, .capacity = 8, .decode = true, .launches = launches};
  return stamps;
}

class ServerProfile : public ::testing::Test {
 protected:
  absl::Status Measure(const StepPoint& point, const ProfileOptions& options = {
                                                   .iterations = 20, .warmup = 3, .rounds = 2}) {
    ServerProfiler profiler(&session_,
                            {.num_kernels = {{"decode", 12}, {"mixed", 14}},
                             .attention_tree = 3,
                             .batch_leaves = {"none", "small"}},
                            stamps_ ? &*stamps_ : nullptr);
    profile_.rows = point.rows;
    profile_.context = point.context;
    profile_.prompts = point.prompts;
    profile_.shortest = point.shortest;
    for (uint32_t round = 0; round < options.rounds; ++round) {
      const absl::Status status = profiler.Measure(
          options, round,
          [this](uint32_t steps) {
            told_ += steps;
            return absl::OkStatus();
          },
          &profile_);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  FakeStepServer server_{Server()};
  TimedChannel channel_{&server_};
  StepSession session_{&channel_, &server_, Server()};
  std::optional<ServerStamps> stamps_;
  PointProfile profile_;
  uint32_t told_ = 0;
};

TEST_F(ServerProfile, ReachesContextsByPrefillingThemAndGivesEverythingBack) {
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  EXPECT_THAT(server_.violations, IsEmpty());
  EXPECT_EQ(server_.num_refused, 0u);
  EXPECT_EQ(server_.num_rows(), 0u);
  EXPECT_EQ(server_.num_held_blocks(), 0u);
  EXPECT_EQ(told_, 20u);
  // Two rounds of 49 tokens in each row, and a token of each for every window: of warm-up, and one.
  EXPECT_EQ(server_.num_prompt_tokens, 2u * (3 * 49 + 3 * 2));
  // No step of the prefill is larger than the largest mixed bucket: 147 tokens in ten.
  uint32_t prefills = 0;
  for (const PlannedStep& step : server_.steps)
    prefills += !step.chunks.empty() && !step.chunks[0].sample ? 1 : 0;
  EXPECT_EQ(prefills, 2u * 10);
}

// The state of a row is that of its last step, and no context brings it back.
TEST_F(ServerProfile, PrefillsRowsThatCarryStateForEveryWindow) {
  ServerInfo info = Server();
  info.limits.row_state_bytes = 64;
  FakeStepServer server(info);
  TimedChannel channel(&server);
  StepSession session(&channel, &server, info);
  ServerProfiler profiler(
      &session,
      {.num_kernels = {{"decode", 12}, {"mixed", 14}}, .attention_tree = 3, .batch_leaves = {}},
      nullptr);
  for (const StepPoint& point :
       {StepPoint{.rows = 3, .context = 50}, StepPoint{.rows = 3, .context = 40, .shortest = 20},
        StepPoint{.rows = 2, .context = 30, .prompts = {5, 3}},
        StepPoint{.rows = 0, .context = 0, .prompts = {16}}, StepPoint{.rows = 1, .context = 2}}) {
    profile_ = {};
    profile_.rows = point.rows;
    profile_.context = point.context;
    profile_.prompts = point.prompts;
    profile_.shortest = point.shortest;
    ASSERT_OK(profiler.Measure(
        {.iterations = 20, .warmup = 3, .rounds = 1}, 0, [](uint32_t) { return absl::OkStatus(); },
        &profile_))
        << NameOf(point);
    EXPECT_THAT(server.violations, IsEmpty()) << NameOf(point);
    EXPECT_EQ(server.num_refused, 0u) << NameOf(point);
    EXPECT_EQ(profile_.plain.replay_ns.count(), 20u);
    EXPECT_EQ(server.num_held_blocks(), 0u);
    EXPECT_EQ(server.num_rows(), 0u);
  }
  EXPECT_DOUBLE_EQ(profile_.mean_context, 2);
}

TEST_F(ServerProfile, TakesTimesFromTheLedgerAndTheClient) {
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  EXPECT_EQ(profile_.plain.replay_ns.count(), 20u);
  EXPECT_THAT(profile_.plain.replay_ns.values(), Each(1500));
  EXPECT_THAT(profile_.plain.device_ns.values(), Each(1000));
  EXPECT_THAT(profile_.plain.launch_ns.values(), Each(300));
  EXPECT_THAT(profile_.wall_ns.values(), Each(2500));
  EXPECT_THAT(profile_.overhead_ns.values(), Each(1500));
  EXPECT_THAT(profile_.round_steps, ElementsAre(10, 10));
  EXPECT_EQ(profile_.round_replay_ns.count(), 2u);
  EXPECT_DOUBLE_EQ(profile_.mean_context, 45.5);  // 41 to 50
  EXPECT_EQ(profile_.graph, "decode");
  EXPECT_EQ(profile_.num_kernels, 12);
  EXPECT_EQ(profile_.attention_leaf, "small");
  EXPECT_TRUE(profile_.is_of_server());
}

TEST_F(ServerProfile, RunsRaggedRowsPromptsAndShortContexts) {
  for (const StepPoint& point :
       {StepPoint{.rows = 3, .context = 40, .shortest = 20},
        StepPoint{.rows = 2, .context = 30, .prompts = {5, 3}},
        StepPoint{.rows = 0, .context = 0, .prompts = {16}}, StepPoint{.rows = 1, .context = 2}}) {
    profile_ = {};
    ASSERT_OK(Measure(point)) << NameOf(point);
    EXPECT_THAT(server_.violations, IsEmpty()) << NameOf(point);
    EXPECT_EQ(profile_.plain.replay_ns.count(), 20u);
    EXPECT_EQ(profile_.graph, point.is_decode() ? "decode" : "mixed");
    EXPECT_EQ(server_.num_held_blocks(), 0u);
  }
  EXPECT_DOUBLE_EQ(profile_.mean_context, 2);
}

TEST_F(ServerProfile, KeepsWhatWasMeasuredWhenTheServerGoes) {
  ASSERT_OK(Measure({.rows = 1, .context = 20}));
  const PointProfile before = profile_;
  server_.fail_after_results = 15;
  EXPECT_THAT(Measure({.rows = 1, .context = 20}),
              StatusIs(absl::StatusCode::kUnavailable, "gone"));
  EXPECT_EQ(profile_.plain.replay_ns.count(), before.plain.replay_ns.count());
  EXPECT_EQ(profile_.round_steps, before.round_steps);
}

TEST_F(ServerProfile, SaysWhyAStepWasRefused) {
  server_.rows_of_others = 7;
  EXPECT_THAT(Measure({.rows = 2, .context = 20}),
              StatusIs(absl::StatusCode::kResourceExhausted, "rows"));
  EXPECT_FALSE(profile_.is_of_server());
}

TEST_F(ServerProfile, CountsStepsThatRanWithOthers) {
  channel_.other_rows = 2;
  ASSERT_OK(Measure({.rows = 1, .context = 20}));
  EXPECT_EQ(profile_.num_shared_steps, 20u);
  EXPECT_EQ(SharedWarning(profile_),
            "20 of 20 steps of 1 row of 20 tokens ran rows of other sessions too: their times are "
            "not those of the point");
}

TEST_F(ServerProfile, StampsStepsInTurnWithPlainOnes) {
  stamps_ = Stamps();
  int reads = 0;
  stamps_->read_telemetry = [&reads]() -> absl::StatusOr<runtime::TelemetrySample> {
    ++reads;
    return runtime::TelemetrySample{
        .sm_clock_mhz = 1500, .memory_clock_mhz = std::nullopt, .power_w = 100.0 * reads};
  };
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  EXPECT_THAT(server_.violations, IsEmpty());
  EXPECT_EQ(server_.num_held_blocks(), 0u);
  EXPECT_EQ(told_, 40u);
  EXPECT_EQ(channel_.num_stamped, 20u);
  EXPECT_TRUE(profile_.has_stamps());
  EXPECT_EQ(profile_.plain.replay_ns.count(), 20u);
  EXPECT_EQ(profile_.wall_ns.count(), 20u);
  EXPECT_THAT(profile_.profiled.replay_ns.values(), Each(1500));
  EXPECT_EQ(profile_.profiled.replay_ns.count(), 20u);
  EXPECT_EQ(profile_.graph, "decode");
  EXPECT_EQ(profile_.num_profiled_kernels, 6);
  ASSERT_EQ(profile_.kernels.ops().size(), 2u);
  EXPECT_EQ(profile_.kernels.ops()[1].count, 2u);
  EXPECT_THAT(profile_.kernels.ops()[0].stamped_ns.values(), Each(30));
  EXPECT_THAT(profile_.kernels.ops()[1].stamped_ns.values(), Each(80));
  // 41 to 50 tokens, of which the layer that slides sees 30.
  EXPECT_DOUBLE_EQ(profile_.mean_context, 45.5);
  EXPECT_DOUBLE_EQ(profile_.mean_attended, (45.5 + 30) / 2);
  EXPECT_DOUBLE_EQ(profile_.attended_pairs, 3 * (45.5 + 30) / 2);
  EXPECT_GT(profile_.bytes.total(), 0u);
  // Once a window of plain steps.
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(profile_.power_w.Mean(), 150);
  EXPECT_TRUE(profile_.memory_clock_mhz.empty());
  EXPECT_DOUBLE_EQ(*profile_.EnergyJ(), 150 * 1500e-9);
}

TEST_F(ServerProfile, MeasuresWithoutPaddingWhereThereAreGraphs) {
  stamps_ = Stamps();
  stamps_->unpadded_rows = {3};
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  EXPECT_THAT(server_.violations, IsEmpty());
  EXPECT_EQ(channel_.num_stamped, 20u);
  EXPECT_EQ(channel_.num_unpadded, 20u);
  ASSERT_TRUE(profile_.has_unpadded());
  EXPECT_THAT(profile_.unpadded.replay_ns.values(), Each(1400));
  EXPECT_EQ(profile_.PaddingReplayNs(), 100);
  EXPECT_EQ(profile_.PaddingDeviceNs(), 100);
  EXPECT_EQ(profile_.plain.replay_ns.count(), 20u);
  // Of another size there is none, nor of prompts of that size.
  profile_ = {};
  ASSERT_OK(Measure({.rows = 2, .context = 50}));
  EXPECT_FALSE(profile_.has_unpadded());
  EXPECT_FALSE(stamps_->IsUnpadded({.rows = 1, .context = 50, .prompts = {2}}));
  profile_ = {};
  channel_.padding_rows = 1;
  EXPECT_THAT(Measure({.rows = 3, .context = 50}),
              StatusIs(absl::StatusCode::kInternal, "the graph \"unpadded\" with padding"));
}

TEST_F(ServerProfile, RefusesStampsThatAreOfNoGraph) {
  stamps_ = Stamps();
  channel_.stamps = {130};
  EXPECT_THAT(Measure({.rows = 3, .context = 50}),
              StatusIs(absl::StatusCode::kInternal, "got 1 stamps of the graph \"profiled\""));
  EXPECT_THAT(stamps_->LaunchesOf({.rows = 9, .context = 50}),
              StatusIs(absl::StatusCode::kNotFound, "got none for 9@50"));
  EXPECT_OK(stamps_->LaunchesOf({.rows = 8, .context = 50}).status());
}

TEST_F(ServerProfile, ReportIsThatOfAnEngineWithTheWireBeside) {
  stamps_ = Stamps();
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  ProfileContext context;
  context.model = "tiny";
  context.server = "unix:/tmp/a.sock, version 1.2.3";
  context.spec = stamps_->spec;
  context.profiled_graphs = "1, 3.00 MiB of the server's device, captured in 2 ms";
  context.why_no_bandwidth = "no memory for it";
  context.why_no_products = "nor for products";
  context.stamp_cost_ns.Add(10);
  const std::string header = ProfileHeader(context);
  for (const char* told : {"3.00 MiB of the server's", "no memory for it", "nor for products"})
    EXPECT_THAT(header, HasSubstr(told));
  const std::string text = PointText(profile_, context);
  for (const char* told : {"wall from", "replay from", "rms_norm", "10 ns a stamp"})
    EXPECT_THAT(text, HasSubstr(told));
  const std::string points = PointsText({profile_}, context);
  for (const char* told : {"overhead p50", "bytes/s", "KV read"})
    EXPECT_THAT(points, HasSubstr(told));
  const nlohmann::json json = PointToJson(profile_, context);
  EXPECT_EQ(json["ops"][1]["net_us"], 0.06);
  EXPECT_EQ(json["timeline"]["op"], nlohmann::json({0, 1, 1}));
  EXPECT_GT(json["bytes"]["total"], 0);
  EXPECT_EQ(json["share_of_read_bandwidth"], nullptr);
  EXPECT_EQ(json["share_of_product_rate"], nullptr);
  EXPECT_EQ(json["ops"][1]["share_of_roof"], nullptr);
  EXPECT_EQ(json["plain"]["wall_us"]["p50"], 2.5);
  EXPECT_EQ(json["shared_steps"], 0);
}

TEST_F(ServerProfile, ReportTellsWhatThereIsAndNothingElse) {
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  ProfileContext context;
  context.why_no_stamps = "nobody may";
  context.model = "tiny";
  context.device = "cuda, a GPU";
  context.server = "unix:/tmp/a.sock, version 1.2.3";
  EXPECT_THAT(ProfileHeader(context), HasSubstr("unix:/tmp/a.sock, version 1.2.3"));
  EXPECT_THAT(ProfileHeader(context), Not(HasSubstr("bandwidth    read")));
  const std::string text = PointText(profile_, context);
  EXPECT_THAT(text, HasSubstr("3 rows of 50 tokens: decode, 12 kernels, 0 rows of padding"));
  EXPECT_THAT(text, HasSubstr("wall from"));
  EXPECT_THAT(text, Not(HasSubstr("stamp")));
  const std::string points = PointsText({profile_}, context);
  EXPECT_THAT(points, HasSubstr("overhead p50"));
  EXPECT_THAT(points, Not(HasSubstr("bytes")));
  const nlohmann::json json = PointToJson(profile_, context);
  EXPECT_EQ(json["plain"]["wall_us"]["p50"], 2.5);
  EXPECT_EQ(json["plain"]["overhead_us"]["mean"], 1.5);
  EXPECT_EQ(json["samples_ns"]["wall"][1].size(), 10u);
  for (const char* untold :
       {"twin", "bytes", "bytes_per_s", "share_of_read_bandwidth", "stamped_span_us", "net_sum_us"})
    EXPECT_EQ(json[untold], nullptr) << untold;
  EXPECT_FALSE(json.contains("mean_attended"));
  EXPECT_THAT(json["ops"], IsEmpty());
  EXPECT_EQ(json["shared_steps"], 0);
}

TEST_F(ServerProfile, BoundsAreOfWhatAServerTells) {
  ASSERT_OK(Measure({.rows = 3, .context = 50}));
  const auto value_of = [&](const char* text) {
    const auto assertion = ParseAssertion(text);
    EXPECT_OK(assertion.status());
    EXPECT_OK(CheckServerSubject(*assertion));
    return Evaluate({&*assertion, 1}, {profile_}, {}).at(0).value_ns;
  };
  EXPECT_EQ(value_of("p99(wall,3@50)<1s"), 2500);
  EXPECT_EQ(value_of("overhead<1s"), 1500);
  EXPECT_EQ(value_of("outside<1s"), 500);
  for (const char* text : {"gap<1s", "publish<1s"}) {
    EXPECT_OK(CheckServerSubject(*ParseAssertion(text)));
    EXPECT_TRUE(NeedsStamps(*ParseAssertion(text)));
  }
  EXPECT_FALSE(NeedsStamps(*ParseAssertion("wall<1s")));
  EXPECT_THAT(CheckServerSubject(*ParseAssertion("idle<1s")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "allowed: replay, device, launch, outside, wall, overhead, gap, a kernel"));
  EXPECT_OK(CheckKernel(*ParseAssertion("wall<1s"), {"publish"}, /*is_server=*/true));
  EXPECT_THAT(CheckKernel(*ParseAssertion("fetch<1s"), {"publish"}, /*is_server=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument, "overhead, gap; a kernel: publish"));
  EXPECT_THAT(CheckKernel(*ParseAssertion("wall<1s"), {"publish"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "figure: got \"wall\""));
}

}  // namespace
}  // namespace reprise::tools
