// SPDX-License-Identifier: Apache-2.0
// `reprise compare` by its parts: intervals, verdicts, warnings, refusals; and a node of a captured
// graph that is made slow, which is found and named.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_matchers.h"
#include "tools/compare/compare_report.h"
#include "tools/compare/comparison.h"
#include "tools/compare/difference.h"
#include "tools/compare/measured_run.h"
#include "tools/compare/student_t.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"

namespace reprise::tools {
namespace {

using ::nlohmann::json;
using ::reprise::testing::StatusIs;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Rounds of `steps` samples around `center`, up to 1 % of it away; every round lies `drift` higher
// than the one before.
RoundSamples Around(double center, double drift = 0, size_t rounds = 3, size_t steps = 30) {
  std::mt19937_64 random(static_cast<uint64_t>(center * 1000 + drift));
  RoundSamples samples(rounds);
  for (size_t i = 0; i < rounds; ++i) {
    for (size_t j = 0; j < steps; ++j) {
      const double share = static_cast<double>(random() % 2001) / 1000 - 1;
      samples[i].push_back(center * (1 + 0.01 * share) + drift * static_cast<double>(i));
    }
  }
  return samples;
}

TEST(Difference, IntervalHoldsWhatChangedAndNoMore) {
  const Difference slower = Compare(Around(100), Around(105), Statistic::kMedian, 0.95);
  ASSERT_TRUE(slower.interval.has_value());
  EXPECT_GT(slower.interval->low, 4);
  EXPECT_LT(slower.interval->high, 6);
  EXPECT_NEAR(slower.change(), 5, 0.5);
  const Difference same = Compare(Around(100), Around(100.01), Statistic::kMidmean, 0.95);
  ASSERT_TRUE(same.interval.has_value());
  EXPECT_LT(same.interval->low, 0);
  EXPECT_GT(same.interval->high, 0);
}

// Two rounds apart by as much as the sides: a shift between rounds is noise.
TEST(Difference, WhatDiffersBetweenRoundsIsNoDifference) {
  const Difference drifting = Compare(Around(100, 5), Around(103, 5), Statistic::kMedian, 0.95);
  ASSERT_TRUE(drifting.interval.has_value());
  EXPECT_LT(drifting.interval->low, 0);
  EXPECT_GT(drifting.interval->high, 0);
}

TEST(Difference, TheSameSamplesGiveTheSameInterval) {
  const Difference once = Compare(Around(100), Around(101), Statistic::kMedian, 0.9);
  const Difference again = Compare(Around(100), Around(101), Statistic::kMedian, 0.9);
  EXPECT_EQ(once.interval->low, again.interval->low);
  EXPECT_EQ(once.interval->high, again.interval->high);
}

TEST(Difference, TooFewSamplesGiveNone) {
  const RoundSamples few = {{1, 2, 3, 4}}, enough = {{1, 2, 3, 4, 5}}, rounds = {{1}, {2}};
  EXPECT_FALSE(Compare(few, enough, Statistic::kMedian, 0.95).interval.has_value());
  EXPECT_FALSE(Compare(enough, {}, Statistic::kMedian, 0.95).interval.has_value());
  EXPECT_TRUE(Compare(enough, rounds, Statistic::kMedian, 0.95).interval.has_value());
}

TEST(Difference, MidmeanLeavesOutliersAside) {
  EXPECT_DOUBLE_EQ(ValueOf({1000, 4, 5, 6, 0}, Statistic::kMidmean), 5);
  EXPECT_DOUBLE_EQ(ValueOf({7}, Statistic::kMidmean), 7);
  EXPECT_DOUBLE_EQ(ValueOf({3, 1, 2}, Statistic::kMedian), 2);
  EXPECT_DOUBLE_EQ(ValueOf({}, Statistic::kMedian), 0);
}

// Tables of the t distribution, such as Abramowitz & Stegun 1964, table 26.10; between whole
// degrees a quantile lies between theirs.
TEST(StudentQuantile, IsThatOfTables) {
  EXPECT_NEAR(StudentQuantile(0.95, 1), 12.706, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.95, 4), 2.776, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.99, 30), 2.750, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.9999, 2), 99.992, 1e-3);
  EXPECT_NEAR(StudentQuantile(0.5, 1), 1, 1e-9);
  EXPECT_NEAR(StudentQuantile(0.95, 1e9), 1.962, 5e-4);
  EXPECT_GT(StudentQuantile(0.95, 2.5), StudentQuantile(0.95, 3));
  EXPECT_LT(StudentQuantile(0.95, 2.5), StudentQuantile(0.95, 2));
}

