// SPDX-License-Identifier: Apache-2.0
// Linear with weights of E4M3, whose values are element * scale: against the oracle, to which those
// products are given in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/stamp/stamp.h"
#include "runtime/map_tiles.h"
#include "tests/kernels/linear_fixture.h"
#include "tests/kernels/linear_group_shapes.h"
#include "tests/kernels/linear_residual.h"
#include "tests/kernels/linear_stream_grids.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::LinearArgs;
using kernels::LinearCandidate;
using kernels::LinearCase;
using kernels::LinearWeights;
using kernels::WeightFormat;
using kernels::WeightLayout;
using runtime::DType;

// What fills packed matrices and scales up: would be seen in a sum.
constexpr uint8_t kFiller = 0x6c;  // 96
constexpr float kScaleFiller = 3.0f;

struct Input {
  std::vector<double> x, elements, weight, bias;
  std::vector<float> scales;  // [out_features, groups]
  size_t groups;

  Input(const LinearCase& c, DType dtype) {
    Random random(static_cast<uint64_t>(c.in_features) * 1013 + c.rows);
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    groups = (k + kernels::kScaleInputs - 1) / kernels::kScaleInputs;
    x = random.Tensor(dtype, c.rows * k);
    // From subnormal numbers to large ones.
    elements = random.Tensor(DType::kE4m3, n * k, 4.0);
    for (size_t i = 0; i < elements.size(); i += 7)
      elements[i] = RoundTo(DType::kE4m3, elements[i] * 0x1p-9);
    for (size_t i = 0; i < n * groups; ++i)
      scales.push_back(static_cast<float>((0.5 + random.Uniform()) / std::sqrt(16.0 * k)));
    weight.resize(elements.size());
    for (size_t i = 0; i < weight.size(); ++i)
      weight[i] = elements[i] * scales[i / k * groups + i % k / kernels::kScaleInputs];
    if (c.bias) bias = random.Tensor(dtype, n);
  }
};

class LinearFp8Test : public LinearFixture {
 protected:
  // Over fresh buffers: rows of x beyond the live ones are NaN, all of the output is poisoned.
  Call MakeCall(GuardedMemory& memory, const LinearCase& c, const Input& in, WeightLayout layout) {
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
      elements = PackedFp8(elements, n, k, kFiller);
      scales = PackedFp8Scales(scales, n, in.groups, kScaleFiller);
    }
    Call call;
    call.weights.format = WeightFormat::kE4m3;
    call.weights.layout = layout;
    call.weights.data = memory.Constant(elements);
    call.weights.scales = memory.Constant(scales);
    call.weights.group_size = kernels::kScaleInputs;
    if (c.bias) call.weights.bias = memory.ConstantTensor(dtype(), in.bias);
    call.weights.in_features = c.in_features;
    call.weights.out_features = c.out_features;
    call.args = MakeArgs(memory, c, in.x);
    return call;
  }

  // The bytes of rows [0, c.rows) of the output.
  std::vector<std::byte> RowBytes(const LinearCase& c, const Input& in, WeightLayout layout,
                                  LinearCandidate candidate) {
    GuardedMemory memory(device(), stream());
    return LinearFixture::RowBytes(memory, c, MakeCall(memory, c, in, layout), candidate);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearFp8Test);

// An emulator has what is its own: the portable kernel is the host's, but for a few cases.
TEST_P(LinearFp8Test, MatchesTheOracleAndTouchesNothingElse) {
  if (is_emulated() && dtype() == DType::kF32) GTEST_SKIP() << "needs 16 bits under emulation";
  size_t index = 0;
  for (const LinearCase& c : kernels::kLinearCases) {
    const bool runs_portable = IsOfThisUnit(index++) && (!is_emulated() || c.rows <= 3);
    const Input in(c, dtype());
    const Expected expected =
        OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale);
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
        ExpectNear(memory.ReadTensor(OutType(c), call.args.out), expected, OutType(c));
        for (const uint32_t counter : memory.Read(call.args.counters)) EXPECT_EQ(counter, 0u);
      }
    }
  }
}

