// SPDX-License-Identifier: Apache-2.0
// The arguments of captured nodes: what they are, and others for later replays.
#include "runtime/captured_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/memory/buffer.h"
#include "tests/testing/any_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::StatusIs;

using ::reprise::testing::kInvalid;

template <typename Args>
std::span<const std::byte> Bytes(const Args& args) {
  return std::as_bytes(std::span(&args, 1));
}

// A graph of two kernels: it waits for a flag, then *x = add.
struct Graph {
  explicit Graph(Device& device)
      : module(*device.Load(testing::ProbeImage())),
        flag(*MappedBuffer::Create(device, 4)),
        x(*MappedBuffer::Create(device, 16)),
        stream(*device.CreateStream()) {
    KeepNodes(*stream);
    EXPECT_OK(stream->BeginCapture());
    EXPECT_OK(
        stream->Launch(*module->Find(testing::kProbeWait), {},
                       testing::ProbeWaitArgs{reinterpret_cast<const uint32_t*>(flag.device())}));
    EXPECT_OK(
        stream->Launch(*module->Find(testing::kProbeAffine), {.shared_bytes = 512}, Affine(0, 5)));
    captured = *stream->EndCapture();
  }
  ProbeAffineArgs Affine(size_t place, uint64_t add) const {
    return {reinterpret_cast<uint64_t*>(x.device()) + place, 0, add};
  }
  uint64_t X(size_t place) const { return reinterpret_cast<const uint64_t*>(x.host())[place]; }
  void Open() { std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(flag.host())).store(1); }

  std::unique_ptr<KernelModule> module;
  MappedBuffer flag;
  MappedBuffer x;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<CapturedGraph> captured;
};

class CapturedNodeTest : public ::testing::TestWithParam<DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(CapturedNodeTest);

#define REPRISE_NODES_OR_SKIP(name, graph)                   \
  CapturedNodeAccess* const name = NodesOf(*graph.captured); \
  if (GetParam() == DeviceKind::kHip) {                      \
    EXPECT_EQ(name, nullptr);                                \
    GTEST_SKIP() << "hip tells no arguments";                \
  }                                                          \
  ASSERT_NE(name, nullptr)

TEST_P(CapturedNodeTest, TellKernelsAndTheirArguments) {
  REPRISE_DEVICE_OR_SKIP(device);
  const Graph graph(*device);
  REPRISE_NODES_OR_SKIP(nodes, graph);
  ASSERT_OK_AND_ASSIGN(const std::span<const CapturedNode> list, nodes->List());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, testing::kProbeWait);
  EXPECT_EQ(list[1].name, testing::kProbeAffine);
  EXPECT_EQ(list[1].grid_x, 1u);
  EXPECT_EQ(list[0].shared_bytes, 0u);
  EXPECT_EQ(list[1].shared_bytes, 512u);
  EXPECT_FALSE(list[1].opaque);
  EXPECT_TRUE(list[0].waits.empty());
  EXPECT_EQ(list[1].waits, (std::vector<CapturedNode::Wait>{{.node = 0, .early = false}}));
  const ProbeAffineArgs expected = graph.Affine(0, 5);
  ASSERT_EQ(list[1].args.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(list[1].args.data(), &expected, sizeof(expected)), 0);
}

TEST_P(CapturedNodeTest, NewArgumentsAreThoseOfLaterReplaysAlone) {
  REPRISE_DEVICE_OR_SKIP(device);
  Graph graph(*device);
  REPRISE_NODES_OR_SKIP(nodes, graph);
  ASSERT_OK(graph.captured->Replay(*graph.stream));  // waits for the flag
  ASSERT_OK(nodes->SetArgs(1, Bytes(graph.Affine(1, 7))));
  graph.Open();
  ASSERT_OK(graph.stream->Synchronize());
  EXPECT_EQ(graph.X(0), 5u);
  EXPECT_EQ(graph.X(1), 0u);
  ASSERT_OK(graph.captured->Replay(*graph.stream));
  ASSERT_OK(graph.stream->Synchronize());
  EXPECT_EQ(graph.X(1), 7u);
  ASSERT_OK_AND_ASSIGN(const std::span<const CapturedNode> list, nodes->List());
  const ProbeAffineArgs now = graph.Affine(1, 7);
  EXPECT_EQ(std::memcmp(list[1].args.data(), &now, sizeof(now)), 0);
}

// The graph fills the first of two words and copies it to the first of two others.
struct Transfers {
  explicit Transfers(Device& device)
      : from(*DeviceBuffer::Create(device, 2 * sizeof(uint64_t))),
        to(*MappedBuffer::Create(device, 2 * sizeof(uint64_t))),
        stream(*device.CreateStream()) {
    EXPECT_OK(stream->Fill(from.data(), 0, from.bytes()));
    KeepNodes(*stream);
    EXPECT_OK(stream->BeginCapture());
    EXPECT_OK(stream->Fill(From(0), 1, sizeof(uint64_t)));
    EXPECT_OK(stream->CopyToHost(To(0), From(0), sizeof(uint64_t)));
    captured = *stream->EndCapture();
  }
  uint64_t* From(size_t place) const { return from.as<uint64_t>() + place; }
  uint64_t* To(size_t place) const { return reinterpret_cast<uint64_t*>(to.host()) + place; }

