// SPDX-License-Identifier: Apache-2.0
// Linear with weights of E4M3 that multiply rows of E4M3, both with scales: against the oracle, to
// which what elements and scales are worth is given in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear.h"
#include "tests/kernels/linear_fixture.h"
#include "tests/kernels/linear_group_shapes.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::LinearCandidate;
using kernels::LinearCase;
using kernels::LinearWeights;
using kernels::WeightFormat;
using kernels::WeightLayout;
using runtime::DType;

// What fills packed matrices and scales up: would be seen in a sum.
constexpr uint8_t kFiller = 0x6c;  // 96
constexpr float kScaleFiller = 3.0f;
// What tensor cores lose of products of E4M3, at most, of the sum of their sizes: they keep 14 bits
// or so of the largest.
constexpr double kTensorCoreLoss = 0x1p-11;

struct RoundedInput {
  // Elements of x and of the weight, and what they are worth.
  std::vector<double> x_elements, elements, x, weight, bias;
  std::vector<float> row_scales, scales;  // [rows], [out_features, groups]
  size_t groups;

  RoundedInput(const LinearCase& c, DType dtype) {
    Random random(static_cast<uint64_t>(c.in_features) * 1019 + c.rows);
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    groups = (k + kernels::kScaleInputs - 1) / kernels::kScaleInputs;
    x_elements = Elements(random, c.rows * k);
    elements = Elements(random, n * k);
    for (size_t i = 0; i < c.rows; ++i)
      row_scales.push_back(static_cast<float>(0.1 + random.Uniform()));
    for (size_t i = 0; i < n * groups; ++i)
      scales.push_back(
          static_cast<float>((0.5 + random.Uniform()) / std::sqrt(64.0 * static_cast<double>(k))));
    SetWorth(k);
    if (c.bias) bias = random.Tensor(dtype, n);
  }
  void SetWorth(size_t k) {
    x.resize(x_elements.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = x_elements[i] * double{row_scales[i / k]};
    weight.resize(elements.size());
    for (size_t i = 0; i < weight.size(); ++i)
      weight[i] = elements[i] * double{scales[i / k * groups + i % k / kernels::kScaleInputs]};
  }
  // From subnormal numbers to large ones.
  static std::vector<double> Elements(Random& random, size_t count) {
    std::vector<double> all = random.Tensor(DType::kE4m3, count, 4.0);
    for (size_t i = 0; i < all.size(); i += 7) all[i] = RoundTo(DType::kE4m3, all[i] * 0x1p-9);
    return all;
  }
};

class LinearRoundedTest : public LinearFixture {
 protected:
  // Over fresh buffers: rows of x beyond the live ones, and their scales, are NaN, all of the
  // output is poisoned.
  Call MakeCall(GuardedMemory& memory, const LinearCase& c, const RoundedInput& in,
                WeightLayout layout) {
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    std::vector<uint8_t> elements;
    for (const std::byte code : Encode(DType::kE4m3, in.elements))
      elements.push_back(static_cast<uint8_t>(code));
    std::vector<float> scales = in.scales;
    if (layout == WeightLayout::kPackedPairs) {
      elements = RowsInTurns(elements, n, k);
      scales = RowsInTurns(scales, n, in.groups);
    }
    if (layout != WeightLayout::kRowMajor) {
      elements = PackedRounded(elements, n, k, kFiller);
      scales = PackedFp8Scales(scales, n, in.groups, kScaleFiller);
    }
    Call call;
    call.weights.format = WeightFormat::kE4m3Rounded;
    call.weights.layout = layout;
    call.weights.data = memory.Constant(elements);
    call.weights.scales = memory.Constant(scales);
    call.weights.group_size = kernels::kScaleInputs;
    if (c.bias) call.weights.bias = memory.ConstantTensor(dtype(), in.bias);
    call.weights.in_features = c.in_features;
    call.weights.out_features = c.out_features;
    call.args = MakeArgs(memory, c, {});
    std::vector<double> x = in.x_elements;
    x.resize(c.max_rows * k, NAN);
    call.args.x = memory.ConstantTensor(DType::kE4m3, x);
    std::vector<float> row_scales = in.row_scales;
    row_scales.resize(c.max_rows, NAN);
    call.args.row_scales = memory.Constant(row_scales);
    return call;
  }

