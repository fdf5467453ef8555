// SPDX-License-Identifier: Apache-2.0
// When buckets are captured: lazily, in the background, again; and what the report says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graphs/graph_manager.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ::reprise::testing::kInvalid;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr BucketState kPending = BucketState::kPending;
constexpr BucketState kCaptured = BucketState::kCaptured;
constexpr BucketState kFailed = BucketState::kFailed;

std::vector<BucketState> States(GraphManager& manager) {
  std::vector<BucketState> states;
  for (const BucketReport& report : manager.Report()) states.push_back(report.state);
  return states;
}

class CaptureModes : public ::testing::TestWithParam<runtime::DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(CaptureModes);

GraphManagerOptions Lazy() {
  return {.buckets = {2, 4, 8}, .warm_up = false, .capture = CaptureMode::kLazy};
}

GraphManagerOptions Background(runtime::Device& device) {
  return {.buckets = {2, 4, 8},
          .warm_up = false,
          .capture = CaptureMode::kBackground,
          .device = &device};
}

TEST_P(CaptureModes, LazyCapturesABucketAtItsFirstUse) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, Lazy(), bench.Work()));
  EXPECT_THAT(bench.enqueued, IsEmpty());
  EXPECT_THAT(States(*manager), ElementsAre(kPending, kPending, kPending));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->Replay(3));
    EXPECT_TRUE(report.replayed);
    EXPECT_EQ(report.graph, "graph/4");
  }
  EXPECT_THAT(bench.enqueued, ElementsAre(4));
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{8}, uint64_t{4 * 31 + 4}));
  EXPECT_THAT(States(*manager), ElementsAre(kPending, kCaptured, kPending));
  EXPECT_EQ(manager->captured()[1].num_kernel_nodes, 2);
  EXPECT_EQ(manager->captured()[0].num_kernel_nodes, 0);
  EXPECT_EQ(manager->captured()[0].bucket.name, "graph/2");
}

TEST_P(CaptureModes, WarmUpRunsInCreateAndNeverOnABatch) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  for (GraphManagerOptions options : {Lazy(), Background(*device)}) {
    bench.enqueued.clear();
    bench.Clear();
    options.warm_up = true;
    ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
    EXPECT_EQ(bench.Traces().first, 14u);
    bench.Clear();
    ASSERT_OK(manager->Replay(1));
    EXPECT_EQ(bench.Traces().first, 2u);
    ASSERT_OK(manager->WaitForCaptures());
    ASSERT_GE(bench.enqueued.size(), 3u);
    bench.enqueued.resize(3);
    EXPECT_THAT(bench.enqueued, ElementsAre(8, 4, 2));
  }
}

TEST_P(CaptureModes, ErrorOfALazyCaptureStaysUntilRecapture) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bool broken = true;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    const absl::Status status = bench.Work()(s, bucket);
    return broken ? absl::DataLossError("out of luck") : status;
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, Lazy(), work));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(manager->Replay(2), StatusIs(kDataLoss, "bucket 'graph/2', capture: out of luck"));
  }
  EXPECT_THAT(bench.enqueued, ElementsAre(2));  // one try
  EXPECT_THAT(States(*manager), ElementsAre(kFailed, kPending, kPending));
  EXPECT_THAT(manager->Report()[0].error, StatusIs(kDataLoss, "out of luck"));
  EXPECT_THAT(manager->Recapture({.rows = 2}), StatusIs(kDataLoss, "out of luck"));
  broken = false;
  ASSERT_OK(manager->Recapture({.rows = 2}));
  ASSERT_OK(manager->Replay(2));
  EXPECT_EQ(bench.Traces().first, 2u);
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kPending, kPending));
}

TEST_P(CaptureModes, CallersOwnCaptureIsNoErrorOfTheBucket) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, Lazy(), bench.Work()));
  ASSERT_OK(bench.stream->BeginCapture());
  EXPECT_THAT(manager->Replay(2), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           "bucket 'graph/2', capture: Query: the stream is"));
  bench.stream->AbortCapture();
  EXPECT_THAT(States(*manager), ElementsAre(kPending, kPending, kPending));
  ASSERT_OK(manager->Replay(2));
  EXPECT_EQ(bench.Traces().first, 2u);
}

