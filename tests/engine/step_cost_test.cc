// SPDX-License-Identifier: Apache-2.0
// How long a simulated step takes: between what was measured, beyond it, and what cannot be told
// from it.
#include "engine/simulation/step_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace reprise::engine {
namespace {

using ::testing::HasSubstr;

// 1000 + 10 for each row and 1 for each row's token of context, and so linear in both.
double Linear(double rows, double context) { return 1000 + 10 * rows + rows * context; }

std::vector<StepCostPoint> LinearPoints() {
  std::vector<StepCostPoint> points;
  for (const uint32_t rows : {8u, 2u, 64u})
    for (const double context : {1000.0, 100.0, 8000.0})
      points.push_back({.rows = rows, .context = context, .device_ns = Linear(rows, context)});
  return points;
}

StepCost Cost(const std::vector<StepCostPoint>& points) {
  auto cost = StepCost::Create(points);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return *std::move(cost);
}

TEST(StepCost, IsWhatWasMeasuredAtAPoint) {
  const StepCost cost = Cost(LinearPoints());
  for (const StepCostPoint& point : LinearPoints()) {
    const auto kv = static_cast<uint64_t>(point.rows * point.context);
    EXPECT_EQ(cost.TimeNs({.tokens = point.rows, .kv_tokens = kv}),
              static_cast<uint64_t>(point.device_ns));
  }
}

TEST(StepCost, IsOnTheLineBetweenPointsAndBeyondThem) {
  const StepCost cost = Cost(LinearPoints());
  const auto expect = [&](uint64_t rows, uint64_t context) {
    EXPECT_EQ(
        cost.TimeNs({.tokens = rows, .kv_tokens = rows * context}),
        static_cast<uint64_t>(Linear(static_cast<double>(rows), static_cast<double>(context))))
        << rows << " rows, context " << context;
  };
  expect(5, 550);    // between
  expect(32, 4000);  // between others
  expect(128, 500);  // more rows
  expect(8, 16000);  // more context
  expect(1000, 1);   // a chunk of a prompt: many tokens, little KV
}

TEST(StepCost, IsOnTheNearestSegmentWhereItBends) {
  const StepCost cost = Cost({{1, 100, 1000},
                              {1, 200, 1100},
                              {1, 300, 2000},
                              {2, 100, 1000},
                              {2, 200, 1100},
                              {2, 300, 2000}});
  EXPECT_EQ(cost.TimeNs({.tokens = 1, .kv_tokens = 150}), 1050u);
  EXPECT_EQ(cost.TimeNs({.tokens = 1, .kv_tokens = 250}), 1550u);
  EXPECT_EQ(cost.TimeNs({.tokens = 1, .kv_tokens = 400}), 2900u);
}

TEST(StepCost, OfFewerRowsThanMeasuredIsThatOfTheFewest) {
  const StepCost cost = Cost(LinearPoints());
  EXPECT_EQ(cost.TimeNs({.tokens = 1, .kv_tokens = 1000}), static_cast<uint64_t>(Linear(2, 1000)));
}

TEST(StepCost, IsNeverLessThanTheShortestMeasured) {
  // Noise: more context took less.
  const StepCost cost = Cost({{1, 100, 1000}, {1, 200, 900}, {2, 100, 1000}, {2, 200, 900}});
  EXPECT_EQ(cost.TimeNs({.tokens = 1, .kv_tokens = 5000}), 900u);
  EXPECT_EQ(cost.TimeNs({.tokens = 0, .kv_tokens = 0}), 1100u);
}

TEST(StepCost, IsNeverMoreThanAnEngineWaitsFor) {
  // Contexts that are close: far from them the line is as steep as noise makes it.
  const StepCost steep =
      Cost({{1, 100, 1000}, {1, 100.001, 9000}, {2, 100, 1000}, {2, 100.001, 9000}});
  EXPECT_NEAR(static_cast<double>(steep.TimeNs({.tokens = 1, .kv_tokens = 1000})), 7.2e9, 1e6);
  EXPECT_EQ(steep.TimeNs({.tokens = 1, .kv_tokens = 1u << 20}), kMaxStepNs);
  // So close that it is beyond what a double holds, and two of them differ by no number.
  const StepCost steeper =
      Cost({{1, 1e-300, 1000}, {1, 2e-300, 9000}, {2, 1e-300, 1000}, {2, 2e-300, 9000}});
  EXPECT_EQ(steeper.TimeNs({.tokens = 2, .kv_tokens = 1u << 20}), kMaxStepNs);
}

TEST(StepCost, RefusesWhatTellsTooLittle) {
  const auto refusal = [](const std::vector<StepCostPoint>& points) {
    const auto cost = StepCost::Create(points);
    EXPECT_EQ(cost.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(cost.status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("got 0 numbers of rows, allowed: two or more"));
  EXPECT_THAT(refusal({{1, 100, 1}, {1, 200, 2}}), HasSubstr("got 1 numbers of rows"));
  EXPECT_THAT(refusal({{1, 100, 1}, {1, 200, 2}, {2, 100, 2}}),
              HasSubstr("got one context for 2 rows"));
  EXPECT_THAT(refusal({{1, 100, 1}, {1, 100, 2}}), HasSubstr("got two of 1 rows and context 100"));
  EXPECT_THAT(refusal({{1, 100, 0}}), HasSubstr("all of them above 0"));
  EXPECT_THAT(refusal({{0, 100, 1}}), HasSubstr("0 rows"));
  EXPECT_THAT(refusal({{1, 100, 30e9 + 100}}), HasSubstr("30000000000 ns"));
  EXPECT_THAT(refusal({{1, 1.1e9, 1}}), HasSubstr("context 1073741824"));
  EXPECT_THAT(refusal({{65537, 100, 1}}), HasSubstr("got 65537 rows"));
  EXPECT_THAT(refusal({{1, 100, std::numeric_limits<double>::quiet_NaN()}}), HasSubstr("nan ns"));
}

}  // namespace
}  // namespace reprise::engine
