// SPDX-License-Identifier: Apache-2.0
// What a graph's nodes say of anyone's work: launches with their shapes and labels, other nodes by
// their kind, and nothing of it enqueued.
#include "graphs/graph_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runtime/status_macros.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::StatusIs;

using GraphNodesTest = testing::KernelTest;
REPRISE_FOR_EVERY_DEVICE(GraphNodesTest);

TEST_P(GraphNodesTest, SayWhatTheGraphLaunches) {
  // Of no module: nothing is launched.
  const runtime::Kernel kernel{.handle = nullptr, .name = "a_kernel"};
  struct Arguments {
    uint64_t words[3];
  };
  const auto enqueue = [&](runtime::Stream& s, const Bucket& bucket) {
    REPRISE_RETURN_IF_ERROR(s.Launch(kernel, {.grid_x = 1}, Arguments{}));
    return s.Launch(kernel,
                    {.grid_x = static_cast<unsigned>(bucket.capacity),
                     .grid_y = 2,
                     .block = 64,
                     .shared_bytes = 512,
                     .label = {.op = "affine", .rows = 8, .columns = 4}},
                    Arguments{});
  };
  const Bucket bucket{.index = 0, .capacity = 5, .name = "t/5"};
  ASSERT_OK_AND_ASSIGN(const std::vector<GraphNode> nodes, ListNodes(stream(), bucket, enqueue));
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].op, "a_kernel");  // without a label
  EXPECT_EQ(nodes[0].shape, "");
  const GraphNode expected{.kind = GraphNode::Kind::kKernel,
                           .kernel = "a_kernel",
                           .op = "affine",
                           .shape = "8x4",
                           .grid_x = 5,
                           .grid_y = 2,
                           .block = 64,
                           .shared_bytes = 512,
                           .argument_bytes = sizeof(Arguments)};
  EXPECT_EQ(nodes[1], expected);
}

TEST_P(GraphNodesTest, TellOtherNodesByTheirKindAndEnqueueNone) {
  std::vector<uint64_t> words(2, 7);
  bool ran = false;
  const auto enqueue = [&](runtime::Stream& s, const Bucket&) {
    REPRISE_RETURN_IF_ERROR(s.EnqueueHost([&] { ran = true; }));
    REPRISE_RETURN_IF_ERROR(s.Fill(words.data(), 0, sizeof(uint64_t)));
    REPRISE_RETURN_IF_ERROR(s.CopyToDevice(words.data(), &words[1], sizeof(uint64_t)));
    return s.CopyToHost(&words[1], words.data(), sizeof(uint64_t));
  };
  ASSERT_OK_AND_ASSIGN(const std::vector<GraphNode> nodes, ListNodes(stream(), {}, enqueue));
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(NameOf(nodes[0].kind), "host");
  EXPECT_EQ(NameOf(nodes[1].kind), "fill");
  EXPECT_EQ(NameOf(nodes[2].kind), "copy");
  EXPECT_EQ(NameOf(nodes[3].kind), "copy");
  ASSERT_OK(stream().Synchronize());
  EXPECT_FALSE(ran);
  EXPECT_EQ(words[0], 7u);
}

TEST_P(GraphNodesTest, PassOnWhatTheFunctionReturns) {
  EXPECT_THAT(ListNodes(stream(), {}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, "the enqueue function is empty"));
  EXPECT_THAT(ListNodes(stream(), {},
                        [](runtime::Stream&, const Bucket&) {
                          return absl::ResourceExhaustedError("no more");
                        }),
              StatusIs(absl::StatusCode::kResourceExhausted, "no more"));
}

}  // namespace
}  // namespace reprise::graphs
