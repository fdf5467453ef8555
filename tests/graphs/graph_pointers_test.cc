// SPDX-License-Identifier: Apache-2.0
// Pointers in captured graphs: those that no buffer owns are found, and a buffer may move.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "graphs/graph_manager.h"
#include "runtime/memory/buffer.h"
#include "runtime/status_macros.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::runtime::DeviceBuffer;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ::reprise::testing::kInvalid;

class GraphPointers : public ::testing::TestWithParam<runtime::DeviceKind> {
 protected:
  bool tells() const { return GetParam() != runtime::DeviceKind::kHip; }
};
REPRISE_ON_EVERY_DEVICE(GraphPointers);

GraphManagerOptions WithBuffers(const Bench& bench) {
  return {.buckets = {2, 4},
          .warm_up = false,
          .buffers = {{"counts", bench.counts.data(), bench.counts.bytes()},
                      {"cell", bench.cell.data(), bench.cell.bytes()}}};
}

TEST_P(GraphPointers, AuditFindsNothingWhereEveryPointerHasAnOwner) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  for (const CaptureMode mode :
       {CaptureMode::kEager, CaptureMode::kLazy, CaptureMode::kBackground}) {
    GraphManagerOptions options = WithBuffers(bench);
    options.capture = mode;
    options.device = device.get();
    ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
    const auto report = manager->Audit({.rows = 3});
    if (!tells()) {
      EXPECT_THAT(report, StatusIs(absl::StatusCode::kUnimplemented,
                                   "bucket 'graph/4', audit: this device does not tell"));
      continue;
    }
    ASSERT_OK(report);
    EXPECT_EQ(report->graph, "graph/4");
    EXPECT_EQ(report->num_kernels, 2);
    EXPECT_EQ(report->num_pointers, 2);
    EXPECT_EQ(report->num_untold, 0);
    EXPECT_THAT(report->foreign, IsEmpty());
  }
}

TEST_P(GraphPointers, AuditNamesTheNodeOfAPointerThatNoBufferOwns) {
  REPRISE_DEVICE_OR_SKIP(device);
  if (!tells()) GTEST_SKIP() << "hip tells no arguments";
  Bench bench(*device);
  GraphManagerOptions options = WithBuffers(bench);
  options.buffers.pop_back();  // the cell's
  options.device = device.get();
  options.workspace_bytes = [](const Bucket&) { return size_t{64}; };
  ASSERT_OK_AND_ASSIGN(const auto host, runtime::MappedBuffer::Create(*device, 8));
  // A fill of the workspace, a copy of the cell, and a third kernel, in the workspace.
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    REPRISE_RETURN_IF_ERROR(bench.Work()(s, bucket));
    REPRISE_RETURN_IF_ERROR(s.Fill(bucket.workspace, 0, 8));
    REPRISE_RETURN_IF_ERROR(s.CopyToHost(host.host(), bench.cell.data(), 8));
    return s.Launch(bench.affine, {},
                    testing::ProbeAffineArgs{static_cast<uint64_t*>(bucket.workspace), 1, 1});
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, work));
  ASSERT_OK_AND_ASSIGN(const AuditReport report, manager->Audit({.rows = 1}));
  const auto cell = reinterpret_cast<uint64_t>(bench.cell.data());
  const ForeignPointer of_kernel = {
      .node = 1, .kernel = testing::kProbeAffine, .offset = 0, .address = cell};
  const ForeignPointer written = {
      .node = 3, .kernel = "copy", .offset = 0, .address = reinterpret_cast<uint64_t>(host.host())};
  const ForeignPointer read = {.node = 3, .kernel = "copy", .offset = 8, .address = cell};
  EXPECT_THAT(report.foreign, ElementsAre(of_kernel, written, read));
  EXPECT_EQ(report.num_kernels, 3);
  EXPECT_EQ(report.num_pointers, 6);
  EXPECT_EQ(report.num_untold, 0);
}

