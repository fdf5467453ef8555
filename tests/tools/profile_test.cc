// SPDX-License-Identifier: Apache-2.0
// The parts of `reprise profile` by themselves: sums of stamps, derived figures, refusals,
// telemetry, bandwidth, tables.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device_telemetry.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/kernel_times.h"
#include "tools/profile/kernel_tracer.h"
#include "tools/profile/products.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two layers of a norm and two linears, between a fetch and a publish.
std::vector<graphs::ProfiledLaunch> Launches() {
  const graphs::ProfiledLaunch norm{
      .kernel = "reprise_rms_norm_bf16", .op = "rms_norm", .shape = ""};
  const graphs::ProfiledLaunch wide{
      .kernel = "reprise_linear_x_bf16", .op = "linear_x", .shape = "8x4"};
  const graphs::ProfiledLaunch narrow{
      .kernel = "reprise_linear_x_bf16", .op = "linear_x", .shape = "4x4"};
  return {{.kernel = "reprise_fetch", .op = "fetch", .shape = ""},
          norm,
          wide,
          narrow,
          norm,
          wide,
          narrow,
          {.kernel = "reprise_publish", .op = "publish", .shape = ""}};
}

engine::StepStamps Stamps(const std::vector<graphs::ProfiledLaunch>& launches, uint64_t begin_ns,
                          std::vector<uint64_t> took_ns) {
  engine::StepStamps stamps{.launches = launches, .begin_ns = begin_ns, .done_ns = {}};
  for (const uint64_t ns : took_ns) stamps.done_ns.push_back(begin_ns += ns);
  return stamps;
}

TEST(KernelTimes, AddUpByKernelAndShape) {
  const auto launches = Launches();
  KernelTimes times;
  ASSERT_OK(times.Add(Stamps(launches, 1000, {5, 10, 100, 50, 12, 110, 52, 7})));
  ASSERT_OK(times.Add(Stamps(launches, 9000, {7, 20, 120, 60, 22, 130, 62, 9})));
  ASSERT_EQ(times.ops().size(), 5u);
  EXPECT_EQ(times.num_launches(), 8u);
  const OpTime& norm = times.ops()[1];
  EXPECT_EQ(norm.launch.op, "rms_norm");
  EXPECT_EQ(norm.count, 2u);
  EXPECT_EQ(norm.stamped_ns.count(), 2u);
  EXPECT_DOUBLE_EQ(norm.stamped_ns.Mean(), (22 + 42) / 2.0);
  EXPECT_EQ(times.ops()[2].launch.shape, "8x4");
  EXPECT_DOUBLE_EQ(times.ops()[2].stamped_ns.Mean(), (210 + 250) / 2.0);
  EXPECT_DOUBLE_EQ(times.ops()[3].stamped_ns.Mean(), (102 + 122) / 2.0);
  EXPECT_DOUBLE_EQ(times.ops()[4].stamped_ns.Mean(), 8);
  EXPECT_DOUBLE_EQ(times.span_ns().Mean(), (346 + 430) / 2.0);
  // 4 ns a stamp: a norm's two stamps cost 8. Nothing falls below 0.
  EXPECT_DOUBLE_EQ(KernelTimes::NetNs(norm, 4), 32 - 8);
  EXPECT_DOUBLE_EQ(KernelTimes::NetNs(times.ops()[4], 40), 0);
  EXPECT_DOUBLE_EQ(times.NetSumNs(4), 388 - 8 * 4);
  // And launch by launch.
  EXPECT_THAT(times.op_of_launch(), ElementsAre(0, 1, 2, 3, 1, 2, 3, 4));
  EXPECT_THAT(times.MeanLaunchNs(), ElementsAre(6, 15, 110, 55, 17, 120, 57, 8));
}

TEST(KernelTimes, RefuseStepsThatCannotBe) {
  const auto launches = Launches();
  KernelTimes times;
  ASSERT_OK(times.Add(Stamps(launches, 1000, {5, 10, 100, 50, 12, 110, 52, 7})));
  EXPECT_THAT(times.Add(Stamps(launches, 1000, {5, 10})),
              StatusIs(absl::StatusCode::kInternal, "has 2 launches; the first had 8"));
  auto backwards = Stamps(launches, 1000, {5, 10, 100, 50, 12, 110, 52, 7});
  backwards.done_ns[3] -= 60;
  EXPECT_THAT(times.Add(backwards), StatusIs(absl::StatusCode::kInternal, "stamp 3"));
}

