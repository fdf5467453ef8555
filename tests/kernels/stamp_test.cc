// SPDX-License-Identifier: Apache-2.0
#include "kernels/stamp/stamp.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/fill/fill.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using StampTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE(StampTest);

uint64_t HostNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

TEST_P(StampTest, WritesOneWordAndLaterStampsAreNoSmaller) {
  constexpr size_t kStamps = 64;
  GuardedMemory memory(device(), stream());
  auto* words = memory.Poisoned<uint64_t>(kStamps);
  for (size_t i = 0; i + 1 < kStamps; ++i)
    ASSERT_OK(Stamp(stream(), kernels(), {.out = words + i}));
  memory.Check();
  const std::vector<uint64_t> got = memory.Read(words);
  for (size_t i = 1; i + 1 < kStamps; ++i) EXPECT_LE(got[i - 1], got[i]) << i;
  EXPECT_LT(got[0], UINT64_MAX);
  EXPECT_EQ(got[kStamps - 1], UINT64_MAX);  // nobody's
}

TEST_P(StampTest, CountsNanosecondsOfTheWorkBetween) {
  REPRISE_SKIP_IF_EMULATED();
  constexpr int64_t kCount = 1 << 20;
  GuardedMemory memory(device(), stream());
  auto* words = memory.Poisoned<uint64_t>(2);
  void* filled = memory.Poisoned(kCount * sizeof(float));
  ASSERT_OK(RandomFill(stream(), kernels(),
                       {.out = filled, .dtype = kernels().dtype, .count = kCount, .seed = 1}));
  ASSERT_OK(stream().Synchronize());
  const uint64_t begin = HostNs();
  ASSERT_OK(Stamp(stream(), kernels(), {.out = words}));
  for (int i = 0; i < 8; ++i)
    ASSERT_OK(RandomFill(stream(), kernels(),
                         {.out = filled, .dtype = kernels().dtype, .count = kCount, .seed = 1}));
  ASSERT_OK(Stamp(stream(), kernels(), {.out = words + 1}));
  ASSERT_OK(stream().Synchronize());
  const uint64_t host_ns = HostNs() - begin;
  memory.Check();
  const std::vector<uint64_t> got = memory.Read(words);
  ASSERT_LT(got[0], got[1]);
  // Eight million random numbers take longer than this on any device, and the host saw all of it;
  // the two clocks may differ by a little.
  EXPECT_GT(got[1] - got[0], 8000u);
  EXPECT_LT(static_cast<double>(got[1] - got[0]), 1.01 * static_cast<double>(host_ns) + 5000);
}

TEST_P(StampTest, RefusesNoMemory) {
  EXPECT_THAT(Stamp(stream(), kernels(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "out is null"));
}

}  // namespace
}  // namespace reprise::testing
