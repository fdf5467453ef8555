// SPDX-License-Identifier: Apache-2.0
#include "kernels/round_rows/round_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/testing/cases/round_rows_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::RoundRowsArgs;
using kernels::RoundRowsCase;
using runtime::DType;

class RoundRowsTest : public KernelTest {
 protected:
  struct Rounded {
    std::vector<double> elements;
    std::vector<float> scales;
  };
  // x: of max_rows rows, all of which are there.
  Rounded Run(const std::vector<double>& x, int32_t columns, uint32_t rows, uint32_t max_rows) {
    GuardedMemory memory(device(), stream());
    RoundRowsArgs args;
    args.x = memory.ConstantTensor(dtype(), x);
    args.out = memory.Poisoned(x.size());
    args.scales = memory.Poisoned<float>(max_rows);
    args.num_rows = memory.Constant(std::vector<uint32_t>{rows});
    args.columns = columns;
    EXPECT_OK(RoundRows(stream(), kernels(), args, max_rows));
    memory.Check();
    return {memory.ReadTensor(DType::kE4m3, args.out), memory.Read(args.scales)};
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(RoundRowsTest);

TEST_P(RoundRowsTest, RoundsRowsByTheirLargestElementsAndTouchesNothingElse) {
  for (const RoundRowsCase& c : kernels::kRoundRowsCases) {
    SCOPED_TRACE(c.name);
    const size_t n = static_cast<size_t>(c.columns);
    Random random(n + c.rows);
    // From rows of small numbers to rows of large ones, with elements that become subnormal, or 0.
    std::vector<double> x = random.Tensor(dtype(), c.max_rows * n, 3.0);
    for (size_t i = 0; i < x.size(); ++i) {
      const double of_row = std::ldexp(1.0, static_cast<int>(i / n % 5) * 4 - 8);
      x[i] = RoundTo(dtype(), x[i] * of_row * (i % 7 == 0 ? 0x1p-12 : 1.0));
    }
    const Rounded got = Run(x, c.columns, c.rows, c.max_rows);
    for (size_t row = 0; row < c.max_rows; ++row) {
      const auto begin = x.begin() + static_cast<ptrdiff_t>(row * n);
      float largest = 0.0f;
      for (size_t i = 0; i < n; ++i)
        largest = std::max(largest, static_cast<float>(std::fabs(x[row * n + i])));
      const float scale = largest * (1.0f / 448.0f);
      if (row >= c.rows) {
        ASSERT_TRUE(std::isnan(got.scales[row])) << row;
        ASSERT_TRUE(std::isnan(got.elements[row * n])) << row;
        continue;
      }
      ASSERT_EQ(got.scales[row], scale) << row;
      for (size_t i = 0; i < n; ++i) {
        const float inverse = 1.0f / scale;
        ASSERT_EQ(got.elements[row * n + i],
                  RoundTo(DType::kE4m3,
                          static_cast<double>(static_cast<float>(begin[static_cast<ptrdiff_t>(i)]) *
                                              inverse)))
            << row << ", " << i;
      }
      // The largest one keeps nearly all of its bits, whatever the row.
      const auto most =
          std::max_element(got.elements.begin() + static_cast<ptrdiff_t>(row * n),
                           got.elements.begin() + static_cast<ptrdiff_t>((row + 1) * n),
                           [](double a, double b) { return std::fabs(a) < std::fabs(b); });
      ASSERT_EQ(std::fabs(*most), 448.0) << row;
    }
  }
}

TEST_P(RoundRowsTest, ZerosStayZerosAndNumbersThatAreNoneStayNone) {
  const double tiny = dtype() == DType::kF16 ? 0x1p-24 : 0x1p-120;
  const Rounded got = Run({0.0, -0.0, 0.0, 0.0,       //
                           NAN, 2.0, -1.0, 0.5,       //
                           INFINITY, 2.0, -1.0, 0.5,  //
                           tiny, -tiny, 0.0, 0.0},
                          4, 4, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got.elements[i], 0.0);
  EXPECT_GT(got.scales[0], 0.0f);
  EXPECT_TRUE(std::isnan(got.elements[4]));
  EXPECT_EQ(got.elements[5], 448.0);
  EXPECT_EQ(got.elements[6], -224.0);
  EXPECT_EQ(got.scales[1], 2.0f * (1.0f / 448.0f));
  EXPECT_TRUE(std::isnan(got.elements[8]));
  EXPECT_EQ(got.elements[9], 0.0);
  EXPECT_EQ(got.scales[2], INFINITY);
  // Below the least scale a row is as good as zero, and nothing becomes NaN.
  for (size_t i = 12; i < 16; ++i) EXPECT_FALSE(std::isnan(got.elements[i]));
  EXPECT_GE(got.scales[3], kernels::kLeastRowScale);
}

TEST_P(RoundRowsTest, RefusesImpossibleShapes) {
  RoundRowsArgs args;
  args.columns = 8;
  EXPECT_THAT(RoundRows(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_rows is 0"));
  args.columns = 0;
  EXPECT_THAT(RoundRows(stream(), kernels(), args, 1), StatusIs(kInvalid, "columns is 0"));
}

}  // namespace
}  // namespace reprise::testing