// Plain steps of 1,000 ns (600 on the device), stamped ones of 1,200 (680).
PointProfile Point() {
  PointProfile point;
  point.rows = 2;
  point.context = 100;
  point.graph = "decode/2";
  point.attention_leaf = "small";
  point.num_kernels = 8;
  point.num_profiled_kernels = 16;
  for (int i = 0; i < 3; ++i) {
    point.plain.replay_ns.Add(1000);
    point.plain.device_ns.Add(600);
    point.plain.launch_ns.Add(50);
    point.profiled.replay_ns.Add(1200);
    point.profiled.device_ns.Add(680);
    point.profiled.launch_ns.Add(60);
  }
  point.bytes = {.weights = 3000, .kv_read = 2000, .kv_written = 500, .activations = 500};
  EXPECT_OK(point.kernels.Add(Stamps(Launches(), 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  return point;
}

TEST(PointProfile, DerivesSkewAndBandwidth) {
  const PointProfile point = Point();
  EXPECT_DOUBLE_EQ(point.Skew(), 0.2);
  EXPECT_DOUBLE_EQ(point.DeviceSkew(), 80.0 / 600);
  EXPECT_DOUBLE_EQ(point.BytesPerSecond(), 6000 / 600e-9);
}

ProfileContext Context() {
  ProfileContext context{.device = "host:0, a CPU",
                         .model = "tiny",
                         .telemetry = {.name = "", .why_none = "nobody tells"},
                         .bandwidth = {.bytes = 1 << 20, .read = {}, .copy = {}},
                         .stamp_cost_ns = {}};
  context.spec.num_layers = 2;
  context.bandwidth.read.Add(20e9);
  context.bandwidth.copy.Add(12e9);
  context.stamp_cost_ns.Add(10);
  return context;
}

TEST(PointProfile, SpreadIsHowFarRoundsLieApart) {
  PointProfile point;
  point.rows = 1;
  point.context = 1024;
  EXPECT_FALSE(point.Spread().has_value());
  point.round_replay_ns.Add(1'020'000);
  EXPECT_FALSE(point.Spread().has_value());  // one round says nothing
  EXPECT_EQ(SpreadWarning(point), "");
  point.round_replay_ns.Add(804'000);
  point.round_replay_ns.Add(1'701'000);
  EXPECT_NEAR(*point.Spread(), (1701.0 - 804.0) / 1020.0, 1e-12);
  EXPECT_EQ(SpreadWarning(point),
            "the medians of 3 rounds of 1 row of 1,024 tokens reach from 804 us to 1.70 ms, a "
            "spread of 87.9 % (more than 5.0 %): something else uses the device, or its clocks "
            "change");
  PointProfile quiet;
  for (const double ns : {1000.0, 1040.0, 1010.0}) quiet.round_replay_ns.Add(ns);
  EXPECT_EQ(SpreadWarning(quiet), "");
}

TEST(ProfileOptions, RoundsShareTheStepsEvenly) {
  const ProfileOptions options{.iterations = 20, .rounds = 3};
  EXPECT_EQ(StepsOfRound(options, 0), 6u);
  EXPECT_EQ(StepsOfRound(options, 1), 7u);
  EXPECT_EQ(StepsOfRound(options, 2), 7u);
  EXPECT_EQ(StepsOfRound({.iterations = 5, .rounds = 1}, 0), 5u);
}

TEST(ProfileReport, SaysWhatWasMeasured) {
  const std::string text = PointText(Point(), Context());
  EXPECT_THAT(text, HasSubstr("2 rows of 100 tokens: decode/2, 8 kernels"));
  EXPECT_THAT(text, HasSubstr("attention leaf \"small\""));
  // 400 stamped, less two stamps of 10; of 610 net in all; by call, by layer.
  EXPECT_THAT(text, HasSubstr("linear_x 8x4      2   400 ns  380 ns  62.3 %        190 ns         "
                              "190 ns    1.7 %\n"));
  EXPECT_THAT(text, HasSubstr("publish           1    10 ns    0 ns   0.0 %          0 ns"));
  EXPECT_THAT(text, HasSubstr("skew of the profiled graph +20.0 %, 10 ns a stamp"));
  EXPECT_THAT(
      text,
      HasSubstr("stamped times add up to 690 ns, 57.5 % of the profiled graph's mean replay"));
  EXPECT_THAT(text, HasSubstr("net times add up to 610 ns, 61.0 % of the mean replay"));
  const std::string points = PointsText({Point()}, Context());
  EXPECT_THAT(points, HasSubstr("10.00 GB/s   50.0 %         -      -\n"));
  EXPECT_THAT(ProfileHeader(Context()), HasSubstr("not available: nobody tells"));
}

TEST(ProfileReport, JsonKeepsEverySampleByRound) {
  PointProfile point = Point();
  point.round_steps = {1, 2};
  point.kernels = {};
  for (const uint64_t ns : {10, 20, 30})
    ASSERT_OK(point.kernels.Add(Stamps(Launches(), 1000, {ns, 40, 200, 100, 40, 200, 80, 10})));
  const nlohmann::json json = PointToJson(point, Context());
  EXPECT_EQ(json["samples_ns"]["replay"], nlohmann::json({{1000}, {1000, 1000}}));
  EXPECT_EQ(json["ops"][0]["samples_ns"], nlohmann::json({{10}, {20, 30}}));
  EXPECT_EQ(json["timeline"]["op"], nlohmann::json({0, 1, 2, 3, 1, 2, 3, 4}));
  EXPECT_DOUBLE_EQ(json["timeline"]["stamped_us"][0], 0.02);
  EXPECT_DOUBLE_EQ(json["plain"]["replay_us"]["p99_9"], 1);
  EXPECT_DOUBLE_EQ(json["plain"]["replay_us"]["max"], 1);
}

TEST(ProfileReport, KernelsTellHowMuchTheyMove) {
  ProfileContext context = Context();
  PointProfile point = Point();
  std::vector<graphs::ProfiledLaunch> launches = Launches();
  launches[0].op = "attention_x";
  point.kernels = {};
  ASSERT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  const nlohmann::json ops = PointToJson(point, context)["ops"];
  EXPECT_EQ(ops[0]["read_bytes"], 2000);     // the point's KV
  EXPECT_EQ(ops[1]["read_bytes"], nullptr);  // a norm of no model
  EXPECT_EQ(ops[1]["written_bytes"], nullptr);
  EXPECT_EQ(ops[2]["read_bytes"], 2 * 8 * 4 * 2);  // two launches, bf16
  EXPECT_EQ(ops[2]["written_bytes"], 0);
  // Of 8 bits, with a scale of 4 bytes for 128 of them.
  for (graphs::ProfiledLaunch& launch : launches)
    if (launch.op == "linear_x") launch.op = "linear_stream_fp8";
  point.kernels = {};
  ASSERT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  EXPECT_EQ(PointToJson(point, context)["ops"][2]["read_bytes"], 2 * 8 * 4 * 1.03125);
  // Of 4 bits, with one for 32.
  for (graphs::ProfiledLaunch& launch : launches)
    if (launch.op == "linear_stream_fp8") launch.op = "linear_stream_int4";
  context.scale_inputs = 32;
  point.kernels = {};
  ASSERT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  EXPECT_EQ(PointToJson(point, context)["ops"][2]["read_bytes"], 2 * 8 * 4 * 0.625);
  launches.back().op = "attention_y";
  point.kernels = {};
  ASSERT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  EXPECT_EQ(PointToJson(point, context)["ops"][0]["read_bytes"], nullptr);
}

// Two layers of an attention, and what its point is made of: 1.2 us of device time.
PointProfile PointOfProducts() {
  PointProfile point = Point();
  std::vector<graphs::ProfiledLaunch> launches = Launches();
  launches[0].op = "attention_x";
  point.kernels = {};
  EXPECT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  point.attended_pairs = 200;  // two rows of 100
  return point;
}

ProfileContext ContextOfProducts() {
  ProfileContext context = Context();
  context.spec.vocab_size = 4;
  context.spec.hidden_size = 4;
  context.spec.num_layers = 3;
  context.spec.num_heads = 2;
  context.spec.head_dim = 5;
  context.spec.num_experts = 8;
  context.spec.experts_per_token = 2;
  context.products = {.tokens = 64, .features = 1024, .flops_per_s = {}};
  context.products.flops_per_s.Add(1e12);
  context.products.flops_per_s.Add(2e12);
  return context;
}

TEST(ProfileReport, ProductsAreCountedFromShapesAndContexts) {
  const ProfileContext context = ContextOfProducts();
  PointProfile point = PointOfProducts();
  nlohmann::json json = PointToJson(point, context);
  // Of each pair, in each of three layers, 10 numbers of q with a key and as many with a value.
  EXPECT_EQ(json["ops"][0]["flops"], 4 * 200 * 10 * 3);
  EXPECT_EQ(json["ops"][1]["flops"], nullptr);            // a norm
  EXPECT_EQ(json["ops"][2]["flops"], 2 * 2 * 8 * 4 * 2);  // two launches, two rows
  EXPECT_EQ(json["ops"][3]["flops"], 2 * 2 * 4 * 4 * 2);
  EXPECT_EQ(json["flops"], 24000 + 256 + 128);
  EXPECT_DOUBLE_EQ(json["flops_per_s"], 24384 / 600e-9);
  EXPECT_DOUBLE_EQ(json["share_of_product_rate"], 24384 / 600e-9 / 2e12);
  // The attention takes 10 ns net: its 24,000 operations are 1.2 of that rate, its 2,000 bytes ten
  // of the bandwidth. With a rate of a twentieth the operations are nearer.
  EXPECT_DOUBLE_EQ(json["ops"][0]["share_of_roof"], 10);
  ProfileContext slow = context;
  slow.products.flops_per_s = {};
  slow.products.flops_per_s.Add(1e11);
  EXPECT_DOUBLE_EQ(PointToJson(point, slow)["ops"][0]["share_of_roof"], 24);
  EXPECT_DOUBLE_EQ(json["ops"][2]["share_of_roof"], 128 / 380e-9 / 20e9);
  EXPECT_EQ(json["ops"][1]["share_of_roof"], nullptr);
  const std::string text = PointsText({point}, context);
  EXPECT_THAT(text, HasSubstr("24.4 k  40.6 G"));
  EXPECT_THAT(ProfileHeader(context),
              HasSubstr("2.00 TFLOP/s (best of 2 linear layers of 1,024x1,024 with 64 tokens"));
  // A prompt of 50 tokens beside them: all go through the layers, three rows through the logits.
  point.prompts = {50};
  json = PointToJson(point, context);
  EXPECT_EQ(json["ops"][2]["flops"], 2 * 2 * 8 * 4 * 52);
  EXPECT_EQ(json["ops"][3]["flops"], 2 * 2 * 4 * 4 * 3);
}

TEST(ProfileReport, EveryTokenMultipliesAsManyExpertsAsItGoesTo) {
  const ProfileContext context = ContextOfProducts();
  std::vector<graphs::ProfiledLaunch> launches = Launches();
  for (graphs::ProfiledLaunch& launch : launches)
    if (launch.shape == "8x4") launch.op = "experts_packed";
  PointProfile point = PointOfProducts();
  point.kernels = {};
  ASSERT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 10})));
  EXPECT_EQ(PointToJson(point, context)["ops"][2]["flops"], 2 * 2 * 8 * 4 * 2 * 2);
  // They leave an expert of eight alone with a probability of 9 / 16.
  EXPECT_EQ(PointToJson(point, context)["ops"][2]["read_bytes"], 2 * 3.5 * 8 * 4 * 2);
}

