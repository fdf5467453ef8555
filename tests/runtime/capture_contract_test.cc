// SPDX-License-Identifier: Apache-2.0
// What runtime/device.h promises of capture and replay, on every device that this machine has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/runtime/probe_bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::StatusIs;

using ::reprise::testing::kInvalid;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kUnavailable;

class CaptureContract : public ::testing::TestWithParam<DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(CaptureContract);

TEST_P(CaptureContract, CaptureRecordsAndReplayRuns) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({1, 2, 3});
  EXPECT_EQ(bench.Get(), 1u);  // recording ran nothing
  EXPECT_EQ(graph->num_kernel_nodes(), 3);
  EXPECT_EQ(graph->num_other_nodes(), 0);
  uint64_t expected = 1;
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK(graph->Replay(*bench.stream));
    for (const uint64_t add : {1, 2, 3}) expected = expected * 3 + add;
  }
  EXPECT_EQ(bench.Get(), expected);
}

TEST_P(CaptureContract, ReplayEqualsEagerAndInterleavesWithIt) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({8});
  ASSERT_OK(bench.Affine(3, 8));
  ASSERT_OK(graph->Replay(*bench.stream));
  ASSERT_OK(bench.Affine(2, 0));
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), (((1u * 3 + 8) * 3 + 8) * 2) * 3 + 8);
}

TEST_P(CaptureContract, CaptureCountsCopiesAndFillsAsOtherNodes) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(MappedBuffer mapped, MappedBuffer::Create(*device, 8));
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.stream->Fill(bench.cell.data(), 0, 8));
  ASSERT_OK(bench.Affine(1, 9));
  ASSERT_OK(bench.stream->CopyToHost(mapped.host(), bench.cell.data(), 8));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 1);
  EXPECT_EQ(graph->num_other_nodes(), 2);
  ASSERT_OK(graph->Replay(*bench.stream));
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(mapped.host()), 9u);
}

TEST_P(CaptureContract, EmptyCaptureReplaysNothing) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({});
  EXPECT_EQ(graph->num_kernel_nodes(), 0);
  EXPECT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 1u);
}

TEST_P(CaptureContract, ReplayIsAsynchronous) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  Gate gate(*device);
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  ASSERT_OK(bench.Affine(3, 4));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  ASSERT_OK(graph->Replay(*bench.stream));
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_THAT(bench.stream->Query(), StatusIs(kUnavailable, ""));
  gate.Open();
  EXPECT_EQ(bench.Get(), 25u);
}

TEST_P(CaptureContract, GraphMayGoWhileItsReplayIsInFlight) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  Gate gate(*device);
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.Open();
  });
  {
    // Capture on another stream: instantiation waits for its own stream.
    Bench other(*device);
    ASSERT_OK(other.stream->BeginCapture());
    ASSERT_OK(
        other.stream->Launch(bench.affine, {}, ProbeAffineArgs{bench.cell.as<uint64_t>(), 3, 4}));
    ASSERT_OK_AND_ASSIGN(auto graph, other.stream->EndCapture());
    ASSERT_OK(graph->Replay(*bench.stream));
  }
  opener.join();
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(CaptureContract, ReplayRunsOnAnotherStreamOfTheDevice) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({4});
  ASSERT_OK_AND_ASSIGN(auto other, device->CreateStream());
  ASSERT_OK(graph->Replay(*other));
  ASSERT_OK(other->Synchronize());
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(CaptureContract, AbortedCaptureLeavesNothingBehind) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bench.stream->AbortCapture();  // not capturing: nothing happens
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.Affine(100, 100));
  bench.stream->AbortCapture();
  EXPECT_EQ(bench.Get(), 1u);
  EXPECT_THAT(bench.stream->EndCapture(), StatusIs(kPrecondition, "not capturing"));
  const auto graph = bench.Capture({4});
  EXPECT_EQ(graph->num_kernel_nodes(), 1);
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(CaptureContract, StreamMayGoWhileCapturing) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  {
    ASSERT_OK_AND_ASSIGN(auto other, device->CreateStream());
    ASSERT_OK(other->BeginCapture());
    ASSERT_OK(other->Launch(bench.affine, {}, ProbeAffineArgs{bench.cell.as<uint64_t>(), 3, 4}));
  }
  EXPECT_EQ(bench.Get(), 1u);
}

TEST_P(CaptureContract, WrongCallsDuringCaptureAreRefusedAndDoNotSpoilIt) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto before = bench.Capture({1});
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.Affine(3, 4));
  EXPECT_THAT(bench.stream->BeginCapture(), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(bench.stream->Synchronize(), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(bench.stream->Query(), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(before->Replay(*bench.stream), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(bench.stream->Launch(bench.affine, {.block = 5000}, ProbeAffineArgs{}),
              StatusIs(kInvalid, "block"));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 1);
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(CaptureContract, OtherThreadsMayAllocateDuringCapture) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.Affine(3, 1));
  std::thread other([&] {
    for (int i = 0; i < 10; ++i) {
      EXPECT_OK(DeviceBuffer::Create(*device, 100000));
      EXPECT_OK(MappedBuffer::Create(*device, 1000));
      auto stream = device->CreateStream();
      ASSERT_OK(stream);
      ASSERT_OK_AND_ASSIGN(DeviceBuffer cell, DeviceBuffer::Create(*device, 8));
      ASSERT_OK((*stream)->Launch(bench.affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 0, 1}));
      ASSERT_OK((*stream)->Synchronize());
    }
  });
  other.join();
  ASSERT_OK(bench.Affine(3, 2));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 2);
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 14u);
}

TEST_P(CaptureContract, TwoThreadsMayCaptureAtOnce) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench a(*device);
  Bench b(*device);
  // Neither ends its capture before both have begun.
  std::atomic<int> begun{0};
  const auto capture = [&begun](Bench& bench, uint64_t add, std::unique_ptr<CapturedGraph>* graph) {
    ASSERT_OK(bench.stream->BeginCapture());
    ASSERT_OK(bench.Affine(3, add));
    ++begun;
    for (int ms = 0; begun < 2 && ms < 10000; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_OK_AND_ASSIGN(*graph, bench.stream->EndCapture());
  };
  std::unique_ptr<CapturedGraph> graph_a, graph_b;
  std::thread other([&] { capture(b, 6, &graph_b); });
  capture(a, 4, &graph_a);
  other.join();
  ASSERT_TRUE(graph_a != nullptr && graph_b != nullptr);
  ASSERT_OK(graph_a->Replay(*a.stream));
  ASSERT_OK(graph_b->Replay(*b.stream));
  EXPECT_EQ(a.Get(), 7u);
  EXPECT_EQ(b.Get(), 9u);
}

}  // namespace
}  // namespace reprise::runtime