TEST_P(CaptureModes, RecaptureTakesWhatTheWorkIsNow) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  uint64_t add = 3;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket&) {
    return s.Launch(bench.affine, {}, testing::ProbeAffineArgs{bench.cell.as<uint64_t>(), 0, add});
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, {.buckets = {2}}, work));
  add = 5;
  ASSERT_OK(manager->Replay(1));
  EXPECT_EQ(bench.Traces().second, 3u);
  ASSERT_OK(manager->Replay(1));  // in flight while its successor is captured
  ASSERT_OK(manager->Recapture({.rows = 1}));
  EXPECT_EQ(bench.Traces().second, 3u);
  ASSERT_OK(manager->Replay(1));
  EXPECT_EQ(bench.Traces().second, 5u);
  EXPECT_EQ(manager->Report()[0].num_captures, 2u);
}

// The thread that captures is held inside the work of bucket 2, its capture begun.
TEST_P(CaptureModes, OthersReplayAndAllocateWhileABucketIsCaptured) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  std::latch inside(1);
  std::latch go_on(1);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    if (bucket.capacity == 2) {
      inside.count_down();
      go_on.wait();
    }
    return bench.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, Background(*device), work));
  inside.wait();
  EXPECT_OK(manager->Replay(8));
  EXPECT_OK(manager->Replay(3));
  EXPECT_OK(runtime::DeviceBuffer::Create(*device, 4096));
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{12}, uint64_t{8 * 31 + 4}));
  EXPECT_THAT(States(*manager), ElementsAre(kPending, kCaptured, kCaptured));
  go_on.count_down();
  ASSERT_OK(manager->WaitForCaptures());
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kCaptured, kCaptured));
  EXPECT_THAT(bench.enqueued, ElementsAre(8, 4, 2));
  bench.Clear();
  ASSERT_OK(manager->Replay(1));
  EXPECT_EQ(bench.Traces().first, 2u);
}

TEST_P(CaptureModes, UseOfAPendingBucketWaitsForIt) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  std::latch go_on(1);
  std::atomic<bool> opened{false};
  GraphManagerOptions options = Background(*device);
  options.on_capture_thread = [&] {
    go_on.wait();
    return absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    opened = true;
    go_on.count_down();
  });
  const auto report = manager->Replay(1);
  EXPECT_TRUE(opened);
  opener.join();
  ASSERT_OK(report);
  EXPECT_TRUE(report->replayed);
  EXPECT_EQ(report->capacity, 2);
  EXPECT_EQ(bench.Traces().first, 2u);
}

TEST_P(CaptureModes, PendingBucketRunsEagerlyWhereAskedForAndComesNext) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  std::latch inside(1);
  std::latch go_on(1);
  GraphManagerOptions options = Background(*device);
  options.while_pending = WhilePending::kRunEager;
  options.on_capture_thread = [&] {  // holds the capture of bucket 8
    inside.count_down();
    go_on.wait();
    return absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  inside.wait();
  ASSERT_OK_AND_ASSIGN(ReplayReport report, manager->Replay(3));
  EXPECT_FALSE(report.replayed);
  EXPECT_EQ(report.graph, "graph/4");
  EXPECT_EQ(bench.Traces().first, 4u);
  go_on.count_down();
  ASSERT_OK(manager->WaitForCaptures());
  EXPECT_THAT(bench.enqueued, ElementsAre(4, 8, 4, 2));
  ASSERT_OK_AND_ASSIGN(report, manager->Replay(3));
  EXPECT_TRUE(report.replayed);
  EXPECT_EQ(manager->Report()[1].num_replays, 1u);
  EXPECT_EQ(manager->Report()[1].num_eager_runs, 1u);
}