TEST_P(GraphPointers, AuditCountsNodesThatCannotBeTold) {
  REPRISE_DEVICE_OR_SKIP(device);
  if (GetParam() != runtime::DeviceKind::kHost) GTEST_SKIP() << "only host runs host functions";
  Bench bench(*device);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    REPRISE_RETURN_IF_ERROR(s.EnqueueHost([] {}));
    return bench.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, WithBuffers(bench), work));
  ASSERT_OK_AND_ASSIGN(const AuditReport report, manager->Audit({.rows = 1}));
  EXPECT_EQ(report.num_untold, 1);
  EXPECT_EQ(report.num_pointers, 2);
  EXPECT_THAT(report.foreign, IsEmpty());
}

TEST_P(GraphPointers, MovedBufferIsWhatLaterReplaysUse) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, WithBuffers(bench), bench.Work()));
  ASSERT_OK(manager->Replay(2));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer other, DeviceBuffer::Create(*device, bench.cell.bytes()));
  ASSERT_OK(bench.stream->Fill(other.data(), 0, other.bytes()));
  DeviceBuffer old = std::exchange(bench.cell, std::move(other));
  ASSERT_OK_AND_ASSIGN(const MoveReport moved, manager->MoveBuffer("cell", bench.cell.data()));
  if (tells()) {
    EXPECT_EQ(moved.num_graphs, 2);
    EXPECT_EQ(moved.num_nodes, 2);
    EXPECT_GT(moved.update_ns, 0u);
    EXPECT_EQ(moved.ns_per_node(), moved.update_ns / 2);
    EXPECT_EQ(moved.num_recaptured, 0);
    EXPECT_THAT(bench.enqueued, ElementsAre(4, 2));
    ASSERT_OK_AND_ASSIGN(const AuditReport report, manager->Audit({.rows = 1}));
    EXPECT_THAT(report.foreign, IsEmpty());
  } else {
    EXPECT_EQ(moved.num_graphs, 0);
    EXPECT_EQ(moved.num_recaptured, 2);
  }
  ASSERT_OK(manager->Replay(4));
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{6}, uint64_t{4}));
  uint64_t before = 0;
  ASSERT_OK(bench.stream->CopyToHost(&before, old.data(), sizeof(before)));
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_EQ(before, 2u);
  ASSERT_OK_AND_ASSIGN(const MoveReport back, manager->MoveBuffer("cell", old.data()));
  EXPECT_EQ(back.num_graphs + back.num_recaptured, 2);
}

TEST_P(GraphPointers, CopiesAndFillsMoveWithTheBuffer) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  GraphManagerOptions options = WithBuffers(bench);
  options.buckets = {2};
  ASSERT_OK_AND_ASSIGN(auto result, runtime::MappedBuffer::Create(*device, 8));
  options.buffers.push_back({"result", result.host(), 8});
  // cell = 1, cell = cell * 31 + 2, result = cell.
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    REPRISE_RETURN_IF_ERROR(s.Fill(bench.cell.data(), 1, 1));
    REPRISE_RETURN_IF_ERROR(bench.Work()(s, bucket));
    return s.CopyToHost(result.host(), bench.cell.data(), 8);
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, work));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer other, DeviceBuffer::Create(*device, bench.cell.bytes()));
  std::swap(bench.cell, other);
  ASSERT_OK_AND_ASSIGN(const MoveReport moved, manager->MoveBuffer("cell", bench.cell.data()));
  if (tells()) {
    EXPECT_EQ(moved.num_graphs, 1);
    EXPECT_EQ(moved.num_nodes, 3);
    EXPECT_EQ(moved.num_recaptured, 0);
    EXPECT_THAT(bench.enqueued, ElementsAre(2));
    ASSERT_OK_AND_ASSIGN(const AuditReport report, manager->Audit({.rows = 1}));
    EXPECT_THAT(report.foreign, IsEmpty());
  } else {
    EXPECT_EQ(moved.num_recaptured, 1);
  }
  bench.Clear();
  ASSERT_OK(bench.stream->Fill(other.data(), 0, other.bytes()));
  ASSERT_OK(manager->Replay(2));
  uint64_t before = 1;
  ASSERT_OK(bench.stream->CopyToHost(&before, other.data(), sizeof(before)));
  EXPECT_EQ(bench.Traces().second, 33u);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(result.host()), 33u);
  EXPECT_EQ(before, 0u);
}