  DeviceBuffer from;
  MappedBuffer to;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<CapturedGraph> captured;
};

TEST_P(CapturedNodeTest, CopiesAndFillsAreToldAndChanged) {
  REPRISE_DEVICE_OR_SKIP(device);
  constexpr uint64_t kOnes = 0x0101010101010101;
  const Transfers graph(*device);
  REPRISE_NODES_OR_SKIP(nodes, graph);
  ASSERT_OK_AND_ASSIGN(const std::span<const CapturedNode> list, nodes->List());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].kind, CapturedNode::Kind::kFill);
  EXPECT_EQ(list[1].kind, CapturedNode::Kind::kCopy);
  EXPECT_EQ(list[1].index, 1);
  EXPECT_EQ(list[1].waits, (std::vector<CapturedNode::Wait>{{.node = 0, .early = false}}));
  EXPECT_EQ(ArgsFromBytes<FillNodeArgs>(list[0].args).dst, graph.From(0));
  EXPECT_EQ(ArgsFromBytes<CopyNodeArgs>(list[1].args).dst, graph.To(0));
  EXPECT_EQ(ArgsFromBytes<CopyNodeArgs>(list[1].args).src, graph.From(0));
  ASSERT_OK(nodes->SetArgs(0, Bytes(FillNodeArgs{.dst = graph.From(1)})));
  ASSERT_OK(nodes->SetArgs(1, Bytes(CopyNodeArgs{.dst = graph.To(1), .src = graph.From(1)})));
  ASSERT_OK(graph.captured->Replay(*graph.stream));
  ASSERT_OK(graph.stream->Synchronize());
  EXPECT_EQ(*graph.To(0), 0u);
  EXPECT_EQ(*graph.To(1), kOnes);
  uint64_t untouched = 1;
  ASSERT_OK(graph.stream->CopyToHost(&untouched, graph.From(0), sizeof(untouched)));
  ASSERT_OK(graph.stream->Synchronize());
  EXPECT_EQ(untouched, 0u);
  EXPECT_EQ(ArgsFromBytes<CopyNodeArgs>(list[1].args).dst, graph.To(1));
  EXPECT_THAT(nodes->SetArgs(1, Bytes(FillNodeArgs{.dst = graph.From(0)})),
              StatusIs(kInvalid, "('copy'): args has 8 bytes; its arguments have 16"));
}

TEST_P(CapturedNodeTest, HostFunctionsAreOpaque) {
  REPRISE_DEVICE_OR_SKIP(device);
  if (GetParam() != DeviceKind::kHost) GTEST_SKIP() << "only host runs host functions";
  ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream());
  KeepNodes(*stream);
  ASSERT_OK(stream->BeginCapture());
  ASSERT_OK(stream->EnqueueHost([] {}));
  ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
  CapturedNodeAccess* nodes = NodesOf(*graph);
  ASSERT_OK_AND_ASSIGN(const std::span<const CapturedNode> list, nodes->List());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(list[0].opaque);
  EXPECT_THAT(nodes->SetArgs(0, {}),
              StatusIs(kInvalid, "node 0 ('host function'): its arguments cannot be changed"));
}

TEST_P(CapturedNodeTest, KnowAddressesFromNumbers) {
  REPRISE_DEVICE_OR_SKIP(device);
  Graph graph(*device);
  REPRISE_NODES_OR_SKIP(nodes, graph);
  ASSERT_OK_AND_ASSIGN(auto memory, DeviceBuffer::Create(*device, 4096));
  ASSERT_OK(nodes->List());
  EXPECT_TRUE(nodes->IsAddress(reinterpret_cast<uint64_t>(memory.data())));
  EXPECT_TRUE(nodes->IsAddress(reinterpret_cast<uint64_t>(memory.data()) + 4095));
  EXPECT_TRUE(nodes->IsAddress(reinterpret_cast<uint64_t>(graph.x.device())));
  for (const uint64_t number : {uint64_t{0}, uint64_t{31}, uint64_t{4096}, ~uint64_t{0}})
    EXPECT_FALSE(nodes->IsAddress(number)) << number;
}

TEST_P(CapturedNodeTest, RefuseNodesThatAreNotThereAndArgumentsOfAnotherSize) {
  REPRISE_DEVICE_OR_SKIP(device);
  Graph graph(*device);
  REPRISE_NODES_OR_SKIP(nodes, graph);
  EXPECT_THAT(nodes->SetArgs(2, Bytes(graph.Affine(0, 1))),
              StatusIs(kInvalid, "node is 2; allowed: less than 2"));
  EXPECT_THAT(
      nodes->SetArgs(1, Bytes(uint64_t{1})),
      StatusIs(kInvalid, "('reprise_probe_affine'): args has 8 bytes; its arguments have 24"));
}

}  // namespace
}  // namespace reprise::runtime