// Three norms of two rows of 4 in bf16, the last of which keeps no residual: 90 ns net.
TEST(ProfileReport, WhatIsWrittenCountsToTheRoofToo) {
  ProfileContext context = ContextOfProducts();
  context.spec.architecture = "llama";
  std::vector<graphs::ProfiledLaunch> launches = Launches();
  launches.back() = launches[1];
  PointProfile point = PointOfProducts();
  point.kernels = {};
  ASSERT_OK(point.kernels.Add(Stamps(launches, 1000, {20, 40, 200, 100, 40, 200, 80, 40})));
  const nlohmann::json norm = PointToJson(point, context)["ops"][1];
  const double read = norm["read_bytes"], written = norm["written_bytes"];
  EXPECT_EQ(written, (2 * 2 * 2 + 2) * 4 * 2);
  EXPECT_GT(read, written);
  EXPECT_DOUBLE_EQ(norm["share_of_roof"], (read + written) / 90e-9 / 20e9);
}

TEST(ProfileReport, EnergyIsPowerForTheTimeOfAStep) {
  PointProfile point = Point();
  EXPECT_EQ(PointToJson(point, Context())["energy_j"], nullptr);
  point.power_w.Add(400);
  point.power_w.Add(600);
  EXPECT_DOUBLE_EQ(PointToJson(point, Context())["energy_j"], 500 * 1e-6);
}

