// SPDX-License-Identifier: Apache-2.0
// Linear with weights of 4 bits, whose values are (element - zero point) * scale: against the
// oracle, to which those products are given in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
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
constexpr uint8_t kFiller = 13;
constexpr float kScaleFiller = 3.0f;

struct Input {
  std::vector<double> x, weight, bias;
  std::vector<uint8_t> elements;
  std::vector<float> scales;  // [out_features, groups], with zero points
  size_t groups, inputs;      // of a scale

  Input(const LinearCase& c, DType dtype) {
    Random random(static_cast<uint64_t>(c.in_features) * 1013 + c.rows);
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    inputs = size_t{32} << (k + n + c.rows) % 3;  // 32, 64 or 128, by the case
    groups = ((k + 63) / 64 * 64 + inputs - 1) / inputs;
    x = random.Tensor(dtype, c.rows * k);
    const auto below = [&](uint32_t end) {
      return static_cast<uint32_t>(random.Uniform() * end) % end;
    };
    for (size_t i = 0; i < n * k; ++i) elements.push_back(static_cast<uint8_t>(below(16)));
    std::vector<double> worth;
    std::vector<uint32_t> zeros;
    for (size_t i = 0; i < n * groups; ++i) {
      const auto scale = static_cast<float>((0.5 + random.Uniform()) / std::sqrt(25.0 * k));
      const uint32_t bits = std::bit_cast<uint32_t>(scale) & ~31u;
      zeros.push_back(i % 5 == 0 ? 8 : below(16));
      worth.push_back(std::bit_cast<float>(bits));
      scales.push_back(std::bit_cast<float>(bits | zeros.back()));
    }
    for (size_t i = 0; i < n * k; ++i) {
      const size_t scale = i / k * groups + i % k / inputs;
      weight.push_back((elements[i] - static_cast<double>(zeros[scale])) * worth[scale]);
    }
    if (c.bias) bias = random.Tensor(dtype, n);
  }
};

class LinearInt4Test : public LinearFixture {
 protected:
  // Over fresh buffers: rows of x beyond the live ones are NaN, all of the output is poisoned.
  Call MakeCall(GuardedMemory& memory, const LinearCase& c, const Input& in, WeightLayout layout) {
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    std::vector<uint8_t> elements = in.elements;
    std::vector<float> scales = in.scales;
    if (layout == WeightLayout::kPackedPairs) {
      elements = RowsInTurns(elements, n, k);
      scales = RowsInTurns(scales, n, in.groups);
    }
    const bool packed = layout != WeightLayout::kRowMajor;
    elements = Int4Bytes(elements, n, k, packed, kFiller);
    if (packed) scales = PackedFp8Scales(scales, n, in.groups, kScaleFiller);
    Call call;
    call.weights.format = WeightFormat::kInt4;
    call.weights.layout = layout;
    call.weights.data = memory.Constant(elements);
    call.weights.scales = memory.Constant(scales);
    call.weights.group_size = static_cast<int32_t>(in.inputs);
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
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearInt4Test);

// An emulator has what is its own: the portable kernel is the host's, but for a few cases.
TEST_P(LinearInt4Test, MatchesTheOracleAndTouchesNothingElse) {
  if (is_emulated() && dtype() == DType::kF32) GTEST_SKIP() << "needs 16 bits under emulation";
  size_t index = 0;
  for (const LinearCase& c : kernels::kLinearCases) {
    const bool runs_portable = IsOfThisUnit(index++) && (!is_emulated() || c.rows <= 3);
    if (is_emulated() && c.rows > 70) continue;
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
TEST_P(LinearInt4Test, ARowsBitsDependNeitherOnItsNeighboursNorOnTheBucket) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  constexpr uint32_t kRows = 70;
  // Without a rounding to 16 bits, which would hide a difference: a part and a half and a third of
  // a chunk, inputs that are no whole chunks.
  const LinearCase shapes[] = {{"scales of 32", 800, 72, kRows, kRows, true, 1.0f, true},
                               {"of 64", 616, 47, kRows, kRows, false, 1.0f, true},
                               {"of 128", 712, 45, kRows, kRows, false, 1.0f, true}};
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

// Whatever a launch of linear_group_int4 chooses, and linear_stream_int4: the same bits.
TEST_P(LinearInt4Test, EveryShapeOfLinearGroupHasTheBitsOfLinearStream) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStreamInt4, 8) == nullptr ||
      !kernels().traits().group_products)
    GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  // Inputs: scales of 32 and of 64, two parts and 7 of 8 chunks, the last one short; of 128 and of
  // 32, whole chunks, two parts of which the second has three and one. Outputs: ten tiles, the last
  // one half.
  size_t next = 0;
  for (const int32_t in_features : {1464, 1456, 704, 576}) {
    const LinearCase c{"", in_features, 152, 7, 7, true, 0.5f, true};
    const Input in(c, dtype());
    EXPECT_EQ(in.inputs, (std::vector<size_t>{32, 64, 128, 32})[next++]);
    GuardedMemory memory(device(), stream());
    const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
    const LinearArgs linear = WithWeights(call.weights, call.args);
    const kernels::LoadedKernel* const few =
        kernels().Find(in.inputs == kernels::kScaleInputs ? kernels::kLinearStreamInt4
                                                          : kernels::kLinearStreamFineInt4,
                       8);
    ASSERT_NE(few, nullptr);
    ASSERT_OK(stream().Launch(few->kernel,
                              {.grid_x = 3,
                               .block = few->threads,
                               .shared_bytes = kernels::StreamLayoutOf(*few->instance).bytes},
                              linear));
    memory.Check();
    const std::vector<std::byte> expected = memory.ReadBytes(linear.out);
    LinearArgs of_more = linear;
    of_more.out = memory.Poisoned(expected.size());
    const kernels::LoadedKernel& more = kernels().Get(*few->instance->family, 16);
    ASSERT_OK(stream().Launch(more.kernel,
                              {.grid_x = 3,
                               .block = more.threads,
                               .shared_bytes = kernels::StreamLayoutOf(*more.instance).bytes},
                              of_more));
    memory.Check();
    EXPECT_EQ(memory.ReadBytes(of_more.out), expected);
    ExpectEveryGroupShapeHasTheBits(device(), stream(), kernels(), memory,
                                    kernels::kLinearGroupInt4, WeightFormat::kInt4, linear,
                                    c.max_rows, expected);
  }
}

