// SPDX-License-Identifier: Apache-2.0
// The parts of `reprise bench step` by themselves: cells, kinds of sampling, what is measured, sums
// and shares.
#include "tools/bench/step_bench.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"
#include "tools/bench/step_report.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::reprise::testing::kInvalid;

TEST(StepCells, AreReadFromTextOrRefused) {
  ASSERT_OK_AND_ASSIGN(const auto cells, ParseStepCells("1@512,8@4k"));
  EXPECT_THAT(cells, ElementsAre(StepPoint{1, 512}, StepPoint{8, 4096}));
  EXPECT_EQ(NameOf(cells[1]), "8@4096");
  for (const char* text : {"", "8", "8@", "@512", "0@512", "1@0", "1@1", "1@2@3", "1 @2", "x@4"}) {
    EXPECT_THAT(ParseStepCells(text),
                StatusIs(kInvalid, "\", allowed: <rows>@<context>, such as 8@512"))
        << text;
  }
  EXPECT_THAT(ParseStepCells("1@1024,1@1k"), StatusIs(kInvalid, "got \"1@1k\" twice"));
}

TEST(StepCells, AreTheStandardOnesUnlessTold) {
  std::vector<std::string> names;
  for (const StepPoint& cell : StandardStepCells()) names.push_back(NameOf(cell));
  EXPECT_THAT(names, ElementsAre("1@512", "2@512", "8@512", "32@512", "64@512", "128@512", "1@4096",
                                 "1@16384"));
}

TEST(SamplingKindsTable, IsFoundByNameAndSuggested) {
  ASSERT_OK_AND_ASSIGN(const SamplingKind* top_p, ParseSamplingKind("top-p"));
  EXPECT_LT(top_p->params.top_p, 1.0f);
  EXPECT_FALSE(engine::HasPenalties(top_p->params));
  ASSERT_OK_AND_ASSIGN(const SamplingKind* penalised, ParseSamplingKind("penalised"));
  EXPECT_TRUE(engine::HasPenalties(penalised->params));
  EXPECT_THAT(ParseSamplingKind("gredy"), StatusIs(kInvalid, "did you mean \"greedy\"? allowed: "));
  EXPECT_THAT(ParseSamplingKind("greedy,top-p"), StatusIs(kInvalid, "allowed: one kind"));
}

// An engine of a tiny model whose contexts may be claimed.
class StepBenchTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void Start(const engine::DecodeEngineOptions& more) {
    engine_.reset();
    ASSERT_OK_AND_ASSIGN(device_, runtime::Device::Create({}));
    ASSERT_OK_AND_ASSIGN(const std::string model,
                         testing::WriteTinyModel({}, directory_.path() + "/model"));
    engine::DecodeEngineOptions options = more;
    options.block_size = 4;
    options.max_rows = 4;
    options.kv_cache_bytes = 1 << 20;
    ASSERT_OK_AND_ASSIGN(engine_, engine::CreateEngineWithDiagnostics(*device_, {model}, options,
                                                                      {.random_kv_cache = true}));
  }
  static absl::Status GoOn(uint32_t) { return absl::OkStatus(); }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<engine::DecodeEngine> engine_;
};

TEST_F(StepBenchTest, MeasuresStepsWhoseContextsEndAtTheCells) {
  StepBench bench(engine_.get(), nullptr, {.rounds = 2, .replays = 20, .warmup = 1});
  StepCell cell{.cell = {3, 40}};
  uint32_t steps = 0;
  const auto measured = [&](uint32_t more) {
    steps += more;
    return absl::OkStatus();
  };
  ASSERT_OK(bench.Measure(measured, &cell));
  ASSERT_OK(bench.Measure(measured, &cell));
  EXPECT_EQ(steps, 40u);
  EXPECT_EQ(cell.device_ns.count(), 40u);
  EXPECT_EQ(cell.round_wall_ns.count(), 2u);
  EXPECT_EQ(cell.graph, "decode/4");
  EXPECT_EQ(cell.padding_rows, 1u);
  EXPECT_GT(cell.num_kernels, 3);
  // 16 steps from 25 to 40 tokens and 4 from 37 to 40, twice.
  EXPECT_DOUBLE_EQ(cell.contexts.MeanContext(), (16 * 32.5 + 4 * 38.5) / 20);
  EXPECT_GT(cell.device_ns.Percentile(50), 0.0);
  EXPECT_GE(cell.wall_ns.Percentile(50), cell.device_ns.Min());
}

