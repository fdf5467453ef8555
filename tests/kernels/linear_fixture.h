// SPDX-License-Identifier: Apache-2.0
// Fixture of the tests of linear, for weights of any format, and random input of a case with
// weights of the device's dtype.
#ifndef REPRISE_TESTS_KERNELS_LINEAR_FIXTURE_H_
#define REPRISE_TESTS_KERNELS_LINEAR_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_choice.h"
#include "kernels/stamp/stamp.h"
#include "runtime/dtype.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {

// Those of every device, and what only the host does in parts.
inline std::vector<kernels::LinearCase> HostLinearCases() {
  std::vector<kernels::LinearCase> cases(std::begin(kernels::kLinearCases),
                                         std::end(kernels::kLinearCases));
  cases.insert(cases.end(), std::begin(kernels::kLinearHostCases),
               std::end(kernels::kLinearHostCases));
  return cases;
}

// What fills packed matrices up: would be seen in a sum.
inline constexpr double kLinearFiller = 96.0;

struct LinearInput {
  std::vector<double> x, weight, bias;

  LinearInput(const kernels::LinearCase& c, runtime::DType dtype) {
    Random random(static_cast<uint64_t>(c.in_features) * 1009 + c.rows);
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    x = random.Tensor(dtype, c.rows * k);
    weight = random.Tensor(dtype, n * k, 1.0 / std::sqrt(static_cast<double>(k)));
    if (c.bias) bias = random.Tensor(dtype, n);
  }
};

class LinearFixture : public KernelTest {
 protected:
  runtime::DType OutType(const kernels::LinearCase& c) const {
    return c.out_is_f32 ? runtime::DType::kF32 : dtype();
  }

  // Whether the device takes the product of two halves at once.
  bool TakesPairs() const { return kernels::LinearTakesPairs(kernels(), 16, 8); }

  // What Linear is called with.
  struct Call {
    kernels::LinearWeights weights;
    kernels::LinearArgs args;
  };

  // Over fresh buffers: rows of x beyond the live ones are NaN, all of the output is poisoned.
  Call MakeCall(GuardedMemory& memory, const kernels::LinearCase& c, const LinearInput& in,
                kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor) {
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    Call call;
    call.weights.format = kernels::WeightFormatOf(dtype());
    call.weights.layout = layout;
    call.weights.data = memory.ConstantTensor(
        dtype(), layout == kernels::WeightLayout::kPacked ? Packed(in.weight, n, k, kLinearFiller)
                 : layout == kernels::WeightLayout::kPackedPairs
                     ? PackedPairs(in.weight, n, k, kLinearFiller)
                     : in.weight);
    if (c.bias) call.weights.bias = memory.ConstantTensor(dtype(), in.bias);
    call.weights.in_features = c.in_features;
    call.weights.out_features = c.out_features;
    call.args = MakeArgs(memory, c, in.x);
    return call;
  }
  // All but what the weights set. x: of the live rows.
  kernels::LinearArgs MakeArgs(GuardedMemory& memory, const kernels::LinearCase& c,
                               std::vector<double> x) {
    x.resize(c.max_rows * static_cast<size_t>(c.in_features), NAN);
    kernels::LinearArgs args;
    args.x = memory.ConstantTensor(dtype(), x);
    args.out =
        memory.Poisoned(c.max_rows * static_cast<size_t>(c.out_features) * SizeOf(OutType(c)));
    args.num_rows = memory.Constant(std::vector<uint32_t>{c.rows});
    args.partials = memory.Poisoned<float>(LinearPartialFloats(kernels(), c.max_rows));
    args.counters = memory.Variable(
        std::vector<uint32_t>(LinearNumCounters(kernels(), static_cast<uint32_t>(c.out_features))));
    args.scale = c.scale;
    args.out_is_f32 = c.out_is_f32 ? 1 : 0;
    return args;
  }

  void ExpectCountersZero(GuardedMemory& memory, const kernels::LinearArgs& args) {
    for (const uint32_t counter : memory.Read(args.counters)) EXPECT_EQ(counter, 0u);
  }