// Picks rows of a case's 70 and runs them alone, and as the last of a few in every kind of bucket.
TEST_P(LinearFp8Test, ARowsBitsDependNeitherOnItsNeighboursNorOnTheBucket) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  constexpr uint32_t kRows = 70;
  // Without a rounding to 16 bits, which would hide a difference: a part and a half and a third of
  // a chunk, inputs that are no whole chunks.
  const LinearCase shapes[] = {{"uneven", 792, 72, kRows, kRows, true, 1.0f, true},
                               {"odd", 131, 45, kRows, kRows, false, 1.0f, true}};
  const LinearCase buckets[] = {{"1", 0, 0, 1, 1},    {"3", 0, 0, 3, 8},
                                {"12", 0, 0, 12, 16}, {"20", 0, 0, 20, 32},
                                {"33", 0, 0, 33, 64}, {"70 of 200", 0, 0, 70, 200}};
  for (const LinearCase& shape : shapes) {
    const Input in(shape, dtype());
    const size_t k = static_cast<size_t>(shape.in_features);
    for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
      const std::vector<std::byte> all = RowBytes(shape, in, layout, LinearCandidate::kBest);
      const size_t row_bytes = all.size() / kRows;
      for (const LinearCase& bucket : buckets) {
        SCOPED_TRACE(
            absl::StrCat(shape.name, ", ", std::string(NameOf(layout)), ", ", bucket.name));
        LinearCase c = shape;
        c.rows = bucket.rows;
        c.max_rows = bucket.max_rows;
        const uint32_t first = (bucket.rows * 37 + 5) % (kRows - bucket.rows + 1);
        Input part = in;
        const auto begin = in.x.begin() + static_cast<ptrdiff_t>(first * k);
        part.x.assign(begin, begin + static_cast<ptrdiff_t>(c.rows * k));
        const std::vector<std::byte> got = RowBytes(c, part, layout, LinearCandidate::kBest);
        EXPECT_TRUE(std::equal(got.begin(), got.end(),
                               all.begin() + static_cast<ptrdiff_t>(first * row_bytes)));
      }
    }
  }
}

// Whatever a launch of linear_group_fp8 chooses, and linear_stream_fp8: the same bits.
TEST_P(LinearFp8Test, EveryShapeOfLinearGroupHasTheBitsOfLinearStream) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  const kernels::LoadedKernel* const few = kernels().Find(kernels::kLinearStreamFp8, 8);
  if (dtype() == DType::kF32 || few == nullptr || !kernels().traits().group_products)
    GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  // Inputs: two parts and 7 of 8 chunks, the last one short; whole chunks, and two parts of which
  // the second has one. Outputs: ten tiles, the last one half.
  for (const int32_t in_features : {1464, 576}) {
    const LinearCase c{"", in_features, 152, 7, 7, true, 0.5f, true};
    const Input in(c, dtype());
    GuardedMemory memory(device(), stream());
    const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
    const LinearArgs linear = WithWeights(call.weights, call.args);
    ASSERT_OK(stream().Launch(few->kernel,
                              {.grid_x = 3,
                               .block = few->threads,
                               .shared_bytes = kernels::StreamLayoutOf(*few->instance).bytes},
                              linear));
    memory.Check();
    ExpectEveryGroupShapeHasTheBits(device(), stream(), kernels(), memory, kernels::kLinearGroupFp8,
                                    WeightFormat::kE4m3, linear, c.max_rows,
                                    memory.ReadBytes(linear.out));
  }
}

// What a table may say: of packed weights by matrix units many, of others one.
TEST_P(LinearFp8Test, EveryKernelOfATableHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const uint32_t max_rows : {2u, 20u}) {
    LinearCase c{"", 720, 152, max_rows - 1, max_rows, true, 0.5f, true};
    const Input in(c, dtype());
    SCOPED_TRACE(absl::StrCat(max_rows, " rows"));
    ExpectEveryKernelOfATableHasTheBits(
        c, [&](GuardedMemory& memory) { return MakeCall(memory, c, in, WeightLayout::kPacked); });
  }
}

// Whoever takes a tile: inputs of one part, of three, the last one short, and of eight, which is a
// round of all warps.
TEST_P(LinearFp8Test, EveryGridOfLinearStreamHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStreamFp8, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  for (const int32_t in_features : {512, 1288, 4096}) {
    for (const uint32_t rows : {2u, 7u, 13u}) {
      const LinearCase c{"", in_features, 232, rows, rows, true, 0.5f, true};
      const Input in(c, dtype());
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
      ExpectEveryGridHasTheBits(stream(), memory, kernels(), kernels::kLinearStreamFp8, rows,
                                WithWeights(call.weights, call.args), size_t{rows} * 232 * 4);
    }
  }
}

// SiLU of the first half times the second.
TEST_P(LinearFp8Test, MultipliesPairsLikeTheOracleWithTheSameBitsInEveryBucket) {
  if (!TakesPairs()) GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const LinearCase c{"", 712, 80, 3, 3, true, 2.0f, true};
  const Input in(c, dtype());
  const Expected all =
      OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale);
  ExpectPairsHaveTheSameBitsInEveryBucket(
      c, all, [&](GuardedMemory& memory, const LinearCase& bucket) {
        return MakeCall(memory, bucket, in, WeightLayout::kPackedPairs);
      });
}

