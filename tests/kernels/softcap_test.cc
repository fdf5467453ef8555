// SPDX-License-Identifier: Apache-2.0
#include "kernels/softcap/softcap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/cases/softcap_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::SoftcapArgs;
using kernels::SoftcapCase;
using runtime::DType;

using SoftcapTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(SoftcapTest);

TEST_P(SoftcapTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const SoftcapCase& c : kernels::kSoftcapCases) {
    SCOPED_TRACE(c.name);
    const size_t live = c.rows * static_cast<size_t>(c.columns);
    Random random(live + 3);
    std::vector<double> x = random.Tensor(DType::kF32, live, 2.0 * c.cap);
    if (live > 4) {  // far beyond the cap, and next to nothing
      x[0] = 1e30;
      x[1] = -1e30;
      x[2] = 1e-30;
      x[3] = 0.0;
    }
    std::vector<double> all = x;
    all.resize(c.max_rows * static_cast<size_t>(c.columns), NAN);
    GuardedMemory memory(device(), stream());
    SoftcapArgs args;
    args.x = static_cast<float*>(memory.VariableTensor(DType::kF32, all));
    args.num_rows = memory.Constant(std::vector<uint32_t>{c.rows});
    args.columns = c.columns;
    args.cap = c.cap;
    ASSERT_OK(Softcap(stream(), kernels(), args, c.max_rows));
    memory.Check();
    std::vector<double> got = memory.ReadTensor(DType::kF32, args.x);
    for (size_t i = live; i < got.size(); ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
    got.resize(live);
    ExpectNear(got, OracleSoftcap(x, c.cap), DType::kF32);
  }
}

TEST_P(SoftcapTest, InfinityIsTheCapAndNanStaysNan) {
  GuardedMemory memory(device(), stream());
  SoftcapArgs args;
  args.x = static_cast<float*>(
      memory.VariableTensor(DType::kF32, std::vector<double>{INFINITY, -INFINITY, NAN, 1.0}));
  args.num_rows = memory.Constant(std::vector<uint32_t>{1});
  args.columns = 4;
  args.cap = 30.0f;
  ASSERT_OK(Softcap(stream(), kernels(), args, 1));
  memory.Check();
  const std::vector<double> got = memory.ReadTensor(DType::kF32, args.x);
  EXPECT_EQ(got[0], 30.0);
  EXPECT_EQ(got[1], -30.0);
  EXPECT_TRUE(std::isnan(got[2]));
}

TEST_P(SoftcapTest, RefusesImpossibleShapesAndCaps) {
  SoftcapArgs args;
  args.columns = 4;
  args.cap = 30.0f;
  EXPECT_THAT(Softcap(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_rows is 0"));
  for (const float cap : {0.0f, -1.0f, INFINITY, NAN}) {
    args.cap = cap;
    EXPECT_THAT(Softcap(stream(), kernels(), args, 1),
                StatusIs(kInvalid, "allowed: finite numbers above 0"));
  }
  args.cap = 30.0f;
  args.columns = 0;
  EXPECT_THAT(Softcap(stream(), kernels(), args, 1), StatusIs(kInvalid, "columns is 0"));
}

}  // namespace
}  // namespace reprise::testing
