// SPDX-License-Identifier: Apache-2.0
// What `reprise profile --assert` understands, refuses and finds.
#include "tools/profile/assertion.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::HasSubstr;

using ::reprise::testing::kInvalid;

TEST(Assertion, IsAFigureAndABound) {
  ASSERT_OK_AND_ASSIGN(const Assertion tail, ParseAssertion("p99.9(32@1k)<5ms"));
  EXPECT_EQ(tail.statistic, "p99.9");
  EXPECT_EQ(tail.subject, "replay");
  EXPECT_EQ(*tail.point, (StepPoint{32, 1024}));
  EXPECT_FALSE(tail.or_equal);
  EXPECT_DOUBLE_EQ(tail.bound_ns, 5e6);
  ASSERT_OK_AND_ASSIGN(const Assertion kernel,
                       ParseAssertion(" mean( linear_native 64x32 , 1@40 ) <= 1.5us "));
  EXPECT_EQ(kernel.subject, "linear_native 64x32");
  EXPECT_EQ(*kernel.point, (StepPoint{1, 40}));
  EXPECT_TRUE(kernel.or_equal);
  EXPECT_DOUBLE_EQ(kernel.bound_ns, 1500);
  ASSERT_OK_AND_ASSIGN(const Assertion of_point, ParseAssertion("launch(1@40)<20us"));
  EXPECT_EQ(of_point.subject, "launch");
  EXPECT_EQ(of_point.statistic, "");
  ASSERT_OK_AND_ASSIGN(const Assertion mixed, ParseAssertion("p90(launch,8@1k+2x64)<20us"));
  EXPECT_EQ(*mixed.point, (StepPoint{.rows = 8, .context = 1024, .prompts = {64, 64}}));
  ASSERT_OK_AND_ASSIGN(const Assertion prompt, ParseAssertion("p90(1x64)<20us"));
  EXPECT_EQ(*prompt.point, (StepPoint{.rows = 0, .context = 0, .prompts = {64}}));
  ASSERT_OK_AND_ASSIGN(const Assertion gap, ParseAssertion("gap<10us"));
  EXPECT_EQ(gap.subject, "gap");
  EXPECT_FALSE(gap.point.has_value());
  ASSERT_OK_AND_ASSIGN(const Assertion everywhere, ParseAssertion("max<1s"));
  EXPECT_EQ(everywhere.subject, "replay");
  ASSERT_OK_AND_ASSIGN(const Assertion of_gap, ParseAssertion("p90(gap)<1us"));
  EXPECT_EQ(of_gap.subject, "gap");
  EXPECT_EQ(of_gap.statistic, "p90");
}

TEST(Assertion, WrongOnesAreRefusedWithWhatIsAllowed) {
  for (const char* text :
       {"", "p99", "p99(1@40)", "p99(1@40)>5ms", "<5ms", "p99()<5ms", "p99(1@40<5ms", "(1@40)<5ms",
        "p99(launch,device)<5ms", "p99(1@40)x<5ms"})
    EXPECT_THAT(ParseAssertion(text), StatusIs(kInvalid, "allowed: FIGURE<DURATION")) << text;
  EXPECT_THAT(ParseAssertion("p99(1@40)<5"),
              StatusIs(kInvalid, "assertion: got \"p99(1@40)<5\", allowed: a number and a unit"));
  EXPECT_THAT(ParseAssertion("p99(0@40)<5ms"),
              StatusIs(kInvalid, "point: got \"0@40\", allowed: <rows>@<context>"));
  EXPECT_THAT(ParseAssertion("p99(1@40,2@40)<5ms"), StatusIs(kInvalid, "allowed: one point"));
  EXPECT_THAT(ParseAssertion("gap(1@40)<5ms"), StatusIs(kInvalid, "gap without a point"));
  ASSERT_OK_AND_ASSIGN(const Assertion tail, ParseAssertion("p99(32@512)<5ms"));
  EXPECT_THAT(CheckPoint(tail, std::vector<StepPoint>{{1, 128}, {32, 128}}),
              StatusIs(kInvalid,
                       "--assert p99(32@512)<5ms: point: got \"32@512\", allowed: 1@128, 32@128, "
                       "which are measured"));
  EXPECT_OK(CheckPoint(tail, std::vector<StepPoint>{{32, 512}}));
  ASSERT_OK_AND_ASSIGN(const Assertion percentile, ParseAssertion("p95(32@512)<5ms"));
  EXPECT_THAT(
      CheckKernel(percentile, {"fetch", "linear 8x4"}),
      StatusIs(kInvalid,
               "figure: got \"p95\", allowed: replay, device, launch, outside, gap, idle; a "
               "kernel: fetch, linear 8x4; each in p50, p90, p99, p99.9, max, mean(...)"));
  ASSERT_OK_AND_ASSIGN(const Assertion kernel, ParseAssertion("linear 8x4<5ms"));
  EXPECT_OK(CheckKernel(kernel, {"fetch", "linear 8x4"}));
  EXPECT_OK(CheckKernel(tail, {}));
}