TEST_F(StepBenchTest, MeasuresEveryKindOfSampling) {
  for (const SamplingKind& kind : SamplingKinds()) {
    StepBench bench(engine_.get(), nullptr,
                    {.rounds = 1, .replays = 3, .warmup = 0, .sampling = &kind});
    StepCell cell{.cell = {2, 30}};
    EXPECT_OK(bench.Measure(GoOn, &cell)) << kind.name;
    EXPECT_OK(bench.Sustain(0.001, GoOn, &cell)) << kind.name;
    EXPECT_EQ(cell.device_ns.count(), 3u);
  }
}

TEST_F(StepBenchTest, RunsBackToBackForAsLongAsItIsTold) {
  for (const uint32_t depth : {1u, 2u}) {
    Start({.pipeline_depth = depth});
    StepBench bench(engine_.get(), nullptr, {});
    StepCell cell{.cell = {2, 40}};
    ASSERT_OK(bench.Sustain(0.02, GoOn, &cell));
    ASSERT_TRUE(cell.sustained.has_value());
    EXPECT_GE(cell.sustained->seconds, 0.02);
    EXPECT_EQ(cell.sustained->contexts.steps % 17, 0u);
    EXPECT_DOUBLE_EQ(cell.sustained->contexts.MeanContext(), 32.0);  // from 24 to 40
    EXPECT_TRUE(cell.sustained->power_w.empty());
    EXPECT_EQ(cell.sustained->EnergyPerToken(2), std::nullopt);
  }
}

TEST_F(StepBenchTest, AnInterruptedRoundLeavesTheOnesBefore) {
  StepBench bench(engine_.get(), nullptr, {.rounds = 2, .replays = 2, .warmup = 0});
  StepCell cell{.cell = {1, 10}};
  ASSERT_OK(bench.Measure(GoOn, &cell));
  const auto stop = [](uint32_t) { return absl::CancelledError("enough"); };
  EXPECT_THAT(bench.Measure(stop, &cell), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(bench.Sustain(60, stop, &cell), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(cell.device_ns.count(), 2u);
  EXPECT_FALSE(cell.sustained.has_value());
  // Nothing of it is left in flight.
  EXPECT_OK(bench.Measure(GoOn, &cell));
}

// 500 W for two seconds and 400 steps of 8 rows.
TEST(SustainedSteps, TellEnergyPerToken) {
  SustainedSteps sustained{.seconds = 2};
  sustained.contexts.steps = 400;
  EXPECT_DOUBLE_EQ(sustained.StepNs(), 5e6);
  EXPECT_DOUBLE_EQ(sustained.TokensPerSecond(8), 1600);
  EXPECT_EQ(sustained.EnergyPerToken(8), std::nullopt);
  sustained.power_w.Add(450);
  sustained.power_w.Add(550);
  EXPECT_DOUBLE_EQ(*sustained.EnergyPerToken(8), 500.0 * 2 / 3200);
}

// 3,000 bytes of weights and 1,000 of KV at 20 GB/s: 200 ns; KV written and activations do not
// count.
TEST(StepFloor, IsReadingWeightsAndKv) {
  const models::StepBytes bytes{
      .weights = 3000, .kv_read = 1000, .kv_written = 500, .activations = 700};
  EXPECT_DOUBLE_EQ(FloorNs(bytes, 20e9), 200.0);
  EXPECT_EQ(FloorNs(bytes, 0), 0.0);
  const engine::EngineInfo info;
  StepContext context{.info = info, .options = {}, .telemetry = {}, .bandwidth = {}};
  context.bandwidth.read.Add(10e9);
  context.bandwidth.read.Add(20e9);
  EXPECT_DOUBLE_EQ(context.Share(bytes, 250), 0.8);
}

}  // namespace
}  // namespace reprise::tools
