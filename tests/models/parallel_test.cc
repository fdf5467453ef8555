// SPDX-License-Identifier: Apache-2.0
#include "models/weights/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace reprise::models {
namespace {

TEST(ForEachInParallel, RunsEachOnce) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}}) {
    std::vector<std::atomic<int>> runs(count);
    EXPECT_TRUE(ForEachInParallel(count, [&](size_t i) {
                  ++runs[i];
                  return absl::OkStatus();
                }).ok());
    for (const auto& of_one : runs) EXPECT_EQ(of_one, 1);
  }
}

// However late the first one is, and none of those far behind it begins.
TEST(ForEachInParallel, TellsTheFirstOfAllFailures) {
  std::atomic<size_t> last{0};
  const absl::Status status = ForEachInParallel(1'000'000, [&](size_t i) -> absl::Status {
    size_t seen = last;
    while (seen < i && !last.compare_exchange_weak(seen, i)) {
    }
    if (i < 5) return absl::OkStatus();
    if (i == 5) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return absl::InvalidArgumentError(std::to_string(i));
  });
  EXPECT_EQ(status, absl::InvalidArgumentError("5"));
  EXPECT_LT(last, 5 + 2 * kMaxLoadThreads);
}

}  // namespace
}  // namespace reprise::models