TEST_P(CaptureModes, PendingBucketsBatchGoesToALargerOneWhereAskedFor) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  std::latch inside(1);
  std::latch go_on(1);
  GraphManagerOptions options = Background(*device);
  options.while_pending = WhilePending::kLarger;
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*bench.stream, options, [&](runtime::Stream& s, const Bucket& bucket) {
        if (bucket.capacity == 4) {
          inside.count_down();
          go_on.wait();
        }
        return bench.Work()(s, bucket);
      }));
  inside.wait();
  const auto larger = manager->Replay(1);
  go_on.count_down();
  ASSERT_OK(larger);
  EXPECT_EQ(larger->graph, "graph/8");
  EXPECT_EQ(larger->padding, 7);
  EXPECT_TRUE(larger->replayed);
  EXPECT_EQ(bench.Traces().first, 8u);
  ASSERT_OK(manager->WaitForCaptures());
  ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->Replay(1));
  EXPECT_EQ(report.graph, "graph/2");
}

TEST_P(CaptureModes, ErrorInTheBackgroundIsThatOfTheBucketAlone) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bool broken = true;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    const absl::Status status = bench.Work()(s, bucket);
    return broken && bucket.capacity == 4 ? absl::DataLossError("out of luck") : status;
  };
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, Background(*device), work));
  EXPECT_THAT(manager->WaitForCaptures(), StatusIs(kDataLoss, "bucket 'graph/4', capture: out of"));
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kFailed, kCaptured));
  EXPECT_THAT(manager->Replay(4), StatusIs(kDataLoss, "bucket 'graph/4', capture: out of luck"));
  EXPECT_OK(manager->Replay(1));
  EXPECT_OK(manager->Replay(8));
  EXPECT_EQ(bench.Traces().first, 10u);
  broken = false;
  ASSERT_OK(manager->Recapture({.rows = 4}));
  EXPECT_OK(manager->Replay(4));
  EXPECT_OK(manager->WaitForCaptures());
}

TEST_P(CaptureModes, ErrorOfTheThreadsStartIsThatOfEveryCapture) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  GraphManagerOptions options = Background(*device);
  options.on_capture_thread = [] { return absl::AbortedError("no context"); };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  EXPECT_THAT(manager->Replay(4),
              StatusIs(absl::StatusCode::kAborted, "bucket 'graph/4', capture thread: no context"));
  EXPECT_THAT(manager->WaitForCaptures(), StatusIs(absl::StatusCode::kAborted, "no context"));
  EXPECT_THAT(States(*manager), ElementsAre(kFailed, kFailed, kFailed));
  EXPECT_THAT(bench.enqueued, IsEmpty());
}

TEST_P(CaptureModes, DestroyedManagerEndsTheCaptureThatIsUnderWayAndDropsTheRest) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  std::latch inside(1), leaving(1);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    if (bucket.capacity == 8) {  // the first; a latch counts no further than to zero
      inside.count_down();
      leaving.wait();
      // Until the manager's destruction has begun.
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    return bench.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, Background(*device), work));
  inside.wait();
  leaving.count_down();
  manager = nullptr;
  EXPECT_THAT(bench.enqueued, ElementsAre(8));
  EXPECT_OK(bench.stream->Synchronize());
}

TEST_P(CaptureModes, ProgressOfTheBackgroundIsToldByTheUsersThread) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  GraphManagerOptions options = Background(*device);
  std::vector<std::string> told;
  options.progress = [&, user = std::this_thread::get_id()](const CaptureProgress& progress) {
    EXPECT_EQ(std::this_thread::get_id(), user);
    told.push_back(std::to_string(progress.done) + "/" + std::to_string(progress.total) + " " +
                   std::string(progress.bucket));
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  ASSERT_OK(manager->WaitForCaptures());
  EXPECT_THAT(told, ElementsAre("1/3 graph/8", "2/3 graph/4", "3/3 graph/2"));
}

