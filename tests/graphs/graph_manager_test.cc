// SPDX-License-Identifier: Apache-2.0
// Graphs captured and replayed by bucket, on every device, with kernels that are the embedder's own
// (the probe kernels).
#include "graphs/graph_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/host/host_device.h"
#include "runtime/memory/buffer.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ::reprise::testing::kInvalid;
constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;

class GraphManagerTest : public ::testing::TestWithParam<runtime::DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(GraphManagerTest);

TEST_P(GraphManagerTest, CapturesLargestFirstAfterOneWarmUpEach) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, {.buckets = {1, 8, 3}}, bench.Work()));
  EXPECT_THAT(bench.enqueued, ElementsAre(8, 8, 3, 3, 1, 1));
  EXPECT_EQ(bench.Traces().first, 12u);  // the warm-ups ran, the captures did not
}

TEST_P(GraphManagerTest, WithoutWarmUpNothingRunsUntilReplay) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*bench.stream, {.buckets = {2, 4}, .warm_up = false}, bench.Work()));
  EXPECT_THAT(bench.enqueued, ElementsAre(4, 2));
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{0}, uint64_t{0}));
}

// Captured on a stream of its own while another is held up; replayed in that one's order.
TEST_P(GraphManagerTest, EnqueuesOnAnotherStream) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(const runtime::Kernel wait, bench.module->Find(testing::kProbeWait));
  ASSERT_OK_AND_ASSIGN(auto flag, runtime::MappedBuffer::Create(*device, 4));
  ASSERT_OK(bench.stream->Launch(
      wait, {}, testing::ProbeWaitArgs{reinterpret_cast<const uint32_t*>(flag.device())}));
  ASSERT_OK_AND_ASSIGN(auto own, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*own, {.buckets = {2, 4}, .warm_up = false}, bench.Work()));
  manager->EnqueueOn(*bench.stream);
  ASSERT_OK(manager->Replay(2));
  ASSERT_OK(manager->RunEager(3));
  EXPECT_TRUE(absl::IsUnavailable(bench.stream->Query())) << "they wait in the other's order";
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(flag.host())).store(1);
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{6}, uint64_t{2 * 31 + 4}));
  ASSERT_OK(manager->Recapture({.rows = 4}));
  ASSERT_OK(manager->Replay(4));
  EXPECT_EQ(bench.Traces().first, 10u);
}

TEST_P(GraphManagerTest, ReplaysTheSmallestThatFitsAndReportsPadding) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*bench.stream, {.buckets = {1, 4, 8}, .name_prefix = "rows"},
                           bench.Work()));
  struct Case {
    int64_t size, capacity;
    const char* name;
  };
  for (const Case& c : {Case{1, 1, "rows/1"},
                        {2, 4, "rows/4"},
                        {4, 4, "rows/4"},
                        {5, 8, "rows/8"},
                        {8, 8, "rows/8"}}) {
    bench.Clear();
    ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->Replay(c.size));
    EXPECT_EQ(report.graph, c.name);
    EXPECT_EQ(report.capacity, c.capacity);
    EXPECT_EQ(report.padding, c.capacity - c.size);
    EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t(c.capacity), uint64_t(c.capacity))) << c.size;
  }
  EXPECT_EQ(bench.enqueued.size(), 6u);  // replay never calls the enqueue function
}

TEST_P(GraphManagerTest, SizeThatFitsNoBucketEnqueuesNothing) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*bench.stream, {.buckets = {4}, .warm_up = false}, bench.Work()));
  EXPECT_THAT(manager->Replay(5), StatusIs(kOutOfRange, "size is 5"));
  EXPECT_THAT(manager->RunEager(5), StatusIs(kOutOfRange, "size is 5"));
  EXPECT_THAT(manager->Replay(0), StatusIs(kInvalid, "size is 0"));
  EXPECT_EQ(bench.Traces().first, 0u);
}

TEST_P(GraphManagerTest, EagerEqualsReplay) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, {.buckets = {2, 5, 9}}, bench.Work()));
  const std::vector<int64_t> sizes = {3, 9, 1, 5, 6, 2};
  bench.Clear();
  for (const int64_t size : sizes) ASSERT_OK(manager->Replay(size));
  const auto replayed = bench.Traces();
  bench.Clear();
  for (const int64_t size : sizes) {
    ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->RunEager(size));
    EXPECT_EQ(report.padding, report.capacity - size);
  }
  EXPECT_EQ(bench.Traces(), replayed);
}

TEST_P(GraphManagerTest, TellsNodesTimeAndBytesPerBucket) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, {.buckets = {2, 4}}, bench.Work()));
  ASSERT_EQ(manager->captured().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const CapturedBucket& captured = manager->captured()[i];
    EXPECT_EQ(captured.bucket.index, static_cast<int>(i));
    EXPECT_EQ(captured.bucket.name, manager->table().buckets()[i].name);
    EXPECT_EQ(captured.num_kernel_nodes, 2);
    EXPECT_EQ(captured.num_other_nodes, 0);
    EXPECT_GT(captured.capture_ns, 0u);
    if (GetParam() == runtime::DeviceKind::kHost) {
      EXPECT_EQ(captured.device_bytes, 0u);
    }
  }
}

TEST_P(GraphManagerTest, ProgressIsToldAfterEveryBucket) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  std::vector<std::string> told;
  GraphManagerOptions options{.buckets = {1, 2, 4}};
  options.progress = [&](const CaptureProgress& progress) {
    told.push_back(std::to_string(progress.done) + "/" + std::to_string(progress.total) + " " +
                   std::string(progress.bucket));
  };
  ASSERT_OK(GraphManager::Create(*bench.stream, options, bench.Work()));
  EXPECT_THAT(told, ElementsAre("1/3 graph/4", "2/3 graph/2", "3/3 graph/1"));
}