// 100 steps of 1 to 100 us, of which the device takes all but 2 us; one kernel, called twice, takes
// 500 ns with its stamps.
PointProfile Point() {
  PointProfile point;
  point.rows = 2;
  point.context = 40;
  const std::vector<graphs::ProfiledLaunch> launches(
      2, {.kernel = "reprise_norm", .op = "norm", .shape = ""});
  for (int i = 1; i <= 100; ++i) {
    point.plain.replay_ns.Add(i * 1000);
    point.plain.device_ns.Add(i * 1000 - 2000);
    point.plain.launch_ns.Add(300);
    EXPECT_OK(point.kernels.Add({.launches = launches, .begin_ns = 100, .done_ns = {350, 600}}));
  }
  return point;
}

TEST(Assertion, OfIdleTimeIsOfTracedSteps) {
  ASSERT_OK_AND_ASSIGN(const Assertion idle, ParseAssertion("max(idle,2@40)<=30ns"));
  ASSERT_OK_AND_ASSIGN(const Assertion gap, ParseAssertion("gap<1s"));
  EXPECT_TRUE(NeedsTraces(std::vector<Assertion>{gap, idle}));
  EXPECT_FALSE(NeedsTraces({&gap, 1}));
  PointProfile point = Point();
  for (const uint64_t between : {10, 30}) {
    const std::vector<TracedKernel> kernels = {
        {.name = "reprise_norm", .launch = 1, .begin_ns = 100, .end_ns = 200},
        {.name = "reprise_norm", .launch = 1, .begin_ns = 200 + between, .end_ns = 300}};
    ASSERT_OK(point.trace.Add(kernels, point.kernels.LaunchKernels(), 1));
  }
  const auto values = Evaluate({&idle, 1}, {point}, {});
  ASSERT_EQ(values.size(), 1u);
  EXPECT_DOUBLE_EQ(values[0].value_ns, 30);
  EXPECT_TRUE(values[0].holds);
}

TEST(Assertion, IsComparedWithWhatWasMeasured) {
  ProfileContext context;
  for (const double ns : {90.0, 100.0, 400.0}) context.stamp_cost_ns.Add(ns);
  const auto value_of = [&](const char* text) {
    const auto assertion = ParseAssertion(text);
    EXPECT_OK(assertion.status());
    const auto values = Evaluate({&*assertion, 1}, {Point()}, context);
    EXPECT_EQ(values.size(), 1u) << text;
    return values.front();
  };
  EXPECT_DOUBLE_EQ(value_of("p99(2@40)<99us").value_ns, 99'000);
  EXPECT_FALSE(value_of("p99(2@40)<99us").holds);
  EXPECT_TRUE(value_of("p99(2@40)<=99us").holds);
  EXPECT_DOUBLE_EQ(value_of("replay<1s").value_ns, 50'000);
  EXPECT_DOUBLE_EQ(value_of("mean<1s").value_ns, 50'500);
  EXPECT_DOUBLE_EQ(value_of("max(device)<1s").value_ns, 98'000);
  EXPECT_DOUBLE_EQ(value_of("outside<1s").value_ns, 2'000);
  EXPECT_DOUBLE_EQ(value_of("launch(2@40)<1s").value_ns, 300);
  EXPECT_DOUBLE_EQ(value_of("norm<1s").value_ns, 300);  // less two stamps of 100
  EXPECT_DOUBLE_EQ(value_of("gap<1s").value_ns, 100);
  EXPECT_DOUBLE_EQ(value_of("max(gap)<1s").value_ns, 400);
  EXPECT_EQ(value_of("gap<1s").point, "");
  EXPECT_EQ(BrokenText(value_of("p50(2@40)<10us")),
            "p50(2@40)<10us does not hold: 50.0 us at 2@40");
  EXPECT_THAT(AssertionsText({value_of("gap<1s"), value_of("gap<10ns")}, kNoWidth),
              HasSubstr("gap<10ns   all    100 ns  does not hold\n"));
  EXPECT_EQ(AssertionsToJson({value_of("gap<1s")})[0]["point"], nullptr);
}

}  // namespace
}  // namespace reprise::tools