// Rounds of 9 steps around 100: their centers vary by 2 % and their steps by 1 %.
RoundSamples Varying(size_t rounds, std::mt19937_64& random) {
  const auto normal = [&random] {  // nearly: the sum of 12 uniform numbers
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    return sum;
  };
  RoundSamples samples(rounds);
  for (std::vector<double>& round : samples) {
    const double center = 100 + 2 * normal();
    for (int i = 0; i < 9; ++i) round.push_back(center + normal());
  }
  return samples;
}

// Of pairs of the same thing, the share whose interval leaves out 0.
double ShareOfFalseAlarms(size_t rounds, Statistic statistic, double confidence) {
  constexpr int kPairs = 1000;
  std::mt19937_64 random(rounds);
  int alarms = 0;
  for (int i = 0; i < kPairs; ++i) {
    const RoundSamples a = Varying(rounds, random);
    const Difference same = Compare(a, Varying(rounds, random), statistic, confidence);
    if (same.interval->low > 0 || same.interval->high < 0) ++alarms;
  }
  return static_cast<double>(alarms) / kPairs;
}

// Within two standard deviations of 1,000 pairs.
TEST(Difference, WhatIsTheSameDiffersAsRarelyAsPromised) {
  for (const size_t rounds : {2, 3, 5, 10}) {
    EXPECT_LT(ShareOfFalseAlarms(rounds, Statistic::kMedian, 0.95), 0.065) << rounds;
    EXPECT_LT(ShareOfFalseAlarms(rounds, Statistic::kMidmean, 0.99), 0.017) << rounds;
  }
  // Nor is it bought by intervals that hold everything.
  EXPECT_GT(ShareOfFalseAlarms(5, Statistic::kMedian, 0.95), 0.03);
}

json SamplesJson(const RoundSamples& us) {
  json rounds = json::array();
  for (const std::vector<double>& round : us) {
    json& list = rounds.emplace_back(json::array());
    for (const double value : round) list.push_back(value * 1e3);
  }
  return rounds;
}

json Kernel(const char* op, const char* kernel, const RoundSamples& us) {
  return {{"op", op},   {"kernel", kernel}, {"shape", nullptr},
          {"calls", 2}, {"net_us", 10},     {"samples_ns", SamplesJson(us)}};
}

// One point of a step that takes `replay_us`, of which one kernel takes `kernel_us`.
json Profile(double replay_us, double kernel_us) {
  return {
      {"schema", "reprise.profile/1"},
      {"engine",
       {{"device", {{"kind", "cuda"}, {"name", "a GPU"}, {"driver", "550"}}}, {"dtype", "bf16"}}},
      {"settings", {{"warmup", 16}, {"rows", {1}}}},
      {"bandwidth", {{"read_bytes_per_s", {{"best", 1e12}}}}},
      {"points",
       {{{"rows", 8},
         {"context", 512},
         {"round_replay_us", {replay_us, replay_us * 1.01, replay_us * 0.99}},
         {"samples_ns",
          {{"replay", SamplesJson(Around(replay_us))},
           {"device", SamplesJson(Around(replay_us * 0.9))},
           {"launch", SamplesJson(Around(20))}}},
         {"ops",
          {Kernel("norm", "reprise_norm", Around(30)),
           Kernel("linear", "reprise_linear", Around(kernel_us))}},
         {"clock", {{"sm_mhz", nullptr}}}}}}};
}

MeasuredRun Parse(const std::string& file, const json& profile) {
  const auto run = ParseMeasuredRun(file, profile.dump());
  EXPECT_OK(run.status());
  return run.ok() ? *run : MeasuredRun{};
}

Comparison CompareFiles(const json& a, const json& b, const CompareOptions& options = {}) {
  const auto comparison = CompareRuns(Parse("a.json", a), Parse("b.json", b), options);
  EXPECT_OK(comparison.status());
  return comparison.ok() ? *comparison : Comparison{};
}