TEST_P(GraphPointers, GraphThatCannotBeToldIsCapturedAgain) {
  REPRISE_DEVICE_OR_SKIP(device);
  if (GetParam() == runtime::DeviceKind::kCuda) GTEST_SKIP() << "only host runs host functions";
  Bench bench(*device);
  GraphManagerOptions options = WithBuffers(bench);
  options.buckets = {2};
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    if (tells()) REPRISE_RETURN_IF_ERROR(s.EnqueueHost([] {}));
    REPRISE_RETURN_IF_ERROR(s.Fill(bench.cell.data(), 1, 1));
    return bench.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, work));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer other, DeviceBuffer::Create(*device, bench.cell.bytes()));
  std::swap(bench.cell, other);
  ASSERT_OK_AND_ASSIGN(const MoveReport moved, manager->MoveBuffer("cell", bench.cell.data()));
  EXPECT_EQ(moved.num_graphs, 0);
  EXPECT_EQ(moved.num_recaptured, 1);
  bench.Clear();
  ASSERT_OK(manager->Replay(2));
  EXPECT_EQ(bench.Traces().second, 33u);
}

TEST_P(GraphPointers, BucketThatCannotBeCapturedAgainHasTheErrorAndOthersMove) {
  REPRISE_DEVICE_OR_SKIP(device);
  if (GetParam() == runtime::DeviceKind::kCuda) GTEST_SKIP() << "only host runs host functions";
  Bench bench(*device);
  bool broken = false;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    // On host only this makes a graph that has to be captured again.
    if (tells() && bucket.capacity == 2) REPRISE_RETURN_IF_ERROR(s.EnqueueHost([] {}));
    return broken && bucket.capacity == 2 ? absl::AbortedError("not today")
                                          : bench.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, WithBuffers(bench), work));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer other, DeviceBuffer::Create(*device, bench.cell.bytes()));
  std::swap(bench.cell, other);
  broken = true;
  EXPECT_THAT(manager->MoveBuffer("cell", bench.cell.data()),
              StatusIs(absl::StatusCode::kAborted, "bucket 'graph/2', capture: not today"));
  EXPECT_THAT(manager->Replay(1), StatusIs(absl::StatusCode::kAborted, "not today"));
  bench.Clear();
  ASSERT_OK(manager->Replay(4));
  EXPECT_EQ(bench.Traces().second, 4u);
}

TEST_P(GraphPointers, RefusesBuffersThatAreNotThereTwiceOrNull) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  GraphManagerOptions options = WithBuffers(bench);
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  EXPECT_THAT(
      manager->MoveBuffer("weights", bench.cell.data()),
      StatusIs(absl::StatusCode::kNotFound, "buffer: got \"weights\", allowed: counts, cell"));
  EXPECT_THAT(manager->MoveBuffer("cell", nullptr), StatusIs(kInvalid, "buffer 'cell'"));
  options.buffers.clear();
  ASSERT_OK_AND_ASSIGN(auto without, GraphManager::Create(*bench.stream, options, bench.Work()));
  EXPECT_THAT(
      without->MoveBuffer("cell", bench.cell.data()),
      StatusIs(absl::StatusCode::kNotFound, "buffer: got \"cell\", and no buffers are registered"));
  options = WithBuffers(bench);
  options.buffers[1].name = "counts";
  EXPECT_THAT(GraphManager::Create(*bench.stream, options, bench.Work()),
              StatusIs(kInvalid, "buffer 'counts' is there twice"));
  options.buffers[1] = {"nothing", nullptr, 8};
  EXPECT_THAT(GraphManager::Create(*bench.stream, options, bench.Work()),
              StatusIs(kInvalid, "buffer 'nothing' is null or empty"));
  ASSERT_OK_AND_ASSIGN(auto plain,
                       GraphManager::Create(*bench.stream, {.buckets = {2}}, bench.Work()));
  EXPECT_THAT(plain->Audit({.rows = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "no buffers are registered"));
}

}  // namespace
}  // namespace reprise::graphs
