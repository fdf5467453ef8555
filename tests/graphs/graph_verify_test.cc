// SPDX-License-Identifier: Apache-2.0
// A bucket's replay compared with its eager run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "graphs/graph_manager.h"
#include "tests/graphs/bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::StatusIs;

std::vector<MemoryRange> MemoryOf(const Bench& bench) {
  return {{.name = "counts", .data = bench.counts.data(), .bytes = bench.counts.bytes()},
          {.name = "cell", .data = bench.cell.data(), .bytes = bench.cell.bytes()}};
}

class GraphVerify : public ::testing::TestWithParam<runtime::DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(GraphVerify);

TEST_P(GraphVerify, EqualBitsAreSaidAndMemoryIsAsBefore) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  for (const CaptureMode mode :
       {CaptureMode::kEager, CaptureMode::kLazy, CaptureMode::kBackground}) {
    ASSERT_OK_AND_ASSIGN(
        auto manager,
        GraphManager::Create(*bench.stream,
                             {.buckets = {2, 4}, .capture = mode, .device = device.get()},
                             bench.Work()));
    bench.Clear();
    ASSERT_OK(manager->Replay(4));
    const auto before = bench.Traces();
    ASSERT_OK_AND_ASSIGN(const VerifyReport report, manager->Verify({.rows = 1}, MemoryOf(bench)));
    EXPECT_EQ(report.graph, "graph/2");
    EXPECT_EQ(report.bytes, bench.counts.bytes() + bench.cell.bytes());
    EXPECT_EQ(bench.Traces(), before);
    EXPECT_EQ(manager->Report()[0].num_replays, 0u);
    EXPECT_EQ(manager->Report()[0].num_eager_runs, 0u);
  }
}

TEST_P(GraphVerify, FirstDifferenceIsNamed) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  uint64_t add = 0x0100;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket&) {
    return s.Launch(bench.affine, {}, testing::ProbeAffineArgs{bench.cell.as<uint64_t>(), 1, add});
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, {.buckets = {2}}, work));
  bench.Clear();
  add = 0x0700;  // the graph has the other
  EXPECT_THAT(manager->Verify({.rows = 2}, MemoryOf(bench)),
              StatusIs(absl::StatusCode::kDataLoss,
                       "bucket 'graph/2', verify: 'cell' differs at byte 1 of 8: eager 0x07, "
                       "replayed 0x01"));
  EXPECT_EQ(bench.Traces().second, 0u);
  ASSERT_OK(manager->Recapture({.rows = 2}));
  EXPECT_OK(manager->Verify({.rows = 2}, MemoryOf(bench)));
}

TEST_P(GraphVerify, ErrorOfTheEagerRunIsTheAnswerAndMemoryIsAsBefore) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bool broken = false;
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) {
    const absl::Status status = bench.Work()(s, bucket);
    return broken ? absl::AbortedError("not today") : status;
  };
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*bench.stream, {.buckets = {2}}, work));
  bench.Clear();
  broken = true;
  EXPECT_THAT(manager->Verify({.rows = 1}, MemoryOf(bench)),
              StatusIs(absl::StatusCode::kAborted, "bucket 'graph/2', eager run: not today"));
  EXPECT_EQ(bench.Traces(), std::make_pair(uint64_t{0}, uint64_t{0}));
}

TEST_P(GraphVerify, RefusesNoMemoryAndSizesThatFitNoBucket) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*bench.stream, {.buckets = {2}}, bench.Work()));
  EXPECT_THAT(manager->Verify({.rows = 1}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no memory to compare"));
  EXPECT_THAT(manager->Verify({.rows = 3}, MemoryOf(bench)),
              StatusIs(absl::StatusCode::kOutOfRange, "size is 3"));
}

}  // namespace
}  // namespace reprise::graphs
