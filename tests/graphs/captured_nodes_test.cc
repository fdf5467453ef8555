// SPDX-License-Identifier: Apache-2.0
// What a captured graph holds, on every device that tells, against what was enqueued; and that the
// first node that differs is named.
#include "graphs/captured_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/status_macros.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::StatusIs;

class CapturedNodesTest : public ::testing::TestWithParam<runtime::DeviceKind> {
 protected:
  bool tells() const { return GetParam() != runtime::DeviceKind::kHip; }
};
REPRISE_ON_EVERY_DEVICE(CapturedNodesTest);

TEST_P(CapturedNodesTest, AreThoseThatWereEnqueued) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    REPRISE_RETURN_IF_ERROR(bench.Work()(s, bucket));
    REPRISE_RETURN_IF_ERROR(s.Fill(bench.cell.data(), 0, 8));
    return s.Launch(bench.count, {.grid_x = 2, .grid_y = 3, .block = 32, .shared_bytes = 256},
                    testing::ProbeCountArgs{bench.counts.as<uint32_t>(), 32});
  };
  const Bucket bucket{.capacity = 4, .name = "graph/4"};
  const auto captured = ListCapturedNodes(*bench.stream, bucket, work);
  if (!tells()) {
    EXPECT_THAT(captured, StatusIs(absl::StatusCode::kUnimplemented,
                                   "this device does not tell the nodes of captured graphs"));
    return;
  }
  ASSERT_OK(captured);
  ASSERT_EQ(captured->kernels.size(), 3u);
  EXPECT_EQ(captured->kernels[2].name, testing::kProbeCount);
  EXPECT_EQ(captured->kernels[2].grid_y, 3u);
  EXPECT_EQ(captured->kernels[2].shared_bytes, 256u);
  EXPECT_EQ(captured->num_other_nodes, 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<GraphNode> nodes, ListNodes(*bench.stream, bucket, work));
  EXPECT_OK(CheckCaptured(nodes, *captured));
  EXPECT_EQ(bench.Traces().first, 0u);  // nothing ran
}

TEST_P(CapturedNodesTest, PassOnWhatTheFunctionReturns) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  EXPECT_THAT(ListCapturedNodes(*bench.stream, {}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, "the enqueue function is empty"));
  EXPECT_THAT(ListCapturedNodes(*bench.stream, {},
                                [](runtime::Stream&, const Bucket&) {
                                  return absl::ResourceExhaustedError("no more");
                                }),
              StatusIs(absl::StatusCode::kResourceExhausted, "no more"));
  EXPECT_OK(bench.stream->Synchronize());  // it captures no more
}

GraphNode Enqueued(const std::string& op) {
  return {.kind = GraphNode::Kind::kKernel,
          .kernel = "reprise_" + op,
          .op = op,
          .shape = op == "linear" ? "8x4" : "",
          .grid_x = 4,
          .grid_y = 2,
          .block = 128,
          .shared_bytes = 1024,
          .argument_bytes = 48};
}

runtime::CapturedNode Captured(const std::string& op) {
  return {.index = op == "norm" ? 0 : 2,
          .name = "reprise_" + op,
          .grid_x = 4,
          .grid_y = 2,
          .block = 128,
          .shared_bytes = 1024,
          .args = std::vector<std::byte>(48)};
}

// A norm, a fill and a linear; then one of them changes.
absl::Status CheckChanged(const std::function<void(CapturedNodes*)>& change) {
  GraphNode fill;
  fill.kind = GraphNode::Kind::kFill;
  const std::vector<GraphNode> enqueued = {Enqueued("norm"), fill, Enqueued("linear")};
  CapturedNodes captured{.kernels = {Captured("norm"), Captured("linear")}, .num_other_nodes = 1};
  change(&captured);
  return CheckCaptured(enqueued, captured);
}

TEST(CheckCaptured, NamesTheFirstNodeThatDiffersAndWhatEitherSays) {
  struct Case {
    std::function<void(CapturedNodes*)> change;
    std::string says;
  };
  const std::vector<Case> cases = {
      {[](CapturedNodes* c) { c->kernels[1].name = "reprise_other"; },
       "node 2 (linear 8x4): kernel reprise_linear enqueued, reprise_other captured"},
      {[](CapturedNodes* c) { c->kernels[0].grid_x = 5; },
       "node 0 (norm): grid 4x2x1 enqueued, 5x2x1 captured"},
      {[](CapturedNodes* c) { c->kernels[1].grid_y = 1; },
       "node 2 (linear 8x4): grid 4x2x1 enqueued, 4x1x1 captured"},
      {[](CapturedNodes* c) { c->kernels[1].grid_z = 2; },
       "node 2 (linear 8x4): grid 4x2x1 enqueued, 4x2x2 captured"},
      {[](CapturedNodes* c) { c->kernels[0].block = 64; },
       "node 0 (norm): block 128 enqueued, 64 captured"},
      {[](CapturedNodes* c) { c->kernels[1].shared_bytes = 0; },
       "node 2 (linear 8x4): shared bytes 1024 enqueued, 0 captured"},
      {[](CapturedNodes* c) { c->kernels[1].args.resize(40); },
       "node 2 (linear 8x4): argument bytes 48 enqueued, 40 captured"},
      {[](CapturedNodes* c) {
         c->kernels[0].block = 64;
         c->kernels[0].shared_bytes = 8;
         c->kernels[1].block = 64;
       },
       "node 0 (norm): block 128 enqueued, 64 captured; shared bytes 1024 enqueued, 8 captured"},
      {[](CapturedNodes* c) { c->kernels.pop_back(); },
       "node 2 (linear 8x4): enqueued, and not captured"},
      {[](CapturedNodes* c) { c->kernels.push_back({.index = 3, .name = "more"}); },
       "node 3 of the captured graph (more): captured, and not enqueued"},
      {[](CapturedNodes* c) { c->num_other_nodes = 3; },
       "nodes that are no kernels: 1 enqueued, 3 captured"},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(CheckChanged(wrong.change), StatusIs(absl::StatusCode::kInternal, wrong.says));
}

TEST(CheckCaptured, DoesNotCompareWhatTheDeviceCannotTell) {
  EXPECT_OK(CheckChanged([](CapturedNodes*) {}));
  EXPECT_OK(CheckChanged([](CapturedNodes* c) { c->kernels[0].name = ""; }));
  EXPECT_OK(CheckChanged([](CapturedNodes* c) {
    c->kernels[1].args.clear();
    c->kernels[1].opaque = true;
  }));
}

}  // namespace
}  // namespace reprise::graphs