TEST(Comparison, NamesWhatBecameSlower) {
  const Comparison comparison = CompareFiles(Profile(1000, 300), Profile(1050, 350));
  ASSERT_EQ(comparison.points.size(), 1u);
  const ComparedPoint& point = comparison.points[0];
  EXPECT_EQ(point.name, "8@512");
  ASSERT_EQ(point.series.size(), 3u);
  EXPECT_EQ(point.series[0].verdict, Verdict::kSlower);
  EXPECT_EQ(point.series[2].verdict, Verdict::kNoDifference);
  ASSERT_EQ(point.kernels.size(), 2u);
  EXPECT_FALSE(point.kernels[0].Changed());
  EXPECT_EQ(point.kernels[1].verdict, Verdict::kSlower);
  EXPECT_NEAR(point.kernels[1].us.change(), 50, 3);
  ASSERT_EQ(comparison.regressions.size(), 2u);
  EXPECT_THAT(comparison.regressions[0], HasSubstr("8@512: replay is slower by "));
  EXPECT_THAT(comparison.warnings, IsEmpty());
}

TEST(Comparison, WhatIsFasterOrBelowTheThresholdIsNoRegression) {
  const Comparison faster = CompareFiles(Profile(1050, 300), Profile(1000, 300));
  EXPECT_EQ(faster.points[0].series[0].verdict, Verdict::kFaster);
  EXPECT_THAT(faster.regressions, IsEmpty());
  EXPECT_THAT(CompareFiles(Profile(1000, 300), Profile(1050, 300), {.threshold = 0.1}).regressions,
              IsEmpty());
  EXPECT_THAT(CompareFiles(Profile(1000, 300), Profile(1000, 300)).regressions, IsEmpty());
}

TEST(Comparison, OtherKernelsAreNamed) {
  json after = Profile(1000, 300);
  after["points"][0]["ops"][0]["kernel"] = "reprise_other_norm";
  after["points"][0]["ops"][1] = Kernel("bulk", "reprise_bulk", Around(10));
  const Comparison comparison = CompareFiles(Profile(1000, 300), after);
  const std::vector<ComparedKernel>& kernels = comparison.points[0].kernels;
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_TRUE(kernels[0].Changed());
  EXPECT_EQ(kernels[0].kernel_a, "reprise_norm");
  EXPECT_EQ(kernels[1].name, "bulk");
  EXPECT_EQ(kernels[1].calls_a, 0u);
  EXPECT_EQ(kernels[2].name, "linear");
  EXPECT_EQ(kernels[2].calls_b, 0u);
  const std::string text = ComparisonText(Parse("a.json", Profile(1000, 300)),
                                          Parse("b.json", after), comparison, {}, kNoWidth);
  EXPECT_THAT(text, HasSubstr("reprise_norm in a, reprise_other_norm in b"));
  EXPECT_THAT(text, HasSubstr("in b alone"));
  EXPECT_THAT(text, HasSubstr("in a alone"));
}

TEST(Comparison, WarnsWhereTheRunsAreNotAlike) {
  json after = Profile(1000, 300);
  after["engine"]["device"]["driver"] = "560";
  after["settings"]["warmup"] = 8;
  after["settings"]["rows"] = {1, 2};
  after["bandwidth"]["read_bytes_per_s"]["best"] = 0.9e12;
  after["error"] = "stopped by SIGINT";
  after["points"].push_back(after["points"][0]);
  after["points"][1]["rows"] = 64;
  after["points"][0]["samples_ns"]["device"] = SamplesJson(Around(900, 100));
  const Comparison comparison = CompareFiles(Profile(1000, 300), after);
  EXPECT_THAT(
      comparison.warnings,
      ElementsAre("b.json is of a run that ended early: stopped by SIGINT",
                  "engine.device.driver differs: 550 and 560", "settings.warmup differs: 16 and 8",
                  "the read bandwidth that the runs measured differs: 1.00 TB/s and 900.00 GB/s",
                  AllOf(HasSubstr("rounds of b.json lie up to 2"), HasSubstr("(8@512, device)")),
                  "in b.json alone: 64@512"));
}

TEST(Comparison, FilesWithoutSamplesGetTheWeakerVerdict) {
  json before = Profile(1000, 300);
  before["points"][0].erase("samples_ns");
  for (json& op : before["points"][0]["ops"]) op.erase("samples_ns");
  const Comparison comparison = CompareFiles(before, Profile(1100, 300));
  ASSERT_EQ(comparison.points[0].series.size(), 1u);
  EXPECT_EQ(comparison.points[0].series[0].verdict, Verdict::kSlower);
  EXPECT_THAT(comparison.points[0].kernels, IsEmpty());
  EXPECT_THAT(comparison.warnings, Contains(HasSubstr("a file keeps no samples")));
  before["points"][0].erase("round_replay_us");
  EXPECT_THAT(ParseMeasuredRun("a.json", before.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a.json: points[0].samples_ns: got none, allowed: a profile that keeps its "
                       "samples"));
}

