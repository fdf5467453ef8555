// SPDX-License-Identifier: Apache-2.0
#include "kernels/fill/fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/testing/cases/fill_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::FillCase;

class FillTest : public KernelTest {
 protected:
  std::vector<std::byte> RandomBytes(int64_t count, uint64_t seed, float stddev) {
    GuardedMemory memory(device(), stream());
    void* out = memory.Poisoned(static_cast<size_t>(count) * SizeOf(dtype()));
    EXPECT_OK(RandomFill(stream(), kernels(),
                         {.out = out, .count = count, .seed = seed, .stddev = stddev}));
    memory.Check();
    return memory.ReadBytes(out);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(FillTest);

constexpr uint64_t kSeed = 0x123456789abcdefu;

TEST_P(FillTest, RandomFillMatchesTheOracle) {
  for (const FillCase& c : kernels::kFillCases) {
    SCOPED_TRACE(c.name);
    Expected expected;
    for (uint32_t i = 0; i < c.count; ++i) {
      double sum = -2.0;
      for (const uint32_t word :
           OraclePhilox({i, 0, 0, 0}, {static_cast<uint32_t>(kSeed), kSeed >> 32}))
        sum += OracleUniform(word);
      const double scale = std::sqrt(3.0) * c.stddev;
      // Four sums of numbers below 2, and two products.
      expected.Add(scale * sum, scale * 16 * 0x1p-24);
    }
    ExpectNear(Decode(dtype(), RandomBytes(c.count, kSeed, c.stddev)), expected, dtype());
  }
}

TEST_P(FillTest, RandomFillHasTheMeanAndDeviationItPromises) {
  constexpr int64_t kCount = 200000;
  constexpr double kStddev = 0.25;
  const std::vector<double> x = Decode(dtype(), RandomBytes(kCount, 7, kStddev));
  double sum = 0.0, squares = 0.0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
  }
  // Five standard errors. The fourth moment of a sum of four uniforms is 2.7 variances squared: 1.3
  // for the variance's own error.
  const double n = kCount;
  EXPECT_NEAR(sum / n, 0.0, 5 * kStddev / std::sqrt(n));
  EXPECT_NEAR(
      squares / n, kStddev * kStddev,
      5 * 1.31 * kStddev * kStddev / std::sqrt(n) + kStddev * kStddev * HalfUlp(dtype(), 1.0));
}

TEST_P(FillTest, RandomFillIsAFunctionOfSeedAndIndex) {
  const std::vector<std::byte> first = RandomBytes(5000, kSeed, 1.0f);
  EXPECT_EQ(RandomBytes(5000, kSeed, 1.0f), first);
  EXPECT_NE(RandomBytes(5000, kSeed + 1, 1.0f), first);
  const std::vector<std::byte> longer = RandomBytes(20000, kSeed, 1.0f);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), longer.begin()));
}

TEST_P(FillTest, NanFillWritesNothingButNan) {
  for (const FillCase& c : kernels::kFillCases) {
    SCOPED_TRACE(c.name);
    GuardedMemory memory(device(), stream());
    void* out =
        memory.VariableTensor(dtype(), std::vector<double>(static_cast<size_t>(c.count), 1.0));
    ASSERT_OK(NanFill(stream(), kernels(), {.out = out, .count = c.count}));
    memory.Check();
    size_t num_numbers = 0;
    for (const double x : memory.ReadTensor(dtype(), out)) num_numbers += !std::isnan(x);
    EXPECT_EQ(num_numbers, 0u);
  }
}

TEST_P(FillTest, RefusesToFillNothing) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(RandomFill(stream(), kernels(), {}), StatusIs(kInvalid, "count is 0"));
  EXPECT_THAT(NanFill(stream(), kernels(), {}), StatusIs(kInvalid, "count is 0"));
}

}  // namespace
}  // namespace reprise::testing
