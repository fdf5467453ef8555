// SPDX-License-Identifier: Apache-2.0
// Linear layers that norm what they read, or add to what they write, against RmsNorm and Linear one
// after the other: for weights of any format.
#ifndef REPRISE_TESTS_KERNELS_LINEAR_RESIDUAL_H_
#define REPRISE_TESTS_KERNELS_LINEAR_RESIDUAL_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "runtime/device.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {

// Inputs: of one part of K, its last tile cut, to eight; of three and five, which warps take in
// turns, there is no norm, nor is there of more than four rows but of weights of 4 bits.
// Outputs: so many tiles that blocks take some from the counter, on a device of up to 150
// multiprocessors in the last case alone, and half a tile. Dead rows are NaN where they are read.
inline constexpr kernels::LinearCase kLinearResidualCases[] = {
    {"one row", 512, 40, 1, 2},
    {"a part that is cut, no rows", 72, 168, 0, 4, true},
    {"a part that is cut", 72, 168, 4, 4, true, 0.5f},
    {"a part that is cut, eight rows", 72, 168, 8, 8, true, 0.5f},
    {"two parts", 792, 48, 2, 4},
    {"two parts, few rows", 792, 48, 2, 2},
    {"two parts, more rows", 792, 48, 5, 5},
    {"four parts", 2008, 56, 4, 4},
    {"three parts", 1536, 232, 2, 3},
    {"five parts", 2312, 40, 7, 8, true},
    {"eight parts", 4096, 48, 3, 4},
    {"eight parts, few rows", 4096, 168, 2, 2},
    {"eight parts, more rows", 4096, 48, 6, 8},
    {"more tiles", 72, 4808, 3, 4},
};

class LinearResidual {
 public:
  LinearResidual(runtime::Stream& stream, const kernels::KernelSet& kernels, GuardedMemory& memory,
                 const kernels::LinearCase& c)
      : stream_(stream), kernels_(kernels), memory_(memory), case_(c) {}

  // x of `args` is the residual stream.
  void ExpectNormHasTheBits(const kernels::LinearWeights& weights, kernels::LinearArgs args) {
    const bool norms = LinearNormsInput(kernels_, weights, case_.max_rows);
    const int32_t parts = (case_.in_features + 511) / 512;
    const bool has_parts = parts != 3 && parts != 5;
    const uint32_t most = weights.format == kernels::WeightFormat::kInt4 ? 8 : 4;
    ASSERT_EQ(norms, has_parts && case_.max_rows <= most);
    if (!norms) return;
    const size_t k = static_cast<size_t>(case_.in_features);
    const void* const norm_weight = Tensor(k);
    void* const normed = memory_.Poisoned(case_.max_rows * k * SizeOf(kernels_.dtype));
    ASSERT_OK(RmsNorm(stream_, kernels_,
                      {.residual = args.x,
                       .weight = norm_weight,
                       .out = normed,
                       .num_rows = args.num_rows,
                       .hidden = case_.in_features,
                       .eps = kEps,
                       .weight_offset = kWeightOffset},
                      case_.max_rows));
    kernels::LinearArgs fused = args;
    args.x = normed;
    fused.norm_weight = norm_weight;
    fused.norm_eps = kEps;
    fused.norm_weight_offset = kWeightOffset;
    EXPECT_EQ(OutBytes(weights, fused), OutBytes(weights, args)) << "of the norm";
  }

  // The output of `args` is a branch.
  void ExpectSumHasTheBits(const kernels::LinearWeights& weights, kernels::LinearArgs args) {
    ASSERT_TRUE(LinearAddsToOut(kernels_, weights, case_.max_rows));
    const size_t n = static_cast<size_t>(case_.out_features);
    Random random(n);
    const std::vector<double> residual = random.Tensor(kernels_.dtype, case_.max_rows * n, 2.0);
    args.out = memory_.Poisoned(case_.max_rows * n * SizeOf(kernels_.dtype));
    ASSERT_OK(Linear(stream_, kernels_, weights, args, case_.max_rows));
    void* const separate = memory_.VariableTensor(kernels_.dtype, residual);
    ASSERT_OK(RmsNorm(stream_, kernels_,
                      {.residual = separate,
                       .branch = args.out,
                       .residual_out = separate,
                       .weight = Tensor(n),
                       .out = memory_.Poisoned(case_.max_rows * n * SizeOf(kernels_.dtype)),
                       .num_rows = args.num_rows,
                       .hidden = case_.out_features,
                       .eps = kEps,
                       .branch_scale = kBranchScale},
                      case_.max_rows));
    args.out = memory_.VariableTensor(kernels_.dtype, residual);
    args.adds_to_out = 1;
    args.branch_scale = kBranchScale;
    ASSERT_OK(Linear(stream_, kernels_, weights, args, case_.max_rows));
    memory_.Check();
    EXPECT_EQ(memory_.ReadBytes(args.out), memory_.ReadBytes(separate)) << "of the sum";
  }

 private:
  static constexpr float kEps = 0.0625f, kWeightOffset = 0.5f, kBranchScale = 0.375f;

  const void* Tensor(size_t elements) {
    return memory_.ConstantTensor(kernels_.dtype,
                                  Random(elements).Tensor(kernels_.dtype, elements));
  }
  std::vector<std::byte> OutBytes(const kernels::LinearWeights& weights, kernels::LinearArgs args) {
    args.out = memory_.Poisoned(case_.max_rows * static_cast<size_t>(case_.out_features) *
                                SizeOf(kernels_.dtype));
    EXPECT_OK(Linear(stream_, kernels_, weights, args, case_.max_rows));
    memory_.Check();
    for (const uint32_t counter : memory_.Read(args.counters)) EXPECT_EQ(counter, 0u);
    return memory_.ReadBytes(args.out);
  }

  runtime::Stream& stream_;
  const kernels::KernelSet& kernels_;
  GuardedMemory& memory_;
  const kernels::LinearCase& case_;
};

// All cases, each with fresh weights: make_call(memory, case, layout) returns LinearFixture's Call.
template <typename MakeCall>
void ExpectResidualCasesHaveTheBits(runtime::Device& device, runtime::Stream& stream,
                                    const kernels::KernelSet& kernels, MakeCall make_call) {
  for (const kernels::LinearCase& c : kLinearResidualCases) {
    SCOPED_TRACE(c.name);
    GuardedMemory memory(device, stream);
    LinearResidual residual(stream, kernels, memory, c);
    const auto call = make_call(memory, c, kernels::WeightLayout::kPacked);
    residual.ExpectNormHasTheBits(call.weights, call.args);
    residual.ExpectSumHasTheBits(call.weights, call.args);
    if (c.out_features % 16 != 0) continue;
    auto pairs = make_call(memory, c, kernels::WeightLayout::kPackedPairs);
    pairs.args.silu_mul = 1;
    residual.ExpectNormHasTheBits(pairs.weights, pairs.args);
  }
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_LINEAR_RESIDUAL_H_
