// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_columns/gather_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/testing/cases/gather_columns_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::GatherColumnsArgs;
using kernels::GatherColumnsCase;

using GatherColumnsTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(GatherColumnsTest);

TEST_P(GatherColumnsTest, PutsEveryColumnInItsPlaceAndTouchesNothingElse) {
  for (const GatherColumnsCase& c : kernels::kGatherColumnsCases) {
    SCOPED_TRACE(c.name);
    const size_t n = static_cast<size_t>(c.columns);
    Random random(n + c.rows);
    // Rows behind the live ones are there, and must not come through.
    const std::vector<double> x = random.Tensor(dtype(), c.max_rows * n, 3.0);
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(n)));
    GuardedMemory memory(device(), stream());
    GatherColumnsArgs args;
    args.x = memory.ConstantTensor(dtype(), x);
    args.out = memory.Poisoned(c.max_rows * n * SizeOf(dtype()));
    args.order = memory.Constant(order);
    args.num_rows = memory.Constant(std::vector<uint32_t>{c.rows});
    args.columns = c.columns;
    ASSERT_OK(GatherColumns(stream(), kernels(), args, c.max_rows));
    memory.Check();
    const std::vector<double> got = memory.ReadTensor(dtype(), args.out);
    ASSERT_EQ(got.size(), x.size());
    for (size_t row = 0; row < c.max_rows; ++row) {
      for (size_t i = 0; i < n; ++i) {
        if (row >= c.rows) {
          ASSERT_TRUE(std::isnan(got[row * n + i])) << row << ", " << i;
        } else {
          ASSERT_EQ(got[row * n + i], x[row * n + order[i]]) << row << ", " << i;
        }
      }
    }
  }
}

// What is no number is handed on as any other bits.
TEST_P(GatherColumnsTest, HandsOnInfinityAndNan) {
  GuardedMemory memory(device(), stream());
  GatherColumnsArgs args;
  args.x = memory.ConstantTensor(dtype(), std::vector<double>{INFINITY, NAN, -INFINITY, -0.0});
  args.out = memory.Poisoned(4 * SizeOf(dtype()));
  args.order = memory.Constant(std::vector<uint32_t>{3, 2, 1, 0});
  args.num_rows = memory.Constant(std::vector<uint32_t>{1});
  args.columns = 4;
  ASSERT_OK(GatherColumns(stream(), kernels(), args, 1));
  memory.Check();
  const std::vector<double> got = memory.ReadTensor(dtype(), args.out);
  EXPECT_TRUE(got[0] == 0.0 && std::signbit(got[0]));
  EXPECT_EQ(got[1], -INFINITY);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], INFINITY);
}

TEST_P(GatherColumnsTest, RefusesImpossibleShapes) {
  GatherColumnsArgs args;
  args.columns = 8;
  EXPECT_THAT(GatherColumns(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_rows is 0"));
  args.columns = 0;
  EXPECT_THAT(GatherColumns(stream(), kernels(), args, 1), StatusIs(kInvalid, "columns is 0"));
}

}  // namespace
}  // namespace reprise::testing
