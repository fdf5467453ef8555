// SPDX-License-Identifier: Apache-2.0
// What a captured graph holds, on every device that tells, against what was enqueued; and that the
// first node that differs is named.
#include "graphs/captured_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/status_macros.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::StatusIs;
using Kind = runtime::CapturedNode::Kind;
using Waits = std::vector<runtime::CapturedNode::Wait>;

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
  ASSERT_EQ(captured->nodes.size(), 4u);
  const auto last = std::find_if(captured->nodes.begin(), captured->nodes.end(), [](const auto& n) {
    return n.name == testing::kProbeCount && n.grid_y == 3;
  });
  ASSERT_NE(last, captured->nodes.end());
  EXPECT_EQ(last->shared_bytes, 256u);
  EXPECT_EQ(std::count_if(captured->nodes.begin(), captured->nodes.end(),
                          [](const auto& n) { return n.kind == Kind::kFill; }),
            1);
  ASSERT_OK_AND_ASSIGN(const std::vector<GraphNode> nodes, ListNodes(*bench.stream, bucket, work));
  ASSERT_OK_AND_ASSIGN(const std::vector<GraphNode> told, AsCaptured(nodes, *captured));
  EXPECT_EQ(told, nodes);
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

runtime::CapturedNode Captured(const std::string& op, int index, Waits waits) {
  return {.index = index,
          .name = "reprise_" + op,
          .grid_x = 4,
          .grid_y = 2,
          .block = 128,
          .shared_bytes = 1024,
          .args = std::vector<std::byte>(48),
          .waits = std::move(waits)};
}

runtime::CapturedNode CapturedFill(int index, Waits waits) {
  return {.index = index, .kind = Kind::kFill, .name = "fill", .waits = std::move(waits)};
}

// A norm, a fill and a linear; then one of them changes.
absl::StatusOr<std::vector<GraphNode>> AsChanged(
    const std::function<void(std::vector<runtime::CapturedNode>&)>& change) {
  GraphNode fill;
  fill.kind = GraphNode::Kind::kFill;
  CapturedNodes captured{
      .nodes = {Captured("norm", 0, {}), CapturedFill(1, {{0}}), Captured("linear", 2, {{1}})}};
  change(captured.nodes);
  return AsCaptured({Enqueued("norm"), fill, Enqueued("linear")}, captured);
}

TEST(AsCaptured, NamesTheFirstNodeThatDiffersAndWhatEitherSays) {
  struct Case {
    std::function<void(std::vector<runtime::CapturedNode>&)> change;
    std::string says;
  };
  const std::vector<Case> cases = {
      {[](auto& n) { n[2].name = "reprise_other"; },
       "node 2 (linear 8x4): kernel reprise_linear enqueued, reprise_other captured"},
      {[](auto& n) { n[0].grid_x = 5; }, "node 0 (norm): grid 4x2x1 enqueued, 5x2x1 captured"},
      {[](auto& n) { n[2].grid_y = 1; },
       "node 2 (linear 8x4): grid 4x2x1 enqueued, 4x1x1 captured"},
      {[](auto& n) { n[2].grid_z = 2; },
       "node 2 (linear 8x4): grid 4x2x1 enqueued, 4x2x2 captured"},
      {[](auto& n) { n[0].block = 64; }, "node 0 (norm): block 128 enqueued, 64 captured"},
      {[](auto& n) { n[2].shared_bytes = 0; },
       "node 2 (linear 8x4): shared bytes 1024 enqueued, 0 captured"},
      {[](auto& n) { n[2].args.resize(40); },
       "node 2 (linear 8x4): argument bytes 48 enqueued, 40 captured"},
      {[](auto& n) {
         n[0].block = 64;
         n[0].shared_bytes = 8;
         n[2].block = 64;
       },
       "node 0 (norm): block 128 enqueued, 64 captured; shared bytes 1024 enqueued, 8 captured"},
      {[](auto& n) { n.pop_back(); }, "node 2 (linear 8x4): enqueued, and not captured"},
      {[](auto& n) { n.push_back({.index = 3, .name = "more"}); },
       "node 3 of the captured graph (more): captured, and not enqueued"},
      {[](auto& n) { n.insert(n.begin() + 2, 2, CapturedFill(9, {{1}})); },
       "nodes that are no kernels: 1 enqueued, 3 captured"},
      {[](auto& n) { n.erase(n.begin() + 1); },
       "nodes that are no kernels: 1 enqueued, 0 captured"},
      {[](auto& n) { n[2].waits = {{0}}; },
       "node 2 (linear 8x4): enqueued behind node 1 of the captured graph, waits there for 0"},
      {[](auto& n) {
         n[2].waits = {{0}, {1}};
       },
       "node 2 (linear 8x4): enqueued behind node 1 of the captured graph, waits there for 0, 1"},
      {[](auto& n) {
         n[1].kind = Kind::kCopy;
         n[1].name = "copy";
       },
       "node 1 (fill): fill enqueued, copy captured"},
      {[](auto& n) { n[1].waits.clear(); },
       "node 1 (fill): enqueued behind node 0 of the captured graph, waits there for nothing"},
      {[](auto& n) { n[0].waits = {{2}}; },
       "node 0 (norm): enqueued behind nothing of the captured graph, waits there for 2"},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(AsChanged(wrong.change), StatusIs(absl::StatusCode::kInternal, wrong.says));
}

TEST(AsCaptured, TellsWhichNodesBeginEarly) {
  ASSERT_OK_AND_ASSIGN(const auto none, AsChanged([](auto&) {}));
  ASSERT_OK_AND_ASSIGN(const auto last, AsChanged([](auto& n) { n[2].waits[0].early = true; }));
  ASSERT_EQ(last.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(none[i].early);
    EXPECT_EQ(last[i].early, i == 2);
  }
}

// As a driver may list them.
TEST(AsCaptured, MatchesKernelsAndOthersApart) {
  EXPECT_OK(AsChanged([](auto& n) {
    n = {CapturedFill(0, {{1}}), Captured("norm", 1, {}), Captured("linear", 2, {{0}})};
  }));
}

TEST(AsCaptured, DoesNotCompareWhatTheDeviceCannotTell) {
  EXPECT_OK(AsChanged([](auto& n) { n[0].name = ""; }));
  EXPECT_OK(AsChanged([](auto& n) {
    n[2].args.clear();
    n[2].opaque = true;
  }));
}

}  // namespace
}  // namespace reprise::graphs