// Eight kernels of 100 ns, each of which begins 90 ns behind the one before it.
PointProfile TracedPoint() {
  PointProfile point = Point();
  point.traced = point.profiled;
  std::vector<TracedKernel> kernels;
  const std::vector<std::string> names = point.kernels.LaunchKernels();
  for (size_t i = 0; i < names.size(); ++i) {
    const uint64_t begin = 5000 + 90 * i;
    kernels.push_back({.name = names[i], .launch = 1, .begin_ns = begin, .end_ns = begin + 100});
  }
  EXPECT_OK(point.trace.Add(kernels, names, 1));
  return point;
}

TEST(ProfileReport, TracedKernelsStandBesideStampedOnes) {
  const PointProfile point = TracedPoint();
  const std::string text = PointText(point, Context());
  EXPECT_THAT(text, HasSubstr("traced  exposed  gaps\n"));
  EXPECT_THAT(text, HasSubstr("200 ns   180 ns  0 ns\n"));  // two launches of a norm
  EXPECT_THAT(text, HasSubstr("traced: 1 step spans 730 ns"));
  EXPECT_THAT(
      text,
      HasSubstr("what kernels ran beside others adds up to 70 ns; skew of traced steps +20.0 %"));
  const nlohmann::json json = PointToJson(point, Context());
  EXPECT_DOUBLE_EQ(json["traced"]["span_us"]["mean"], 0.73);
  EXPECT_DOUBLE_EQ(json["traced"]["skew"], 0.2);
  EXPECT_DOUBLE_EQ(json["ops"][1]["traced"]["duration_us"], 0.2);
  EXPECT_DOUBLE_EQ(json["ops"][1]["traced"]["exposed_us"], 0.18);
  EXPECT_DOUBLE_EQ(json["timeline"]["traced_begin_us"][7], 0.63);
  EXPECT_DOUBLE_EQ(json["timeline"]["traced_us"][7], 0.1);
  const nlohmann::json none = PointToJson(Point(), Context());
  EXPECT_EQ(none["traced"], nullptr);
  EXPECT_EQ(none["ops"][1]["traced"], nullptr);
  EXPECT_FALSE(none["timeline"].contains("traced_us"));
  EXPECT_THAT(PointText(Point(), Context()), ::testing::Not(HasSubstr("traced")));
}

