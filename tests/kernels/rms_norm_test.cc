// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/round_rows/round_rows.h"
#include "tests/testing/cases/rms_norm_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
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

  // The weights as they count.
  static std::vector<double> Effective(const RmsNormCase& c, const Input& in) {
    std::vector<double> weight = in.weight;
    for (double& w : weight) w += c.weight_offset;
    return weight;
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

  // op: RmsNorm or RmsNormAdd, which has no output of its own.
  using Op = absl::Status (*)(runtime::Stream&, const kernels::KernelSet&, const RmsNormArgs&,
                              uint32_t);
  Output Run(const RmsNormCase& c, const Input& in, KeepSum keep, Op op = kernels::RmsNorm) {
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
    args.weight_offset = c.weight_offset;
    EXPECT_OK(op(stream(), kernels(), args, c.max_rows));
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
// The bits of the norm's own kernel and that which rounds.
TEST_P(RmsNormTest, ARoundedNormIsTheNormRounded) {
  for (const RmsNormCase& c : kernels::kRmsNormCases) {
    if (is_emulated() && c.hidden > 4096) continue;
    SCOPED_TRACE(c.name);
    const Input in = MakeInput(c);
    const size_t n = c.max_rows * static_cast<size_t>(c.hidden);
    GuardedMemory memory(device(), stream());
    RmsNormArgs args;
    args.residual = memory.ConstantTensor(dtype(), Spread(c, in, in.residual));
    args.residual_out =
        memory.Poisoned(in.num_rows * static_cast<size_t>(c.hidden) * SizeOf(dtype()));
    if (c.branch) args.branch = memory.ConstantTensor(dtype(), Spread(c, in, in.branch));
    args.weight = memory.ConstantTensor(dtype(), in.weight);
    std::vector<uint32_t> gather = in.row;
    gather.resize(c.max_rows, 0xffffffffu);
    if (c.gather) args.gather = memory.Constant(gather);
    const auto* const num_rows = memory.Constant(std::vector<uint32_t>{c.rows});
    args.num_rows = num_rows;
    args.hidden = c.hidden;
    args.eps = kNormEps;
    args.branch_scale = c.branch_scale;
    args.weight_offset = c.weight_offset;
    args.out = memory.Poisoned(n);
    args.row_scales = memory.Poisoned<float>(c.max_rows);
    ASSERT_OK(kernels::RmsNorm(stream(), kernels(), args, c.max_rows));
    RmsNormArgs plain = args;
    plain.row_scales = nullptr;
    plain.out = memory.Poisoned(n * SizeOf(dtype()));
    plain.residual_out =
        memory.Poisoned(in.num_rows * static_cast<size_t>(c.hidden) * SizeOf(dtype()));
    ASSERT_OK(kernels::RmsNorm(stream(), kernels(), plain, c.max_rows));
    kernels::RoundRowsArgs round{.x = plain.out, .num_rows = num_rows, .columns = c.hidden};
    round.out = memory.Poisoned(n);
    round.scales = memory.Poisoned<float>(c.max_rows);
    ASSERT_OK(kernels::RoundRows(stream(), kernels(), round, c.max_rows));
    memory.Check();
    EXPECT_EQ(memory.ReadBytes(args.out), memory.ReadBytes(round.out));
    EXPECT_EQ(memory.ReadBytes(args.row_scales), memory.ReadBytes(round.scales));
    EXPECT_EQ(memory.ReadBytes(args.residual_out), memory.ReadBytes(plain.residual_out));
  }
}

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
    ExpectNear(got.out, OracleRmsNorm(sum, Effective(c, in), kNormEps), dtype());
  }
}

// The norm is rounded to the storage format before it is added: what it may be, either way.
TEST_P(RmsNormTest, WithTheAddBehindMatchesTheOracleAndTouchesNothingElse) {
  for (const RmsNormCase& c : kernels::kRmsNormAddCases) {
    SCOPED_TRACE(c.name);
    const Input in = MakeInput(c);
    const Output got = Run(c, in, c.keep, kernels::RmsNormAdd);
    const Expected normed = OracleRmsNorm(in.branch, Effective(c, in), kNormEps);
    Expected sum = OracleResidual(in.residual, normed.value, c.branch_scale);
    for (size_t i = 0; i < sum.value.size(); ++i)
      sum.slack[i] += std::fabs(c.branch_scale) *
                      (normed.slack[i] + HalfUlp(dtype(), std::fabs(normed.value[i]) * 1.001));
    ExpectNear(Collect(c, in, got.kept), sum, dtype());
    EXPECT_TRUE(std::all_of(got.out.begin(), got.out.end(), [](double x) { return std::isnan(x); }))
        << "the output of the other op was written";
  }
}

TEST_P(RmsNormTest, WithTheAddBehindDoesNotDependOnWhereTheSumIsKept) {
  for (const RmsNormCase& c : kernels::kRmsNormAddCases) {
    SCOPED_TRACE(c.name);
    const Input in = MakeInput(c);
    const auto kept = [&](KeepSum keep) {
      return Encode(dtype(), Collect(c, in, Run(c, in, keep, kernels::RmsNormAdd).kept));
    };
    EXPECT_EQ(kept(KeepSum::kInPlace), kept(KeepSum::kSeparate));
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
  RmsNormArgs args;
  args.hidden = 8;
  EXPECT_THAT(RmsNorm(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_rows is 0"));
  args.hidden = -1;
  EXPECT_THAT(RmsNorm(stream(), kernels(), args, 1), StatusIs(kInvalid, "hidden is -1"));
  float row[8] = {};
  args.hidden = 8;
  args.residual_out = row;
  EXPECT_THAT(RmsNormAdd(stream(), kernels(), args, 1), StatusIs(kInvalid, "got no branch"));
  args.branch = row;
  EXPECT_THAT(RmsNormAdd(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_rows is 0"));
  args.residual_out = nullptr;
  EXPECT_THAT(RmsNormAdd(stream(), kernels(), args, 1), StatusIs(kInvalid, "got no residual_out"));
}

}  // namespace
}  // namespace reprise::testing
