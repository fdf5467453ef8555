// SPDX-License-Identifier: Apache-2.0
// What a step may not do to be counted and recorded: allocate.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "service/access_log/access_log.h"
#include "service/clock.h"
#include "service/telemetry.h"
#include "tests/testing/allocation_counter.h"

namespace reprise::service {
namespace {

class Job final : public StepJob {
 public:
  void Finished(const absl::Status& /*status*/, const engine::StepResult* /*result*/) override {}
};

TEST(Telemetry, AllocatesNothingForAStep) {
  auto log = AccessLog::Open({.path = "/dev/null", .max_waiting = 64});
  ASSERT_TRUE(log.ok()) << log.status();
  Telemetry telemetry;
  telemetry.SetAccessLog(log->get());
  telemetry.SetGraphs({"decode/1", "decode/8"});
  engine::StepResult result;
  result.rows.assign(8, {.row = 1, .sampled = true});
  result.report = {.graph = "decode/8", .replayed = true, .rows = 8, .tokens = 8};
  result.steps.assign(4, {.num_rows = 2, .report = result.report, .device_ns = 1000});
  const CallOrigin call = {.peer = "ipv4:127.0.0.1:40122", .trace = {}};
  const absl::Status refused = absl::NotFoundError(std::string(300, 'x'));
  Job job;
  job.times.received_ns = NowNs();
  const uint64_t before = testing::NumAllocationsOfThisThread();
  // More than fit: what is dropped costs nothing either.
  for (int i = 0; i < 200; ++i) {
    const StepOrigin origin = {.call = call, .trace = call.trace, .session = 1, .sequence = 1};
    telemetry.NoteStep(origin, job, absl::OkStatus(), &result);
    telemetry.NoteStep(origin, job, refused, nullptr);
  }
  EXPECT_EQ(testing::NumAllocationsOfThisThread(), before);
  std::vector<uint64_t> steps;
  telemetry.steps()->ForEachGraph(
      [&](const GraphMetrics& graph) { steps.push_back(graph.steps.value()); });
  EXPECT_EQ(steps, (std::vector<uint64_t>{0, 800, 0}));
}

}  // namespace
}  // namespace reprise::service