TEST(ProfileReport, HistogramHasABinForWhatIsBeyondTheTail) {
  PointProfile point = Point();
  point.plain.replay_ns = {};
  for (int i = 0; i < 199; ++i) point.plain.replay_ns.Add(1000 + i % 2 * 800);
  point.plain.replay_ns.Add(9000);
  const std::string text = PointText(point, Context());
  EXPECT_THAT(text, HasSubstr("1.00 us      1.10 us  100    ################################\n"));
  EXPECT_THAT(text, HasSubstr("1.80 us      9.00 us  1      #\n"));
}

TEST(ProfileReport, JsonHasNullWhereNothingIsKnown) {
  PointProfile point = Point();
  const nlohmann::json none = PointToJson(point, Context());
  EXPECT_EQ(none["clock"]["sm_mhz"], nullptr);
  EXPECT_DOUBLE_EQ(none["share_of_read_bandwidth"], 0.5);
  EXPECT_EQ(none["ops"][0]["shape"], nullptr);
  EXPECT_EQ(none["ops"][0]["net_per_layer_us"], nullptr);
  point.sm_clock_mhz.Add(1900);
  point.sm_clock_mhz.Add(1980);
  EXPECT_DOUBLE_EQ(PointToJson(point, Context())["clock"]["sm_mhz"], 1940);
}