// Every element times 1, alone in its row: what it is worth, to the bit, subnormal numbers too.
TEST_P(LinearFp8Test, EveryElementIsWorthWhatItsFormatSays) {
  std::vector<double> values;
  for (int code = 0; code < 256; ++code) {
    const std::byte byte{static_cast<uint8_t>(code)};
    const double value = Decode(DType::kE4m3, {&byte, 1})[0];
    if (!std::isnan(value)) values.push_back(value);
  }
  ASSERT_EQ(values.size(), 254u);
  const auto n = static_cast<int32_t>(values.size());
  for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
    for (const int32_t place : {0, 7, 9, 14, 70, 200}) {
      LinearCase c{"", 208, n, 1, 1, false, 1.0f, true};
      Input in(c, dtype());
      std::fill(in.x.begin(), in.x.end(), 0.0);
      std::fill(in.elements.begin(), in.elements.end(), 1.0);
      std::fill(in.scales.begin(), in.scales.end(), 0.5f);
      in.x[static_cast<size_t>(place)] = 2.0;
      for (size_t i = 0; i < values.size(); ++i)
        in.elements[i * 208 + static_cast<size_t>(place)] = values[i];
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, layout);
      ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, 1));
      EXPECT_EQ(memory.ReadTensor(DType::kF32, call.args.out), values)
          << NameOf(layout) << ", input " << place;
    }
  }
}

TEST_P(LinearFp8Test, RefusesWeightsWithoutTheirScales) {
  const float number = 1.0f;
  LinearWeights good;
  good.format = WeightFormat::kE4m3;
  good.in_features = good.out_features = 8;
  good.scales = &number;
  good.group_size = kernels::kScaleInputs;
  LinearWeights weights = good;
  weights.scales = nullptr;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "fp8_e4m3 have no scales"));
  weights = good;
  weights.group_size = 64;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "group size of 64; allowed: scales"));
}

// The host's native linear in every form that this CPU runs.
using LinearFp8InstructionSetTest = LinearFp8Test;
INSTANTIATE_TEST_SUITE_P(Host, LinearFp8InstructionSetTest,
                         ::testing::Values(KernelTestParam{.dtype = DType::kF32},
                                           KernelTestParam{.dtype = DType::kBf16},
                                           KernelTestParam{.dtype = DType::kF16}),
                         NameOfParam);

TEST_P(LinearFp8InstructionSetTest, MatchesTheOracleAndARowsBitsAreItsOwn) {
  for (const auto& target : kernels::on_host::NativeLinearTargets()) {
    const runtime::HostKernelFn entry = dtype() == DType::kF32    ? target.f32_e4m3
                                        : dtype() == DType::kBf16 ? target.bf16_e4m3
                                                                  : target.f16_e4m3;
    const runtime::KernelDef def[] = {{.name = "linear", .host = entry}};
    ASSERT_OK_AND_ASSIGN(const auto module, device().Load({.kernels = def, .cuda_fatbins = {}}));
    ASSERT_OK_AND_ASSIGN(const runtime::Kernel kernel, module->Find("linear"));
    for (const LinearCase& c : HostLinearCases()) {
      SCOPED_TRACE(absl::StrCat(target.name, ", ", c.name));
      const Input in(c, dtype());
      const auto run = [&](const LinearCase& of, const Input& input) {
        GuardedMemory memory(device(), stream());
        const Call call = MakeCall(memory, of, input, WeightLayout::kRowMajor);
        LinearArgs args = call.args;
        args.weight = call.weights.data;
        args.scales = call.weights.scales;
        args.bias = call.weights.bias;
        args.in_features = of.in_features;
        args.out_features = of.out_features;
        const auto tiles = static_cast<unsigned>(
            (of.out_features + kernels::kNativeTileFeatures - 1) / kernels::kNativeTileFeatures);
        EXPECT_OK(stream().Launch(kernel, {.grid_x = tiles}, args));
        memory.Check();
        return memory.ReadTensor(OutType(of), args.out);
      };
      const std::vector<double> got = run(c, in);
      ExpectNear(
          got, OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale),
          OutType(c));
      if (c.rows < 2) continue;
      LinearCase alone = c;
      alone.rows = alone.max_rows = 1;
      Input last = in;
      last.x.assign(in.x.end() - c.in_features, in.x.end());
      const std::vector<double> row = run(alone, last);
      const auto begin = got.begin() + static_cast<ptrdiff_t>(c.rows - 1) * c.out_features;
      EXPECT_TRUE(std::equal(row.begin(), row.end(), begin));
    }
  }
}

// RmsNorm in front, or the sum behind, done by linear_stream.
TEST_P(LinearFp8Test, NormOfTheInputAndSumBehindHaveTheBitsOfTheirOwnKernels) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStreamFp8, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  ExpectResidualCasesHaveTheBits(
      device(), stream(), kernels(),
      [&](GuardedMemory& memory, const LinearCase& c, WeightLayout layout) {
        return MakeCall(memory, c, Input(c, dtype()), layout);
      });
}

}  // namespace
}  // namespace reprise::testing