  // What linear layers of that input are, and the sum of the sizes of each one's products.
  struct Wanted {
    Expected expected;
    std::vector<double> sizes;
  };
  static Wanted Oracle(const LinearCase& c, const RoundedInput& in) {
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    Wanted wanted{.expected = OracleLinear(in.x, in.weight, in.bias, k, c.scale), .sizes = {}};
    for (size_t i = 0; i < wanted.expected.value.size(); ++i) {
      double sizes = 0.0;
      for (size_t j = 0; j < k; ++j)
        sizes += std::fabs(in.x[i / n * k + j] * in.weight[i % n * k + j]);
      wanted.sizes.push_back(sizes * std::fabs(c.scale));
    }
    return wanted;
  }
  // The same with room for what this device's kernels lose.
  Expected WithLoss(const Wanted& wanted, bool portable) {
    // A row's scale comes behind the sum: two more roundings.
    const bool tensor_cores = !portable && kernels().traits().group_products && !is_emulated();
    const double loss = 0x1p-22 + (tensor_cores ? kTensorCoreLoss : 0.0);
    Expected all = wanted.expected;
    for (size_t i = 0; i < all.value.size(); ++i) all.slack[i] += loss * wanted.sizes[i];
    return all;
  }

  std::vector<std::byte> RowBytes(const LinearCase& c, const RoundedInput& in,
                                  WeightLayout layout) {
    GuardedMemory memory(device(), stream());
    return LinearFixture::RowBytes(memory, c, MakeCall(memory, c, in, layout),
                                   LinearCandidate::kBest);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearRoundedTest);

TEST_P(LinearRoundedTest, MatchesTheOracleAndTouchesNothingElse) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  size_t index = 0;
  for (const LinearCase& c : kernels::kLinearCases) {
    const bool runs_portable = IsOfThisUnit(index++) && (!is_emulated() || c.rows <= 3);
    const RoundedInput in(c, dtype());
    const Wanted wanted = Oracle(c, in);
    for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
      for (const LinearCandidate candidate : {LinearCandidate::kBest, LinearCandidate::kPortable}) {
        const bool portable =
            layout == WeightLayout::kRowMajor || candidate == LinearCandidate::kPortable;
        if (portable && !runs_portable) continue;
        SCOPED_TRACE(absl::StrCat(c.name, ", ", std::string(NameOf(layout)),
                                  candidate == LinearCandidate::kBest ? ", best" : ", portable"));
        GuardedMemory memory(device(), stream());
        const Call call = MakeCall(memory, c, in, layout);
        ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows, candidate));
        memory.Check();
        ExpectNear(memory.ReadTensor(OutType(c), call.args.out), WithLoss(wanted, portable),
                   OutType(c));
      }
    }
  }
}

// Picks rows of a case's 70 and runs them alone, and as the last of a few in every kind of bucket.
TEST_P(LinearRoundedTest, ARowsBitsDependNeitherOnItsNeighboursNorOnTheBucket) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  constexpr uint32_t kRows = 70;
  // Without a rounding to 16 bits, which would hide a difference: chunks and an eighth of one, and
  // inputs that are no whole chunks.
  const LinearCase shapes[] = {{"uneven", 784, 72, kRows, kRows, true, 1.0f, true},
                               {"odd", 131, 45, kRows, kRows, false, 1.0f, true}};
  const LinearCase buckets[] = {{"1", 0, 0, 1, 1},    {"3", 0, 0, 3, 8},
                                {"12", 0, 0, 12, 16}, {"20", 0, 0, 20, 32},
                                {"33", 0, 0, 33, 64}, {"70 of 200", 0, 0, 70, 200}};
  for (const LinearCase& shape : shapes) {
    const RoundedInput in(shape, dtype());
    const auto k = static_cast<ptrdiff_t>(shape.in_features);
    for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
      const std::vector<std::byte> all = RowBytes(shape, in, layout);
      const size_t row_bytes = all.size() / kRows;
      for (const LinearCase& bucket : buckets) {
        SCOPED_TRACE(
            absl::StrCat(shape.name, ", ", std::string(NameOf(layout)), ", ", bucket.name));
        LinearCase c = shape;
        c.rows = bucket.rows;
        c.max_rows = bucket.max_rows;
        const ptrdiff_t first = (bucket.rows * 37 + 5) % (kRows - bucket.rows + 1);
        RoundedInput part = in;
        const auto x = in.x_elements.begin() + first * k;
        part.x_elements.assign(x, x + c.rows * k);
        const auto scales = in.row_scales.begin() + first;
        part.row_scales.assign(scales, scales + c.rows);
        const std::vector<std::byte> got = RowBytes(c, part, layout);
        EXPECT_TRUE(std::equal(got.begin(), got.end(),
                               all.begin() + first * static_cast<ptrdiff_t>(row_bytes)));
      }
    }
  }
}

// Whatever a launch chooses: the same bits.
TEST_P(LinearRoundedTest, EveryShapeOfLinearGroupHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || !kernels().traits().group_products)
    GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  // Inputs: chunks of 128 and a part of one; whole ones, an odd number. Outputs: ten tiles, the
  // last one half.
  for (const int32_t in_features : {1456, 640}) {
    const LinearCase c{"", in_features, 152, 7, 7, true, 0.5f, true};
    const RoundedInput in(c, dtype());
    GuardedMemory memory(device(), stream());
    const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
    ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows));
    memory.Check();
    ExpectEveryGroupShapeHasTheBits(device(), stream(), kernels(), memory,
                                    kernels::kLinearGroupRounded, WeightFormat::kE4m3Rounded,
                                    WithWeights(call.weights, call.args), c.max_rows,
                                    memory.ReadBytes(call.args.out));
  }
}