TEST(CheckPoints, NamesWhatDoesNotFit) {
  const kernels::StepLimits limits{.max_rows = 64, .max_context_length = 2048};
  const auto check = [&](std::vector<uint32_t> rows, std::vector<uint32_t> contexts,
                         uint64_t usable_blocks) {
    return CheckPoints(PointsOf({.rows = std::move(rows), .contexts = std::move(contexts)}), limits,
                       32, 16, usable_blocks);
  };
  EXPECT_OK(check({1, 32}, {2, 2048}, 0));
  EXPECT_OK(check({32}, {33}, 96));
  constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;
  EXPECT_THAT(check({33}, {2}, 0), StatusIs(kOutOfRange, "rows: got 33, allowed: 1 to 32"));
  EXPECT_THAT(check({1}, {2049}, 0), StatusIs(kOutOfRange, "got 2049 tokens, allowed: 2 to 2048"));
  EXPECT_THAT(check({1}, {1}, 0), StatusIs(kOutOfRange, "got 1 tokens"));
  EXPECT_THAT(check({1, 32}, {33}, 95),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "32 rows of 33 tokens need 96 blocks of 16 tokens; the pool has 95"));
  EXPECT_EQ(BlocksNeeded(PointsOf({.rows = {4, 2}, .contexts = {17, 33, 5}}), 16), 12u);
  EXPECT_EQ(BlocksNeeded(std::vector<StepPoint>{{1, 96}, {5, 16}}, 16), 6u);
}

TEST(StepPoint, IsWrittenAsItIsRead) {
  for (const char* text : {"8@512", "8@64..512", "8@512+1x256", "1x256", "1@16..20+2x300+1x64"}) {
    ASSERT_OK_AND_ASSIGN(const StepPoint point, ParseStepPoint(text));
    EXPECT_EQ(NameOf(point), text);
  }
  ASSERT_OK_AND_ASSIGN(const StepPoint point, ParseStepPoint("3@1k+2x1k+1x5"));
  EXPECT_EQ(point.num_rows(), 6u);
  EXPECT_EQ(point.num_tokens(), 3u + 2 * 1024 + 5);
  EXPECT_EQ(BlocksOf(point, 16), 3u * 64 + 2 * 64 + 1);
  for (const char* text : {"", "8", "8@", "8@1", "0@8", "8@512+", "+1x8", "8@512+4@8", "1x0", "1x1",
                           "x8", "1x8@8", "70000x2", "8@512 1x8", "8@512..64", "8@..64", "8..9@64"})
    EXPECT_THAT(ParseStepPoint(text),
                StatusIs(absl::StatusCode::kInvalidArgument, "allowed: <rows>@<context>"))
        << text;
}

TEST(StepPoint, SpreadsContextsEvenly) {
  ASSERT_OK_AND_ASSIGN(const StepPoint point, ParseStepPoint("5@10..50"));
  EXPECT_THAT(point.contexts(), ::testing::UnorderedElementsAre(10, 20, 30, 40, 50));
  EXPECT_EQ(point.contexts(), point.contexts());
  EXPECT_EQ(point.shortest_context(), 10u);
  EXPECT_EQ(BlocksOf(point, 16), 1u + 2 + 2 + 3 + 4);
  EXPECT_THAT(ParseStepPoint("1@10..50")->contexts(), ::testing::ElementsAre(50));
}

TEST(CheckPoints, NamesPromptsThatDoNotFit) {
  const kernels::StepLimits limits{
      .max_rows = 4, .max_context_length = 100, .max_prompt_tokens = 64};
  const auto check = [&](const char* text, uint64_t usable_blocks = 0) {
    return CheckPoints(std::vector<StepPoint>{*ParseStepPoint(text)}, limits, 2, 16, usable_blocks);
  };
  constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;
  EXPECT_OK(check("3@50+1x61"));  // more rows than the largest decode bucket
  EXPECT_OK(check("4x16", 4));
  EXPECT_THAT(check("4@50+1x8"), StatusIs(kOutOfRange, "rows: got 5, allowed: 1 to 4"));
  EXPECT_THAT(check("3@50+1x62"),
              StatusIs(kOutOfRange, "tokens: got 65 in 3@50+1x62, allowed: 1 to 64"));
  EXPECT_THAT(check("1x101"), StatusIs(kOutOfRange, "tokens: got 101"));
  EXPECT_THAT(check("1@16+2x17", 4), StatusIs(absl::StatusCode::kResourceExhausted,
                                              "1 row of 16 tokens and 2 prompts need 5 blocks"));
}