  // The output's bytes of rows [0, c.rows).
  std::vector<std::byte> RowBytes(GuardedMemory& memory, const kernels::LinearCase& c, Call call,
                                  kernels::LinearCandidate candidate) {
    // As in a model, where another kernel comes between the plan and this one.
    auto* const stamp = memory.Poisoned<uint64_t>(1);
    EXPECT_OK(kernels::Stamp(stream(), kernels(), {.out = stamp}));
    call.args.reads_ahead = num_launches_ % 2 == 0;
    call.args.ahead = static_cast<kernels::KernelAhead>(num_launches_++ / 2 % 3);
    EXPECT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows, candidate));
    memory.Check();
    ExpectCountersZero(memory, call.args);
    std::vector<std::byte> bytes = memory.ReadBytes(call.args.out);
    bytes.resize(c.rows * static_cast<size_t>(c.out_features) * SizeOf(OutType(c)));
    return bytes;
  }

  // By every kernel that a table may name for a launch: the bytes of the built-in choice, and no
  // other memory touched. make_call(memory): over fresh buffers, the output's f32.
  template <typename MakeCallOf>
  void ExpectEveryKernelOfATableHasTheBits(const kernels::LinearCase& c, MakeCallOf make_call) {
    const auto set = kernels::KernelSet::Load(device(), dtype());
    ASSERT_OK(set);
    std::vector<const kernels::LoadedKernel*> kernels = {nullptr};  // the built-in choice
    std::vector<std::byte> expected;
    for (size_t i = 0; i < kernels.size(); ++i) {
      GuardedMemory memory(device(), stream());
      Call call = make_call(memory);
      (*set)->linear_table.clear();
      if (i == 0) {
        const auto all = LinearKernelsOfSameBits(**set, call.weights, c.max_rows);
        ASSERT_FALSE(all.empty());
        // Of one there is nothing that a table could say.
        if (all.size() > 1) kernels.insert(kernels.end(), all.begin(), all.end());
      } else {
        (*set)->linear_table.push_back({.out_features = call.weights.out_features,
                                        .in_features = call.weights.in_features,
                                        .group_size = call.weights.group_size,
                                        .first_rows = c.max_rows,
                                        .last_rows = c.max_rows,
                                        .kernel = kernels[i]->instance});
        ASSERT_OK(CheckLinearTable(**set, (*set)->linear_table));
      }
      SCOPED_TRACE(i == 0 ? std::string("built in") : std::string(kernels[i]->instance->symbol));
      // A table's kernels may have wider tiles.
      call.args.partials = memory.Poisoned<float>(LinearPartialFloats(**set, c.max_rows));
      ASSERT_OK(Linear(stream(), **set, call.weights, call.args, c.max_rows));
      memory.Check();
      ExpectCountersZero(memory, call.args);
      const std::vector<std::byte> bytes = memory.ReadBytes(call.args.out);
      if (i == 0) expected = bytes;
      EXPECT_EQ(bytes, expected);
    }
  }

  // SiLU of the first half of the outputs times the second, of the case's rows in buckets of
  // several sizes: as `all`, what the layer itself makes, says, and the same bits in each.
  // make_call(memory, bucket): over buffers of so many rows, with packed pairs.
  template <typename MakeCallOf>
  void ExpectPairsHaveTheSameBitsInEveryBucket(const kernels::LinearCase& c, const Expected& all,
                                               MakeCallOf make_call) {
    const size_t half = static_cast<size_t>(c.out_features) / 2;
    const Expected expected = OracleSiluMulOf(all, half);
    std::vector<std::byte> first;
    for (const uint32_t max_rows : {3u, 8u, 16u, 32u, 100u}) {
      SCOPED_TRACE(absl::StrCat("rows of the bucket: ", max_rows));
      kernels::LinearCase bucket = c;
      bucket.max_rows = max_rows;
      GuardedMemory memory(device(), stream());
      Call call = make_call(memory, bucket);
      call.args.silu_mul = 1;
      call.args.out = memory.Poisoned(max_rows * half * sizeof(float));
      ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, max_rows));
      memory.Check();
      ExpectNear(memory.ReadTensor(runtime::DType::kF32, call.args.out), expected,
                 runtime::DType::kF32);
      std::vector<std::byte> bytes = memory.ReadBytes(call.args.out);
      bytes.resize(c.rows * half * sizeof(float));
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first);
    }
  }

 private:
  // Of values that are themselves known within their slack: [rows, 2 * half].
  static Expected OracleSiluMulOf(const Expected& all, size_t half) {
    const Expected product = OracleSiluMul(all.value, half);
    Expected expected;
    for (size_t i = 0; i < product.value.size(); ++i) {
      const size_t gate = i / half * 2 * half + i % half, up = gate + half;
      // SiLU rises by at most 1.1, and stays below its argument.
      expected.Add(product.value[i],
                   product.slack[i] + 1.1 * all.slack[gate] * std::fabs(all.value[up]) +
                       (std::fabs(all.value[gate]) + all.slack[gate]) * all.slack[up]);
    }
    return expected;
  }

  unsigned num_launches_ = 0;  // what these do in turn: reading ahead, and of which kernel
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_LINEAR_FIXTURE_H_
