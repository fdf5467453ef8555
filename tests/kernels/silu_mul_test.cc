// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_mul/silu_mul.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/cases/silu_mul_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::SiluMulArgs;
using kernels::SiluMulCase;

using SiluMulTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(SiluMulTest);

TEST_P(SiluMulTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const SiluMulCase& c : kernels::kSiluMulCases) {
    SCOPED_TRACE(c.name);
    const size_t n = static_cast<size_t>(c.intermediate);
    Random random(n);
    std::vector<double> gate_up = random.Tensor(dtype(), c.tokens * 2 * n, 3.0);
    if (c.tokens > 0 && n > 2) {  // where exp(-gate) overflows f32, and where it vanishes
      gate_up[0] = -100.0;
      gate_up[1] = 100.0;
    }
    GuardedMemory memory(device(), stream());
    SiluMulArgs args;
    args.gate_up = memory.ConstantTensor(dtype(), gate_up);
    args.out = memory.Poisoned(c.max_tokens * n * SizeOf(dtype()));
    args.num_tokens = memory.Constant(std::vector<uint32_t>{c.tokens});
    args.intermediate = c.intermediate;
    ASSERT_OK(SiluMul(stream(), kernels(), args, c.max_tokens));
    memory.Check();
    ExpectNear(memory.ReadTensor(dtype(), args.out), OracleSiluMul(gate_up, n), dtype());

    args.gelu = 1;
    ASSERT_OK(SiluMul(stream(), kernels(), args, c.max_tokens));
    memory.Check();
    ExpectNear(memory.ReadTensor(dtype(), args.out), OracleGeluMul(gate_up, n), dtype());

    args.gelu = 0;
    args.limit = 2.5f;
    args.sigmoid_slope = 1.75f;
    ASSERT_OK(SiluMul(stream(), kernels(), args, c.max_tokens));
    memory.Check();
    ExpectNear(memory.ReadTensor(dtype(), args.out), OracleLimitedMul(gate_up, n, 2.5, 1.75),
               dtype());
  }
}

TEST_P(SiluMulTest, RefusesImpossibleShapes) {
  SiluMulArgs args;
  args.intermediate = 8;
  EXPECT_THAT(SiluMul(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_tokens is 0"));
  args.intermediate = 0;
  EXPECT_THAT(SiluMul(stream(), kernels(), args, 1), StatusIs(kInvalid, "intermediate is 0"));
  args.intermediate = 8;
  args.limit = -1.0f;
  EXPECT_THAT(SiluMul(stream(), kernels(), args, 1), StatusIs(kInvalid, "limit is -1; allowed: 0"));
  args.limit = 1.0f;
  args.gelu = 1;
  EXPECT_THAT(SiluMul(stream(), kernels(), args, 1), StatusIs(kInvalid, "limit is 1 beside gelu"));
}

}  // namespace
}  // namespace reprise::testing