TEST(Comparison, ComparesCandidatesOfBenchmarks) {
  const auto bench = [](double us) {
    return json{{"schema", "reprise.bench_linear/1"},
                {"device", {{"name", "a GPU"}}},
                {"cells",
                 {{{"rows", 1},
                   {"shape", "qkv"},
                   {"candidates", {{{"name", "matrix"}, {"round_us", {us, us + 1, us + 2}}}}}}}}};
  };
  const Comparison comparison = CompareFiles(bench(100), bench(110));
  EXPECT_EQ(comparison.points[0].name, "qkv with 1 row");
  EXPECT_EQ(comparison.points[0].series[0].name, "matrix");
  EXPECT_EQ(comparison.points[0].series[0].verdict, Verdict::kSlower);
  EXPECT_EQ(comparison.regressions.size(), 1u);
  const json step = {{"schema", "reprise.bench_step/1"},
                     {"cells",
                      {{{"name", "1@512"},
                        {"device", {{"round_us", {1, 2}}}},
                        {"wall", {{"round_us", {2, 3}}}}}}}};
  EXPECT_THAT(CompareRuns(Parse("a.json", bench(1)), Parse("b.json", step), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "allowed: two files of one command"));
}

json BenchLinear(json shapes) {
  return {{"schema", "reprise.bench_linear/1"},
          {"dtype", "bf16"},
          {"shapes", std::move(shapes)},
          {"cells",
           {{{"rows", 1},
             {"shape", "qkv"},
             {"candidates", {{{"name", "packed"}, {"round_us", {1, 1, 1}}}}}}}}};
}
json ShapeOf(const char* name, const char* format, const json& group_size) {
  return {{"name", name}, {"weight_format", format}, {"group_size", group_size}};
}

TEST(Comparison, WarnsWhereBenchmarksStoreWeightsInOtherWays) {
  const json head = ShapeOf("lm_head", "bf16", nullptr);
  const json fine = BenchLinear({ShapeOf("qkv", "int4", 64), ShapeOf("o", "int4", 64), head});
  const json coarse = BenchLinear({ShapeOf("qkv", "int4", 128), ShapeOf("o", "int4", 128), head});
  const json dense = BenchLinear({ShapeOf("qkv", "bf16", nullptr), head});
  const std::string weaker = "the files keep no samples: medians of rounds are compared";
  EXPECT_THAT(CompareFiles(fine, coarse).warnings,
              ElementsAre(weaker,
                          "weight_format differs: int4 in groups of 64, bf16 and "
                          "int4 in groups of 128, bf16"));
  EXPECT_THAT(CompareFiles(dense, fine).warnings,
              ElementsAre(weaker, "weight_format differs: bf16 and int4 in groups of 64, bf16"));
  EXPECT_THAT(CompareFiles(fine, fine).warnings, ElementsAre(weaker));
  // What does not say how differs in nothing that is known.
  EXPECT_THAT(CompareFiles(fine, BenchLinear({{{"name", "qkv"}}, "qkv"})).warnings,
              ElementsAre(weaker));
}

TEST(Comparison, WarnsWhereEnginesAndTreesAreNotAlike) {
  json before = Profile(1000, 300), after = before;
  before["engine"]["weight_dtype"] = "int4";
  after["engine"]["weight_dtype"] = "fp8_e4m3";
  before["engine"]["linear_table_ranges"] = nullptr;
  after["engine"]["linear_table_ranges"] = 3;
  before["engine"]["step_kernel_rows"] = 0;
  after["engine"]["step_kernel_rows"] = 8;
  before["tree"]["file"] = nullptr;
  after["tree"]["file"] = "tree.json";
  EXPECT_THAT(CompareFiles(before, after).warnings,
              ElementsAre("engine.weight_dtype differs: int4 and fp8_e4m3",
                          "engine.linear_table_ranges differs: null and 3",
                          "engine.step_kernel_rows differs: 0 and 8",
                          "tree.file differs: null and tree.json"));
}

