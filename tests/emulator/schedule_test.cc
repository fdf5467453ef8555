// SPDX-License-Identifier: Apache-2.0
// Schedules follow from the seed, and are quick enough to run whole kernels.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/probe_kernels.h"
#include "tests/emulator/run_block.h"

namespace reprise::testing {
namespace {

constexpr unsigned kThreads = 256;

// The orders of the next two blocks.
std::vector<uint32_t> NextOrders() {
  std::vector<uint32_t> orders(2 * 2 * kThreads);
  for (unsigned block = 0; block < 2; ++block) {
    uint32_t count = 0;
    OrderArgs args{.count = &count, .order = orders.data() + block * 2 * kThreads};
    EXPECT_EQ(ErrorOf(&RecordOrder, &args, {.threads = kThreads, .warp_size = 32}), "");
    EXPECT_EQ(count, 2 * kThreads);
  }
  return orders;
}

TEST(Schedule, FollowsFromTheSeed) {
  emulator::SetScheduleSeed(5);
  const std::vector<uint32_t> orders = NextOrders();
  emulator::SetScheduleSeed(5);
  EXPECT_EQ(NextOrders(), orders);
  emulator::SetScheduleSeed(6);
  EXPECT_NE(NextOrders(), orders);
}

TEST(Schedule, IsAnotherOneAfterEveryBarrierAndInEveryBlock) {
  emulator::SetScheduleSeed(7);
  const std::vector<uint32_t> orders = NextOrders();
  std::vector<uint32_t> all_threads(kThreads);
  std::iota(all_threads.begin(), all_threads.end(), 0u);
  std::vector<std::vector<uint32_t>> parts;
  for (unsigned part = 0; part < 4; ++part) {
    const auto begin = orders.begin() + part * kThreads;
    parts.emplace_back(begin, begin + kThreads);
    EXPECT_THAT(parts.back(), ::testing::UnorderedElementsAreArray(all_threads));
    for (unsigned earlier = 0; earlier < part; ++earlier) EXPECT_NE(parts[earlier], parts[part]);
  }
}

// Nanoseconds of one thread's one round, the best of a few runs. Records it with the test's result.
double MeasureNs(const char* name, void (*body)(void*), int rounds, unsigned threads) {
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(
        ErrorOf(body, &rounds, {.threads = threads, .warp_size = 32, .shared_bytes = threads * 32}),
        "");
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / rounds / threads);
  }
  ::testing::Test::RecordProperty(name, std::to_string(best));
  return best;
}

// Ten times and more what an idle machine takes, since other tests run beside this one.
TEST(Schedule, CostsTensOfNanosecondsASwitch) {
  const double slack = emulator::kChecksAccesses ? 1.0 : 50.0;
  EXPECT_LT(MeasureNs("ns_block_barrier", &MeetOften, 1000, 256), 500 * slack);
  EXPECT_LT(MeasureNs("ns_block_barrier_512", &MeetOften, 500, 512), 500 * slack);
  EXPECT_LT(MeasureNs("ns_warp_barrier", &MeetInWarpsOften, 1000, 256), 500 * slack);
  EXPECT_LT(MeasureNs("ns_shared_barrier", &MeetOnABarrierOften, 100, 128), 10000 * slack);
  EXPECT_LT(MeasureNs("ns_8_reads", &AccessOften, 1000, 256), 3000 * slack);
  EXPECT_LT(MeasureNs("ns_8_global_reads", &AccessGlobalOften, 1000, 256), 3000 * slack);
}

}  // namespace
}  // namespace reprise::testing
