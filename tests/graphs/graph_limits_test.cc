// SPDX-License-Identifier: Apache-2.0
// Graphs that make room for others, and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "graphs/graph_manager.h"
#include "runtime/memory/buffer.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/fake_hip/fake_hip_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::testing::ElementsAre;

constexpr BucketState kPending = BucketState::kPending;
constexpr BucketState kCaptured = BucketState::kCaptured;
constexpr BucketState kEvicted = BucketState::kEvicted;

std::vector<BucketState> States(GraphManager& manager) {
  std::vector<BucketState> states;
  for (const BucketReport& report : manager.Report()) states.push_back(report.state);
  return states;
}

class GraphLimits : public ::testing::TestWithParam<runtime::DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(GraphLimits);

TEST_P(GraphLimits, LeastRecentlyUsedGraphGoesAndIsCapturedAgainOnUse) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(
          *bench.stream,
          {.buckets = {1, 2, 4}, .warm_up = false, .capture = CaptureMode::kLazy, .max_graphs = 2},
          bench.Work()));
  for (const int64_t size : {2, 4, 2}) ASSERT_OK(manager->Replay(size));
  EXPECT_THAT(States(*manager), ElementsAre(kPending, kCaptured, kCaptured));
  ASSERT_OK(manager->Replay(1));
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kCaptured, kEvicted));
  EXPECT_THAT(bench.enqueued, ElementsAre(2, 4, 1));
  bench.Clear();
  ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->Replay(3));
  EXPECT_TRUE(report.replayed);
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{4}, uint64_t{4}));
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kEvicted, kCaptured));
  EXPECT_THAT(bench.enqueued, ElementsAre(2, 4, 1, 4));
  const std::vector<BucketReport> reports = manager->Report();
  EXPECT_EQ(reports[2].num_captures, 2u);
  EXPECT_EQ(reports[2].num_evictions, 1u);
  EXPECT_EQ(reports[2].num_replays, 2u);
  EXPECT_EQ(reports[1].graph_bytes, 0u);
}

TEST_P(GraphLimits, GraphInFlightIsNeverDestroyed) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto flag, runtime::MappedBuffer::Create(*device, 4));
  const runtime::Kernel wait = *bench.module->Find(testing::kProbeWait);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    const absl::Status status = s.Launch(
        wait, {}, testing::ProbeWaitArgs{reinterpret_cast<const uint32_t*>(flag.device())});
    return status.ok() ? bench.Work()(s, bucket) : status;
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream,
                                                          {.buckets = {1, 2},
                                                           .warm_up = false,
                                                           .capture = CaptureMode::kBackground,
                                                           .max_graphs = 1,
                                                           .device = device.get()},
                                                          work));
  ASSERT_OK(manager->WaitForCaptures());
  EXPECT_THAT(States(*manager), ElementsAre(kEvicted, kCaptured));
  ASSERT_OK(manager->Replay(2));  // runs until the flag is set
  std::atomic<bool> was_set{false};
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    was_set = true;
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(flag.host())).store(1);
  });
  const auto other = manager->Replay(1);  // takes the other's place
  EXPECT_TRUE(was_set);
  setter.join();
  ASSERT_OK(other);
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{3}, uint64_t{2 * 31 + 1}));
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kEvicted));
}

TEST_P(GraphLimits, CapturesAheadOfUseStopAtTheLimit) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(
      auto manager, GraphManager::Create(
                        *bench.stream, {.buckets = {1, 2, 4, 8}, .warm_up = false, .max_graphs = 2},
                        bench.Work()));
  EXPECT_THAT(States(*manager), ElementsAre(kPending, kEvicted, kCaptured, kCaptured));
  EXPECT_THAT(bench.enqueued, ElementsAre(8, 4, 2));
  for (const int64_t size : {8, 4, 2, 1}) ASSERT_OK(manager->Replay(size));
  EXPECT_EQ(bench.Traces().first, 15u);
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kCaptured, kEvicted, kEvicted));
}

TEST_P(GraphLimits, BackgroundKeepsWhatIsUsedWithinTheLimit) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  for (const WhilePending while_pending :
       {WhilePending::kWait, WhilePending::kLarger, WhilePending::kRunEager}) {
    ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream,
                                                            {.buckets = {1, 2, 4, 8},
                                                             .warm_up = false,
                                                             .capture = CaptureMode::kBackground,
                                                             .while_pending = while_pending,
                                                             .max_graphs = 1,
                                                             .device = device.get()},
                                                            bench.Work()));
    for (int round = 0; round < 3; ++round) {
      for (const int64_t size : {1, 2, 8, 4}) {
        bench.Clear();
        ASSERT_OK_AND_ASSIGN(const ReplayReport report, manager->Replay(size));
        EXPECT_EQ(bench.Traces().first, static_cast<uint64_t>(report.capacity));
        ASSERT_OK(manager->WaitForCaptures());
        int captured = 0;
        for (const BucketState state : States(*manager)) captured += state == kCaptured ? 1 : 0;
        EXPECT_EQ(captured, 1);
      }
    }
  }
}

TEST(GraphLimitsOnHip, BytesAreThoseThatGraphsHold) {
  ASSERT_OK_AND_ASSIGN(auto device, testing::MakeFakeHipDevice());
  const size_t each = testing::FakeHip().machine().bytes_per_graph;
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(const size_t free_before, device->FreeBytes());
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream,
                                                          {.buckets = {1, 2, 4, 8},
                                                           .capture = CaptureMode::kLazy,
                                                           .max_graph_bytes = 2 * each},
                                                          bench.Work()));
  for (const int64_t size : {1, 2, 4, 8, 4, 1}) {
    ASSERT_OK(manager->Replay(size));
    size_t held = 0;
    for (const BucketReport& report : manager->Report()) held += report.graph_bytes;
    EXPECT_LE(held, 2 * each);
    ASSERT_OK_AND_ASSIGN(const size_t free_now, device->FreeBytes());
    EXPECT_EQ(free_before - free_now, held);
  }
  EXPECT_THAT(States(*manager), ElementsAre(kCaptured, kEvicted, kCaptured, kEvicted));
}

TEST(GraphLimitsOnHip, GraphLargerThanTheLimitStaysWhileItIsUsed) {
  ASSERT_OK_AND_ASSIGN(auto device, testing::MakeFakeHipDevice());
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*bench.stream,
                           {.buckets = {1, 2}, .capture = CaptureMode::kLazy, .max_graph_bytes = 1},
                           bench.Work()));
  for (const int64_t size : {1, 1, 2}) ASSERT_OK(manager->Replay(size));
  EXPECT_THAT(States(*manager), ElementsAre(kEvicted, kCaptured));
  EXPECT_EQ(manager->Report()[0].num_captures, 1u);
}

}  // namespace
}  // namespace reprise::graphs