// What a table may say, with scales of 32, 128 and 64 inputs.
TEST_P(LinearInt4Test, EveryKernelOfATableHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  const LinearCase cases[] = {{"few_rows", 720, 152, 1, 2, true, 0.5f, true},
                              {"more_rows", 728, 152, 19, 20, true, 0.5f, true},
                              {"as_many", 736, 152, 19, 20, false, 1.0f, true}};
  for (const LinearCase& c : cases) {
    const Input in(c, dtype());
    SCOPED_TRACE(absl::StrCat(c.name, ", ", in.inputs, " inputs of a scale"));
    ExpectEveryKernelOfATableHasTheBits(
        c, [&](GuardedMemory& memory) { return MakeCall(memory, c, in, WeightLayout::kPacked); });
  }
}

// Whoever takes a tile: inputs of one part, of three, the last one short, and of eight, which is a
// round of all warps.
TEST_P(LinearInt4Test, EveryGridOfLinearStreamHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStreamInt4, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  // Scales of 32, 64 and 128 inputs, by the outputs.
  for (const int32_t in_features : {512, 1288, 4096}) {
    for (const int32_t out_features : {232, 233, 234}) {
      // Of 16 tokens too, where tokens are read again for every part, and of few.
      for (const uint32_t rows : {2u, in_features == 1288 ? 13u : 7u}) {
        const LinearCase c{"", in_features, out_features, rows, rows, true, 0.5f, true};
        const Input in(c, dtype());
        GuardedMemory memory(device(), stream());
        const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
        const bool fine = in.inputs != kernels::kScaleInputs;
        ExpectEveryGridHasTheBits(
            stream(), memory, kernels(),
            fine ? kernels::kLinearStreamFineInt4 : kernels::kLinearStreamInt4, rows,
            WithWeights(call.weights, call.args), rows * static_cast<size_t>(out_features) * 4);
      }
    }
  }
}

// SiLU of the first half times the second.
TEST_P(LinearInt4Test, MultipliesPairsLikeTheOracleWithTheSameBitsInEveryBucket) {
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

// Every element less every zero point, alone in its row: what it is worth, to the bit.
TEST_P(LinearInt4Test, EveryElementIsWorthWhatItsFormatSays) {
  std::vector<double> values;
  for (int zero = 0; zero < 16; ++zero)
    for (int element = 0; element < 16; ++element) values.push_back(element - zero);
  for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
    for (const int32_t place : {0, 9, 14, 70, 200}) {
      const LinearCase c{"", 208, 256, 1, 1, false, 1.0f, true};
      Input in(c, dtype());
      std::fill(in.x.begin(), in.x.end(), 0.0);
      in.x[static_cast<size_t>(place)] = 2.0;
      for (size_t row = 0; row < 256; ++row) {
        in.elements[row * 208 + static_cast<size_t>(place)] = row % 16;
        for (size_t group = 0; group < in.groups; ++group)
          in.scales[row * in.groups + group] =
              std::bit_cast<float>(std::bit_cast<uint32_t>(0.5f) | static_cast<uint32_t>(row / 16));
      }
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, layout);
      ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, 1));
      EXPECT_EQ(memory.ReadTensor(DType::kF32, call.args.out), values)
          << NameOf(layout) << ", input " << place;
    }
  }
}

TEST_P(LinearInt4Test, RefusesWeightsWithoutTheirScales) {
  const float number = 1.0f;
  LinearWeights good;
  good.format = WeightFormat::kInt4;
  good.in_features = good.out_features = 8;
  good.scales = &number;
  good.group_size = 64;
  LinearWeights weights = good;
  weights.scales = nullptr;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "int4 have no scales"));
  weights = good;
  weights.group_size = 96;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "group size of 96; allowed: scales and a group size of 32, 64 or 128"));
}

// The host's native linear in every form that this CPU runs.
using LinearInt4InstructionSetTest = LinearInt4Test;
INSTANTIATE_TEST_SUITE_P(Host, LinearInt4InstructionSetTest,
                         ::testing::Values(KernelTestParam{.dtype = DType::kF32},
                                           KernelTestParam{.dtype = DType::kBf16},
                                           KernelTestParam{.dtype = DType::kF16}),
                         NameOfParam);

TEST_P(LinearInt4InstructionSetTest, MatchesTheOracleAndARowsBitsAreItsOwn) {
  for (const auto& target : kernels::on_host::NativeLinearTargets()) {
    const runtime::HostKernelFn entry = dtype() == DType::kF32    ? target.f32_int4
                                        : dtype() == DType::kBf16 ? target.bf16_int4
                                                                  : target.f16_int4;
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
        args.scale_inputs = call.weights.group_size;
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
TEST_P(LinearInt4Test, NormOfTheInputAndSumBehindHaveTheBitsOfTheirOwnKernels) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStreamInt4, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  ExpectResidualCasesHaveTheBits(
      device(), stream(), kernels(),
      [&](GuardedMemory& memory, const LinearCase& c, WeightLayout layout) {
        return MakeCall(memory, c, Input(c, dtype()), layout);
      });
}

}  // namespace
}  // namespace reprise::testing
