// SPDX-License-Identifier: Apache-2.0
// What the step kernel says of launches before anything runs. What it computes: tests/engine.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/step_kernel/launch_list.h"
#include "kernels/step_kernel/stage_list.h"
#include "kernels/step_kernel/step_kernel.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::LinearArgs;
using kernels::LinearWeights;
using kernels::StepKernelPlan;

using StepKernelPlanTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(StepKernelPlanTest);

// What it has of norms are stages of their own. A plain layer is taken, and it is attention that
// is missed then.
TEST_P(StepKernelPlanTest, RefusesLinearLayersThatDoANormsWork) {
  alignas(16) const float memory[4] = {};  // nothing runs, so that nothing of it is read
  float out[4] = {};
  const uint32_t rows = 1;
  const LinearWeights weights{.format = kernels::WeightFormatOf(dtype()),
                              .layout = kernels::WeightLayout::kPacked,
                              .data = memory,
                              .out_features = 64,
                              .in_features = 512};
  if (!kernels::CanPack(weights.format) || !LinearNormsInput(kernels(), weights, rows))
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  const auto plan = [&](LinearArgs args) {
    args.x = memory;
    args.out = out;
    args.num_rows = &rows;
    kernels::LaunchList list;
    EXPECT_OK(Linear(list, kernels(), weights, args, rows));
    EXPECT_EQ(list.launches().size(), 1u);
    return StepKernelPlan::Of(kernels(), list.launches()).status();
  };
  const auto refused =
      StatusIs(absl::StatusCode::kUnimplemented, "does a norm's work; allowed: norms of their own");
  EXPECT_THAT(plan({.norm_weight = memory}), refused);
  EXPECT_THAT(plan({.adds_to_out = 1}), refused);
  EXPECT_THAT(plan({}), StatusIs(absl::StatusCode::kUnimplemented, "no decode attention"));
}

// A plan is data: its list needs no device.
TEST(StageList, SaysWhatEachStageDoesAndWaitsFor) {
  StepKernelPlan plan;
  kernels::StepStage norm{.kind = kernels::StageKind::kNorm, .per_row = 4};
  kernels::StepStage linear{.kind = kernels::StageKind::kLinear,
                            .count = 1,
                            .fixed = 6,
                            .first_unit = 10,
                            .num_units = 6};
  linear.linear.out_features = 96;
  linear.linear.in_features = 512;
  plan.stages = {norm, linear};
  plan.labels = {{.op = "rms_norm"}, {.op = "linear_group", .from_table = true}};
  const std::vector<kernels::ListedStage> list = kernels::ListStages(plan);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0], (kernels::ListedStage{
                         .kind = kernels::StageKind::kNorm, .op = "rms_norm", .per_row = 4}));
  EXPECT_EQ(list[1], (kernels::ListedStage{.kind = kernels::StageKind::kLinear,
                                           .op = "linear_group",
                                           .out_features = 96,
                                           .in_features = 512,
                                           .num_tiles = 6,
                                           .first_tile = 10,
                                           .fixed = 6,
                                           .count = 1,
                                           .waits_for = 0,
                                           .from_table = true}));
}

}  // namespace
}  // namespace reprise::testing
