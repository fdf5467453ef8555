// SPDX-License-Identifier: Apache-2.0
// A run of `reprise profile` whose points and traces come from the test: what becomes of a trace
// that fails when some points have theirs.
#include "tools/profile_run.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/signals.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;

constexpr char kWhy[] = "cuptiActivityFlushAll: for the test";

// One step of one kernel.
absl::Status Measure(uint32_t, const MeasuredSteps&, PointProfile* point) {
  for (StepTimes* times : {&point->plain, &point->profiled}) {
    times->replay_ns.Add(1000);
    times->device_ns.Add(600);
    times->launch_ns.Add(50);
  }
  point->graph = "decode/2";
  point->round_replay_ns.Add(1000);
  point->round_steps = {1};
  const std::vector<graphs::ProfiledLaunch> launches = {
      {.kernel = "reprise_norm", .op = "norm", .shape = ""}};
  return point->kernels.Add({.launches = launches, .begin_ns = 100, .done_ns = {700}});
}

// Of a point of one row; of others no trace can be had.
absl::Status Trace(const MeasuredSteps& measured, PointProfile* point) {
  REPRISE_RETURN_IF_ERROR(measured(1));
  if (point->rows > 1) return absl::UnavailableError(kWhy);
  point->traced = point->plain;
  const std::vector<TracedKernel> kernels = {
      {.name = "reprise_norm", .launch = 1, .begin_ns = 100, .end_ns = 700}};
  return point->trace.Add(kernels, point->kernels.LaunchKernels(), 1);
}

class ProfileRunTest : public ::testing::Test {
 protected:
  // Points of one row and of two; the JSON of the run is in json_.
  absl::Status Run(ProfileFlags flags) {
    flags.profile = {.rows = {1, 2}, .contexts = {16}, .iterations = 1, .rounds = 1};
    flags.json_file = directory_.path() + "/profile.json";
    Console console;
    const Invocation invocation{.console = &console, .argv = {"reprise"}, .commit = ""};
    ProfileContext context;
    context.bandwidth.read.Add(1e9);
    context.products.flops_per_s.Add(1e9);
    context.stamp_cost_ns.Add(10);
    context.tracing.name = "a tracer";
    Interrupt interrupt;
    const absl::Status status =
        RunProfile({.flags = flags,
                    .context = context,
                    .invocation = invocation,
                    .facts = {{"tracing", TelemetryToJson(context.tracing)}},
                    .measure = Measure,
                    .trace = Trace},
                   &interrupt);
    std::ifstream file(flags.json_file);
    json_ = nlohmann::json::parse(file);
    return status;
  }

  nlohmann::json json_;

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(ProfileRunTest, ATraceThatFailsLeavesWhatWasMeasuredAndIsTold) {
  ASSERT_OK(Run({}));
  EXPECT_EQ(json_["error"], nullptr);
  EXPECT_EQ(json_["tracing"]["source"], "a tracer");
  EXPECT_EQ(json_["tracing"]["why_none"], kWhy);
  ASSERT_EQ(json_["points"].size(), 2u);
  EXPECT_TRUE(json_["points"][0]["traced"].is_object());
  EXPECT_EQ(json_["points"][1]["traced"], nullptr);
}

TEST_F(ProfileRunTest, ATraceThatIsAskedForByNameFailsTheRunAndNothingIsLost) {
  ProfileFlags flags;
  flags.cupti = "libcupti.so";
  EXPECT_THAT(Run(flags), StatusIs(absl::StatusCode::kUnavailable, kWhy));
  EXPECT_EQ(json_["error"], kWhy);
  EXPECT_EQ(json_["points"].size(), 2u);
}

TEST_F(ProfileRunTest, ABoundOfTracesDoesNotHoldWithoutThem) {
  ProfileFlags flags;
  ASSERT_OK_AND_ASSIGN(flags.assertions.emplace_back(), ParseAssertion("idle<1s"));
  EXPECT_THAT(Run(flags), StatusIs(absl::StatusCode::kUnavailable, kWhy));
  EXPECT_EQ(json_["assertions"], nlohmann::json::array());
}

TEST_F(ProfileRunTest, ABrokenBoundIsToldFromARunThatFailed) {
  ProfileFlags flags;
  ASSERT_OK_AND_ASSIGN(flags.assertions.emplace_back(), ParseAssertion("replay<1ns"));
  const absl::Status broken = Run(flags);
  EXPECT_THAT(broken,
              StatusIs(absl::StatusCode::kFailedPrecondition, "2 of 2 assertions do not hold"));
  EXPECT_TRUE(IsBeyondBoundError(broken));
  EXPECT_EQ(json_["assertions"].size(), 2u);
  flags.cupti = "libcupti.so";
  EXPECT_FALSE(IsBeyondBoundError(Run(flags))) << "nothing is asserted of it";
}

}  // namespace
}  // namespace reprise::tools