TEST_P(GraphManagerTest, ErrorOfTheWorkNamesTheBucketAndLeavesTheStreamUsable) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  for (const bool warm_up : {true, false}) {
    // The second half of bucket 2 fails, after its first half was enqueued.
    const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
      const absl::Status status = bench.Work()(s, bucket);
      return bucket.capacity == 2 ? absl::DataLossError("out of luck") : status;
    };
    EXPECT_THAT(
        GraphManager::Create(*bench.stream, {.buckets = {1, 2, 4}, .warm_up = warm_up}, work),
        StatusIs(absl::StatusCode::kDataLoss, std::string("bucket 'graph/2', ") +
                                                  (warm_up ? "warm-up" : "capture") +
                                                  ": out of luck"));
    bench.Clear();
    ASSERT_OK_AND_ASSIGN(
        auto manager,
        GraphManager::Create(*bench.stream, {.buckets = {4}, .warm_up = false}, bench.Work()));
    ASSERT_OK(manager->Replay(3));
    EXPECT_EQ(bench.Traces().first, 4u);
  }
}

// As where a program's work goes to a stream of its own.
TEST_P(GraphManagerTest, WorkThatEnqueuesNothingOnItsStreamIsRefused) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const EnqueueFn work = [](runtime::Stream&, const Bucket&) { return absl::OkStatus(); };
  EXPECT_THAT(GraphManager::Create(*bench.stream, {.buckets = {4}, .warm_up = false}, work),
              StatusIs(kInvalid, "bucket 'graph/4', capture: the function enqueued nothing"));
  EXPECT_OK(bench.stream->Synchronize());
}

TEST_P(GraphManagerTest, ErrorOfALaunchNamesBucketAndKernel) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket&) {
    return s.Launch(bench.affine, {.block = 4096},
                    ProbeAffineArgs{bench.cell.as<uint64_t>(), 1, 1});
  };
  EXPECT_THAT(GraphManager::Create(*bench.stream, {.buckets = {7}, .warm_up = false}, work),
              StatusIs(kInvalid, "bucket 'graph/7', capture: kernel 'reprise_probe_affine'"));
  EXPECT_OK(bench.stream->Synchronize());
}

TEST_P(GraphManagerTest, EagerErrorNamesTheBucket) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bool broken = false;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    return broken ? absl::AbortedError("not today") : bench.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, {.buckets = {2}}, work));
  broken = true;
  EXPECT_THAT(manager->RunEager(1),
              StatusIs(absl::StatusCode::kAborted, "bucket 'graph/2', eager run: not today"));
  EXPECT_OK(manager->Replay(1));  // captured before
}

TEST_P(GraphManagerTest, CallersOwnCaptureIsRefusedAndSurvives) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK(bench.stream->Synchronize());
  ASSERT_OK(bench.stream->BeginCapture());
  EXPECT_THAT(GraphManager::Create(*bench.stream, {.buckets = {2}}, bench.Work()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "capturing"));
  EXPECT_THAT(bench.enqueued, IsEmpty());
  EXPECT_OK(bench.stream->EndCapture());
}

TEST_P(GraphManagerTest, RefusesNoWorkAndNoBuckets) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  EXPECT_THAT(GraphManager::Create(*bench.stream, {.buckets = {1}}, nullptr),
              StatusIs(kInvalid, "enqueue"));
  EXPECT_THAT(GraphManager::Create(*bench.stream, {}, bench.Work()),
              StatusIs(kInvalid, "no buckets"));
}

TEST_P(GraphManagerTest, TwoManagersShareAStream) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto small,
                       GraphManager::Create(*bench.stream, {.buckets = {1, 2}}, bench.Work()));
  ASSERT_OK_AND_ASSIGN(auto large,
                       GraphManager::Create(*bench.stream, {.buckets = {16, 32}}, bench.Work()));
  bench.Clear();
  ASSERT_OK(small->Replay(2));
  ASSERT_OK(large->Replay(20));
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{34}, uint64_t{2 * 31 + 32}));
}

TEST(GraphManagerOnHost, ReplaysAnEmbeddersHostFunctions) {
  ASSERT_OK_AND_ASSIGN(auto device, runtime::CreateHostDevice({}, {.max_us = 30}));
  ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream());
  std::vector<int64_t> ran;
  ASSERT_OK_AND_ASSIGN(
      auto manager, GraphManager::Create(*stream, {.buckets = {1, 2, 4}, .warm_up = false},
                                         [&](runtime::Stream& s, const Bucket& bucket) {
                                           return s.EnqueueHost(
                                               [&ran, n = bucket.capacity] { ran.push_back(n); });
                                         }));
  EXPECT_EQ(manager->captured()[0].num_other_nodes, 1);
  for (const int64_t size : {3, 1, 2}) ASSERT_OK(manager->Replay(size));
  ASSERT_OK(stream->Synchronize());
  EXPECT_THAT(ran, ElementsAre(4, 1, 2));
}

TEST(GraphManagerOnHost, FaultInWarmUpNamesTheBucket) {
  ASSERT_OK_AND_ASSIGN(auto device, runtime::Device::Create({}));
  Bench bench(*device);
  const runtime::Kernel fault = *bench.module->Find(testing::kProbeFault);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket&) {
    return s.Launch(fault, {}, testing::ProbeFaultArgs{});
  };
  EXPECT_THAT(GraphManager::Create(*bench.stream, {.buckets = {3}}, work),
              StatusIs(absl::StatusCode::kInternal,
                       "bucket 'graph/3', warm-up: kernel 'reprise_probe_fault'"));
}

}  // namespace
}  // namespace reprise::graphs