// What a table may say.
TEST_P(LinearRoundedTest, EveryKernelOfATableHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  const LinearCase c{"", 720, 152, 19, 20, true, 0.5f, true};
  const RoundedInput in(c, dtype());
  ExpectEveryKernelOfATableHasTheBits(
      c, [&](GuardedMemory& memory) { return MakeCall(memory, c, in, WeightLayout::kPacked); });
}

// SiLU of the first half times the second.
TEST_P(LinearRoundedTest, MultipliesPairsLikeTheOracleWithTheSameBitsInEveryBucket) {
  if (!TakesPairs() || !kernels().traits().group_products)
    GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  const LinearCase c{"", 720, 80, 3, 3, true, 2.0f, true};
  const RoundedInput in(c, dtype());
  const Expected all = WithLoss(Oracle(c, in), /*portable=*/false);
  ExpectPairsHaveTheSameBitsInEveryBucket(
      c, all, [&](GuardedMemory& memory, const LinearCase& bucket) {
        return MakeCall(memory, bucket, in, WeightLayout::kPackedPairs);
      });
}

// Every element times 1, alone in its row: what it is worth, to the bit, subnormal numbers too; of
// weights and of x.
TEST_P(LinearRoundedTest, EveryElementIsWorthWhatItsFormatSays) {
  std::vector<double> values;
  for (int code = 0; code < 256; ++code) {
    const std::byte byte{static_cast<uint8_t>(code)};
    const double value = Decode(DType::kE4m3, {&byte, 1})[0];
    if (!std::isnan(value)) values.push_back(value);
  }
  ASSERT_EQ(values.size(), 254u);
  const auto n = static_cast<uint32_t>(values.size());
  constexpr size_t kInputs = 208;
  for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
    for (const size_t place : {0, 7, 70, 200}) {
      for (const bool of_x : {false, true}) {
        SCOPED_TRACE(absl::StrCat(std::string(NameOf(layout)), ", input ", place,
                                  of_x ? ", of x" : ", of the weight"));
        const LinearCase c{"",           kInputs,      static_cast<int32_t>(of_x ? 1 : n),
                           of_x ? n : 1, of_x ? n : 1, false,
                           1.0f,         true};
        RoundedInput in(c, dtype());
        std::fill(in.row_scales.begin(), in.row_scales.end(), 0.25f);
        std::fill(in.scales.begin(), in.scales.end(), 2.0f);
        std::vector<double>& varied = of_x ? in.x_elements : in.elements;
        std::vector<double>& same = of_x ? in.elements : in.x_elements;
        std::fill(same.begin(), same.end(), 0.0);
        std::fill(varied.begin(), varied.end(), 1.0);
        same[place] = 2.0;
        for (size_t i = 0; i < values.size(); ++i) varied[i * kInputs + place] = values[i];
        GuardedMemory memory(device(), stream());
        const Call call = MakeCall(memory, c, in, layout);
        ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows));
        EXPECT_EQ(memory.ReadTensor(DType::kF32, call.args.out), values);
      }
    }
  }
}

TEST_P(LinearRoundedTest, RefusesRowScalesWithoutTheirWeightsAndWeightsWithoutThem) {
  const float number = 1.0f;
  LinearWeights weights;
  weights.format = WeightFormat::kE4m3Rounded;
  weights.in_features = weights.out_features = 8;
  weights.scales = &number;
  weights.group_size = kernels::kScaleInputs;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "row_scales are missing"));
  weights.format = WeightFormat::kE4m3;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.row_scales = &number}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "row_scales are there; allowed: with"));
  weights.format = WeightFormat::kE4m3Rounded;
  weights.scales = nullptr;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.row_scales = &number}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "fp8_e4m3_rounded have no scales"));
}

TEST_P(LinearRoundedTest, RefusesPairsThatNoKernelReads) {
  if (!TakesPairs()) GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const float number = 1.0f;
  LinearWeights weights;
  weights.format = WeightFormat::kE4m3Rounded;
  weights.layout = WeightLayout::kPackedPairs;
  weights.in_features = 24;  // no whole sixteens
  weights.out_features = 16;
  weights.scales = &number;
  weights.group_size = kernels::kScaleInputs;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.silu_mul = 1, .row_scales = &number}, 1),
              StatusIs(absl::StatusCode::kUnimplemented, "24 inputs; allowed: where warpgroups"));
}

}  // namespace
}  // namespace reprise::testing
