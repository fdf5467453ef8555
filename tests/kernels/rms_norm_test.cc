// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/testing/cases/rms_norm_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::KeepSum;
using kernels::RmsNormArgs;
using kernels::RmsNormCase;

constexpr float kNormEps = 0.0625f;  // large enough to show beside squares near 4

class RmsNormTest : public KernelTest {
 protected:
  // Inputs of a case. Input rows that no output row takes are poisoned, and so is the branch there.
  struct Input {
    uint32_t num_rows = 0;                         // input rows
    std::vector<uint32_t> row;                     // input row of each live output row
    std::vector<double> residual, branch, weight;  // of the live output rows
  };
  struct Output {
    std::vector<double> out;   // [max_rows, hidden]
    std::vector<double> kept;  // [input rows, hidden], empty if not kept
  };

  Input MakeInput(const RmsNormCase& c) {
    Random random(static_cast<uint64_t>(c.hidden) * 31 + c.rows);
    Input in;
    in.num_rows = c.gather ? 2 * c.max_rows + 1 : c.max_rows;
    in.row = random.Permutation(in.num_rows);
    if (!c.gather) std::sort(in.row.begin(), in.row.end());
    in.row.resize(c.rows);
    const size_t n = static_cast<size_t>(c.hidden) * c.rows;
    in.residual = random.Tensor(dtype(), n, 2.0);
    in.branch = random.Tensor(dtype(), n);
    in.weight = random.Tensor(dtype(), static_cast<size_t>(c.hidden));
    return in;
  }

  // Rows of `live` at their input rows, NaN elsewhere.
  static std::vector<double> Spread(const RmsNormCase& c, const Input& in,
                                    const std::vector<double>& live) {
    const size_t hidden = static_cast<size_t>(c.hidden);
    std::vector<double> all(in.num_rows * hidden, NAN);
    for (size_t r = 0; r < in.row.size(); ++r)
      std::copy_n(live.begin() + static_cast<ptrdiff_t>(r * hidden), hidden,
                  all.begin() + static_cast<ptrdiff_t>(in.row[r] * hidden));
    return all;
  }

  // The live output rows' part of something kept by input row; everything else must be NaN.
  static std::vector<double> Collect(const RmsNormCase& c, const Input& in,
                                     std::vector<double> all) {
    const size_t hidden = static_cast<size_t>(c.hidden);
    std::vector<double> live;
    for (const uint32_t row : in.row) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(row * hidden);
      live.insert(live.end(), begin, begin + c.hidden);
      std::fill_n(begin, hidden, NAN);
    }
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](double x) { return std::isnan(x); }))
        << "a row that no output row takes was written";
    return live;
  }

  Output Run(const RmsNormCase& c, const Input& in, KeepSum keep) {
    GuardedMemory memory(device(), stream());
    RmsNormArgs args;
    const std::vector<double> residual = Spread(c, in, in.residual);
    if (keep == KeepSum::kInPlace) {
      args.residual_out = memory.VariableTensor(dtype(), residual);
      args.residual = args.residual_out;
    } else {
      args.residual = memory.ConstantTensor(dtype(), residual);
    }
    if (keep == KeepSum::kSeparate)
      args.residual_out = memory.Poisoned(residual.size() * SizeOf(dtype()));
    if (c.branch) args.branch = memory.ConstantTensor(dtype(), Spread(c, in, in.branch));
    args.weight = memory.ConstantTensor(dtype(), in.weight);
    args.out = memory.Poisoned(c.max_rows * static_cast<size_t>(c.hidden) * SizeOf(dtype()));
    std::vector<uint32_t> gather = in.row;
    gather.resize(c.max_rows, 0xffffffffu);
    if (c.gather) args.gather = memory.Constant(gather);
    args.num_rows = memory.Constant(std::vector<uint32_t>{c.rows});
    args.hidden = c.hidden;
    args.eps = kNormEps;
    args.branch_scale = c.branch_scale;
    EXPECT_OK(RmsNorm(stream(), kernels(), args, c.max_rows));
    memory.Check();
    Output output{memory.ReadTensor(dtype(), args.out), {}};
    if (args.residual_out != nullptr) output.kept = memory.ReadTensor(dtype(), args.residual_out);
    return output;
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(RmsNormTest);

// The sum is rounded to the storage format before it is normalised, and one that lies between two
// neighbours may go either way. So the kept sum is checked first, and the norm is then expected of
// exactly that sum.
TEST_P(RmsNormTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const RmsNormCase& c : kernels::kRmsNormCases) {
    SCOPED_TRACE(c.name);
    const Input in = MakeInput(c);
    const KeepSum keep = c.branch && c.keep == KeepSum::kNo ? KeepSum::kSeparate : c.keep;
    const Output got = Run(c, in, keep);
    std::vector<double> sum = in.residual;
    if (keep != KeepSum::kNo) {
      sum = Collect(c, in, got.kept);
      const double scale = c.branch ? c.branch_scale : 0.0;
      ExpectNear(sum, OracleResidual(in.residual, in.branch, scale), dtype());
    }
    ExpectNear(got.out, OracleRmsNorm(sum, in.weight, kNormEps), dtype());
  }
}

TEST_P(RmsNormTest, ResultDoesNotDependOnWhereTheSumIsKept) {
  for (const RmsNormCase& c : kernels::kRmsNormCases) {
    if (!c.branch) continue;
    SCOPED_TRACE(c.name);
    const Input in = MakeInput(c);
    const std::vector<std::byte> separate = Encode(dtype(), Run(c, in, KeepSum::kSeparate).out);
    EXPECT_EQ(Encode(dtype(), Run(c, in, KeepSum::kNo).out), separate);
    EXPECT_EQ(Encode(dtype(), Run(c, in, KeepSum::kInPlace).out), separate);
  }
}

TEST_P(RmsNormTest, RefusesImpossibleShapes) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  RmsNormArgs args;
  args.hidden = 8;
  EXPECT_THAT(RmsNorm(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_rows is 0"));
  args.hidden = -1;
  EXPECT_THAT(RmsNorm(stream(), kernels(), args, 1), StatusIs(kInvalid, "hidden is -1"));
}

}  // namespace
}  // namespace reprise::testing