TEST(Bandwidth, IsMeasuredOnTheHost) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const Bandwidth bandwidth, MeasureBandwidth(*device, 5u << 20, 3));
  EXPECT_EQ(bandwidth.bytes, 5u << 20);
  EXPECT_EQ(bandwidth.read.count(), 3u);
  EXPECT_EQ(bandwidth.copy.count(), 3u);
  // Any machine's memory, from a slow one under a sanitizer to a large cache.
  for (const double best : {bandwidth.best_read(), bandwidth.best_copy()}) {
    EXPECT_GT(best, 1e6);
    EXPECT_LT(best, 1e13);
  }
  EXPECT_GE(bandwidth.best_read(), bandwidth.read.Percentile(50));
  using ::reprise::testing::kInvalid;
  EXPECT_THAT(MeasureBandwidth(*device, 1000, 3), StatusIs(kInvalid, "got 1000 bytes"));
  EXPECT_THAT(MeasureBandwidth(*device, 1 << 20, 0), StatusIs(kInvalid, "0 passes"));
}

TEST(ProductRate, IsMeasuredOnTheHost) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const ProductRate rate, MeasureProducts(*device, runtime::DType::kF32, 3));
  EXPECT_EQ(rate.tokens, 64u);
  EXPECT_EQ(rate.flops_per_s.count(), 3u);
  // From a slow machine under a sanitizer to many cores.
  EXPECT_GT(rate.best(), 1e6);
  EXPECT_LT(rate.best(), 1e14);
}

TEST(StampCost, IsMeasuredOnTheHost) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const Samples cost, MeasureStampCost(*device));
  EXPECT_EQ(cost.count(), 32u);
  EXPECT_GT(cost.Percentile(50), 1.0);
  EXPECT_LT(cost.Percentile(50), 1e6);
}

using ::reprise::testing::kUnavailable;
const runtime::TelemetryLibraries kFake = {.nvml = REPRISE_FAKE_DRIVER,
                                           .cuda = REPRISE_FAKE_DRIVER};

TEST(Telemetry, ReadsClockAndPowerOfTheRightDevice) {
  void* fake = dlopen(REPRISE_FAKE_DRIVER, RTLD_NOW);
  ASSERT_NE(fake, nullptr) << dlerror();
  const auto num_open = reinterpret_cast<int (*)()>(dlsym(fake, "FakeNvmlNumOpen"));
  {
    ASSERT_OK_AND_ASSIGN(
        const auto telemetry,
        runtime::DeviceTelemetry::Open(
            {.kind = runtime::DeviceKind::kCuda, .name = "", .driver = "", .ordinal = 1}, kFake));
    EXPECT_EQ(telemetry->source(), "nvml");
    const runtime::TelemetrySample sample = telemetry->Read();
    EXPECT_EQ(sample.sm_clock_mhz, 1980);
    EXPECT_EQ(sample.memory_clock_mhz, std::nullopt);
    EXPECT_EQ(sample.power_w, 512.5);
    EXPECT_EQ(num_open(), 1);
  }
  EXPECT_EQ(num_open(), 0);
  dlclose(fake);
}

TEST(Telemetry, SaysWhyThereIsNone) {
  runtime::DeviceProperties device;
  EXPECT_THAT(runtime::DeviceTelemetry::Open(device),
              StatusIs(absl::StatusCode::kUnimplemented, "'host'"));
  device.kind = runtime::DeviceKind::kCuda;
  EXPECT_THAT(runtime::DeviceTelemetry::Open(device, {.nvml = "/no/such/nvml.so", .cuda = ""}),
              StatusIs(kUnavailable, "cannot open /no/such/nvml.so"));
  EXPECT_THAT(runtime::DeviceTelemetry::Open(
                  device, {.nvml = REPRISE_FAKE_DRIVER, .cuda = "/no/such/cuda.so"}),
              StatusIs(kUnavailable, "cannot open /no/such/cuda.so"));
  EXPECT_THAT(
      runtime::DeviceTelemetry::Open(device, {.nvml = "libm.so.6", .cuda = REPRISE_FAKE_DRIVER}),
      StatusIs(kUnavailable, "has no function nvmlInit_v2"));
  EXPECT_THAT(runtime::DeviceTelemetry::Open(device, kFake),
              StatusIs(kUnavailable, "Not Found (6)"));
  device.ordinal = 2;
  EXPECT_THAT(runtime::DeviceTelemetry::Open(device, kFake), StatusIs(kUnavailable, "device 2"));
}

}  // namespace
}  // namespace reprise::tools