TEST(MeasuredRun, RefusesFilesThatAreWrong) {
  const auto says = [](const json& value, const std::string& message) {
    EXPECT_THAT(ParseMeasuredRun("a.json", value.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  EXPECT_THAT(ParseMeasuredRun("a.json", "{"),
              StatusIs(absl::StatusCode::kInvalidArgument, "a.json"));
  says({{"schema", "reprise.run/1"}}, "a.json: schema: got \"reprise.run/1\"");
  json profile = Profile(1, 1);
  profile["points"] = json::array();
  says(profile, "a.json: points: got [], allowed: one or more");
  profile = Profile(1, 1);
  profile["points"][0]["samples_ns"]["replay"][1] = json::array();
  says(profile, "a.json: points[0].samples_ns.replay[1]: got []");
  profile = Profile(1, 1);
  profile["points"][0]["samples_ns"]["device"][0][2] = "x";
  says(profile, "points[0].samples_ns.device[0][2]: got \"x\", allowed: a number");
  profile = Profile(1, 1);
  profile["points"][0]["ops"][1]["calls"] = 0;
  says(profile, "a.json: points[0].ops[1].calls: got 0");
  profile = Profile(1, 1);
  profile["points"][0].erase("clock");
  says(profile, "a.json: points[0].clock: got none, allowed: an object");
  profile = Profile(1, 1);
  profile["points"][0]["rows"] = 4;
  EXPECT_THAT(CompareRuns(Parse("a.json", Profile(1, 1)), Parse("b.json", profile), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "no point is both in a.json (8@512, ...) and in b.json (4@512, ...)"));
}

// The profile of a small engine on the host, one of whose kernels is slower by `slow_us`.
MeasuredRun ProfileOfEngine(const std::string& file, std::string_view slow_kernel, int slow_us) {
  engine::DecodeEngineOptions options = testing::SmallEngineOptions();
  const testing::TestEngine tiny =
      testing::MakeTestEngine({.engine = options,
                               .diagnostics = {.random_kv_cache = true},
                               .device = {.host_threads = 1},
                               .delays = {.slow_kernel = slow_kernel, .slow_us = slow_us}});
  const ProfileOptions measure{
      .rows = {1}, .contexts = {24}, .iterations = 240, .warmup = 16, .rounds = 5};
  ProfileContext context;
  context.spec = tiny.engine->info().model;
  context.stamp_cost_ns.Add(100);
  context.bandwidth.read.Add(1e9);
  context.bandwidth.copy.Add(1e9);
  PointProfile point;
  point.rows = 1;
  point.context = 24;
  Profiler profiler(tiny.engine.get(), nullptr);
  EXPECT_OK(profiler.Prepare(measure));
  for (uint32_t round = 0; round < measure.rounds; ++round) {
    EXPECT_OK(profiler.Measure(
        measure, round, [](uint32_t) { return absl::OkStatus(); }, &point));
  }
  return Parse(file, {{"schema", "reprise.profile/1"}, {"points", {PointToJson(point, context)}}});
}

const ComparedKernel& KernelNamed(const std::vector<ComparedKernel>& kernels,
                                  const std::string& name) {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(),
                   [&](const ComparedKernel& kernel) { return kernel.name == name; });
  EXPECT_NE(found, kernels.end()) << name;
  return *found;
}

TEST(Comparison, FindsTheOneNodeOfAGraphThatTakesLonger) {
  const MeasuredRun before = ProfileOfEngine("a.json", "", 0);
  const MeasuredRun after = ProfileOfEngine("b.json", "reprise_publish", 200);
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, CompareRuns(before, after, {}));
  const ComparedKernel& publish = KernelNamed(comparison.points[0].kernels, "publish");
  EXPECT_EQ(publish.calls_b, 1u);
  EXPECT_EQ(publish.verdict, Verdict::kSlower);
  EXPECT_GT(publish.us.change(), 150);
  // Others may be named too: one engine behind the other differs by its addresses, and by what else
  // the machine does meanwhile, which was seen to be 8 us of a kernel. None of them comes near.
  for (const ComparedKernel& kernel : comparison.points[0].kernels) {
    if (kernel.name == "publish") continue;
    EXPECT_LT(std::abs(kernel.us.change()), 75) << kernel.name;
  }
  const std::string text = ComparisonText(before, after, comparison, {}, kNoWidth);
  EXPECT_THAT(text, ContainsRegex("1@24 +publish +1 .*slower"));
}

}  // namespace
}  // namespace reprise::tools