TEST_P(CaptureModes, ReportCountsRunsAndCells) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  GraphManagerOptions options{.shapes = {{2, 4}, {8, 4}}};
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  ASSERT_OK_AND_ASSIGN(const ReplayReport replay, manager->Replay({.rows = 3, .tokens = 2}));
  EXPECT_EQ(replay.graph, "graph/8x4");
  EXPECT_EQ(replay.padding, 26);
  EXPECT_EQ(replay.tokens, 4);
  ASSERT_OK(manager->Replay({.rows = 8, .tokens = 4}));
  ASSERT_OK(manager->RunEager({.rows = 1, .tokens = 1}));
  const std::vector<BucketReport> reports = manager->Report();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].bucket.name, "graph/2x4");
  EXPECT_EQ(reports[0].num_replays, 0u);
  EXPECT_EQ(reports[0].num_eager_runs, 1u);
  EXPECT_EQ(reports[0].used_cells, 1u);
  EXPECT_EQ(reports[0].padding_cells, 7u);
  EXPECT_EQ(reports[1].num_replays, 2u);
  EXPECT_EQ(reports[1].used_cells, 38u);
  EXPECT_EQ(reports[1].padding_cells, 26u);
  EXPECT_EQ(reports[1].num_captures, 1u);
  EXPECT_EQ(reports[1].num_kernel_nodes, 2);
  EXPECT_GT(reports[1].capture_ns, 0u);
  EXPECT_EQ(reports[1].graph_bytes, manager->captured()[1].device_bytes);
}

TEST_P(CaptureModes, PolicyPicksAnyBucketThatFits) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  int pick = 2;
  GraphManagerOptions options{.buckets = {2, 4, 8}};
  options.policy = [&](std::span<const Bucket> buckets, const BatchShape& batch) {
    EXPECT_EQ(buckets.size(), 3u);
    EXPECT_EQ(batch.rows, 3);
    return pick;
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, bench.Work()));
  bench.Clear();
  ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->Replay(3));
  EXPECT_EQ(report.graph, "graph/8");
  EXPECT_EQ(report.padding, 5);
  pick = 0;
  EXPECT_THAT(manager->Replay(3),
              StatusIs(kInvalid, "policy: bucket 'graph/2' is too small for 3"));
  pick = 3;
  EXPECT_THAT(manager->Replay(3),
              StatusIs(kInvalid, "policy: bucket index is 3; allowed: less than 3"));
  pick = -1;
  EXPECT_THAT(manager->Replay(3), StatusIs(absl::StatusCode::kOutOfRange, "size is 3"));
  EXPECT_EQ(bench.Traces().first, 8u);
}

TEST_P(CaptureModes, RefusesOptionsThatExcludeEachOtherOrLackTheDevice) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto create = [&](const GraphManagerOptions& options) {
    return GraphManager::Create(*bench.stream, options, bench.Work()).status();
  };
  EXPECT_THAT(create({.buckets = {1}, .shapes = {{1, 1}}}),
              StatusIs(kInvalid, "buckets and shapes are both given"));
  EXPECT_THAT(create({.buckets = {1}, .capture = CaptureMode::kBackground}),
              StatusIs(kInvalid, "device is null"));
  EXPECT_THAT(create({.buckets = {1}, .workspace_bytes = [](const Bucket&) { return size_t{1}; }}),
              StatusIs(kInvalid, "device is null"));
  EXPECT_THAT(bench.enqueued, IsEmpty());
}

TEST_P(CaptureModes, BucketsShareOneWorkspaceOfTheLargest) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  GraphManagerOptions options{.buckets = {2, 4}, .warm_up = false, .device = device.get()};
  options.workspace_bytes = [](const Bucket& bucket) {
    return static_cast<size_t>(bucket.capacity) * 1000;
  };
  // The workspace's first word becomes the capacity, by way of two launches.
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    auto* word = static_cast<uint64_t*>(bucket.workspace);
    EXPECT_EQ(bucket.workspace_bytes, static_cast<size_t>(bucket.capacity) * 1000);
    return s.Launch(bench.affine, {},
                    testing::ProbeAffineArgs{word, 0, static_cast<uint64_t>(bucket.capacity)});
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, options, work));
  EXPECT_EQ(manager->workspace_bytes(), 4000u);
  void* const data = manager->table().buckets()[0].workspace;
  EXPECT_EQ(manager->table().buckets()[1].workspace, data);
  EXPECT_EQ(manager->Report()[0].bucket.workspace_bytes, 2000u);
  for (const int64_t size : {4, 2}) {
    ASSERT_OK(manager->Replay(size));
    uint64_t word = 0;
    ASSERT_OK(bench.stream->CopyToHost(&word, data, sizeof(word)));
    ASSERT_OK(bench.stream->Synchronize());
    EXPECT_EQ(word, static_cast<uint64_t>(size));
  }
}

}  // namespace
}  // namespace reprise::graphs
