// SPDX-License-Identifier: Apache-2.0
// Linear of packed weights: the kernels that read them, launched in shapes that Linear would not
// choose, and the one order of K of all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "runtime/map_tiles.h"
#include "tests/kernels/linear_fixture.h"
#include "tests/kernels/linear_residual.h"
#include "tests/kernels/linear_stream_grids.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::DeviceTraits;
using kernels::LinearArgs;
using kernels::LinearCandidate;
using kernels::LinearCase;
using kernels::LinearWeights;
using kernels::WeightLayout;
using runtime::DType;

class LinearPackedTest : public LinearFixture {
 protected:
  bool HasGroups() const {
    return dtype() != DType::kF32 && kernels().traits().group_products &&
           kernels().Find(kernels::kLinearStream, 16) != nullptr;
  }

  // The output's bytes, by linear_stream.
  std::vector<std::byte> StreamBytes(GuardedMemory& memory, const LinearArgs& linear) {
    const kernels::LoadedKernel& few = kernels().Get(kernels::kLinearStream, 16);
    EXPECT_OK(stream().Launch(few.kernel,
                              {.grid_x = 3,
                               .block = few.threads,
                               .shared_bytes = kernels::StreamLayoutOf(*few.instance).bytes},
                              linear));
    memory.Check();
    return memory.ReadBytes(linear.out);
  }

  // A launch of linear_group.
  struct GroupShape {
    int tokens, span, chunks, copied_rows, columns;
  };
  // The bytes of its output, of f32.
  std::vector<std::byte> GroupBytes(GuardedMemory& memory, const LinearArgs& linear,
                                    const LinearCase& c, const GroupShape& s) {
    SCOPED_TRACE(absl::StrCat("tokens ", s.tokens, ", span ", s.span, ", chunks ", s.chunks));
    const kernels::LoadedKernel& group = kernels().Get(kernels::kLinearGroup, s.tokens);
    kernels::LinearGroupArgs args{
        .linear = linear, .span = s.span, .stage_chunks = s.chunks, .copied_rows = s.copied_rows};
    args.linear.out = memory.Poisoned(c.max_rows * static_cast<size_t>(c.out_features) * 4);
    const runtime::DeviceKind kind = device().kind();
    const auto tokens = MapTiles(kind, LinearGroupTokens(args, c.max_rows));
    const auto weights = MapTiles(kind, LinearGroupWeights(args, kernels::kGroup16));
    EXPECT_OK(tokens.status());
    EXPECT_OK(weights.status());
    if (!tokens.ok() || !weights.ok()) return {};
    args.tokens = *tokens;
    args.weights = *weights;
    EXPECT_OK(stream().Launch(
        group.kernel,
        {.grid_x = static_cast<unsigned>(s.columns),
         .block = group.threads,
         .shared_bytes = kernels::LinearGroupSharedBytes(kernels().traits().shared_bytes, s.tokens,
                                                         s.span, s.chunks, kernels::kGroup16)},
        args));
    memory.Check();
    ExpectCountersZero(memory, args.linear);
    return memory.ReadBytes(args.linear.out);
  }

  // x[k] and weight[k] of all outputs, zero elsewhere.
  struct Term {
    size_t k;
    double x, weight;
  };
  // Of one row, in every kind of bucket.
  void ExpectSums(std::span<const Term> terms, size_t in_features, double sum) {
    constexpr size_t kOut = 16;
    const LinearCase shape{"", static_cast<int32_t>(in_features), kOut, 1, 1, false, 1.0f, true};
    LinearInput in(shape, dtype());
    std::fill(in.x.begin(), in.x.end(), 0.0);
    std::fill(in.weight.begin(), in.weight.end(), 0.0);
    for (const Term& term : terms) {
      in.x[term.k] = term.x;
      for (size_t n = 0; n < kOut; ++n) in.weight[n * in_features + term.k] = term.weight;
    }
    for (const uint32_t max_rows : {1u, 8u, 16u, 32u, 64u, 128u, 300u}) {
      LinearCase c = shape;
      c.max_rows = max_rows;
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
      ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows));
      memory.Check();
      ExpectCountersZero(memory, call.args);
      const std::vector<double> out = memory.ReadTensor(DType::kF32, call.args.out);
      for (size_t n = 0; n < kOut; ++n)
        EXPECT_EQ(out[n], sum) << "rows of the bucket: " << max_rows;
    }
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearPackedTest);

// SiLU of the first half times the second, from gates far on either side of 0.
TEST_P(LinearPackedTest, MultipliesPairsLikeTheOracle) {
  if (!TakesPairs()) GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const LinearCase cases[] = {{"one_row", 64, 32, 1, 1},
                              {"three_rows", 200, 112, 3, 8, true},
                              {"eleven_rows", 136, 80, 11, 16, false, 4.0f},
                              {"twenty_rows", 712, 80, 20, 24, true, 2.0f},
                              {"thirty_rows_of_three_parts", 1032, 64, 30, 40, true},
                              {"forty_rows", 136, 208, 40, 64, true, 1.0f, true},
                              {"hundred_thirty_rows", 128, 48, 130, 130, false, -3.0f}};
  for (const LinearCase& c : cases) {
    SCOPED_TRACE(c.name);
    const LinearInput in(c, dtype());
    const size_t n = static_cast<size_t>(c.out_features), half = n / 2;
    const Expected all =
        OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale);
    const Expected product = OracleSiluMul(all.value, half);
    Expected expected;
    for (size_t i = 0; i < product.value.size(); ++i) {
      const size_t gate = i / half * n + i % half, up = gate + half;
      // SiLU rises by at most 1.1, and stays below its argument.
      expected.Add(product.value[i],
                   product.slack[i] + 1.1 * all.slack[gate] * std::fabs(all.value[up]) +
                       (std::fabs(all.value[gate]) + all.slack[gate]) * all.slack[up]);
    }
    GuardedMemory memory(device(), stream());
    Call call = MakeCall(memory, c, in, WeightLayout::kPackedPairs);
    call.args.silu_mul = 1;
    call.args.out = memory.Poisoned(c.max_rows * half * SizeOf(OutType(c)));
    ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows));
    memory.Check();
    ExpectNear(memory.ReadTensor(OutType(c), call.args.out), expected, OutType(c));
  }
}

// Rows of three kernels, or the one that the device has.
TEST_P(LinearPackedTest, PairsHaveTheSameBitsInEveryBucket) {
  if (!TakesPairs()) GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const LinearCase shape{"", 1096, 48, 1, 1, true, 1.0f, true};
  const LinearInput in(shape, dtype());
  std::vector<std::byte> first;
  for (const uint32_t max_rows : {1u, 8u, 16u, 32u, 128u, 300u}) {
    LinearCase c = shape;
    c.max_rows = max_rows;
    GuardedMemory memory(device(), stream());
    Call call = MakeCall(memory, c, in, WeightLayout::kPackedPairs);
    call.args.silu_mul = 1;
    call.args.out = memory.Poisoned(max_rows * 24 * sizeof(float));
    ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, max_rows));
    std::vector<std::byte> bytes = memory.ReadBytes(call.args.out);
    bytes.resize(24 * sizeof(float));
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << "rows of the bucket: " << max_rows;
  }
}

// linear_packed is what packed weights go through where there are neither bulk copies nor products
// of warpgroups, on devices of the same unit as some that have both.
TEST_P(LinearPackedTest, ThePackedKernelHasTheBitsOfThoseBeforeIt) {
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearPacked) == nullptr)
    GTEST_SKIP() << "needs matrix units, and 16 bits";
  const DeviceTraits traits = kernels().traits();
  const LinearCase cases[] = {{"five_rows", 712, 80, 5, 5, true, 1.0f, true},
                              {"forty_rows", 1096, 144, 40, 40, false, 0.5f, true},
                              {"many_rows", 136, 208, 140, 140, true, 1.0f, true}};
  for (const LinearCase& c : cases) {
    const LinearInput in(c, dtype());
    for (const bool pairs : {false, true}) {
      if (pairs && !TakesPairs()) continue;
      GuardedMemory memory(device(), stream());
      const Call call =
          MakeCall(memory, c, in, pairs ? WeightLayout::kPackedPairs : WeightLayout::kPacked);
      LinearArgs args = kernels::WithWeights(call.weights, call.args);
      args.silu_mul = pairs ? 1 : 0;
      const auto features = static_cast<size_t>(c.out_features) / (pairs ? 2 : 1);
      args.out = memory.Poisoned(c.rows * features * sizeof(float));
      ASSERT_OK(Linear(stream(), kernels(), call.weights, args, c.max_rows));
      const std::vector<std::byte> expected = memory.ReadBytes(args.out);
      for (const int tile : {32, 64, 0}) {
        SCOPED_TRACE(absl::StrCat(c.name, pairs ? ", pairs" : "", ", tile ", tile));
        const kernels::LoadedKernel* const kernel = kernels().Find(kernels::kLinearPacked, tile);
        ASSERT_NE(kernel, nullptr);
        const int rows = tile != 0 ? tile : kernels::PackedMaxRows(traits, 16);
        const int outputs = kernels::PackedTileFeatures(rows);
        args.out = memory.Poisoned(c.rows * features * sizeof(float));
        ASSERT_OK(stream().Launch(
            kernel->kernel,
            {.grid_x = static_cast<unsigned>((c.out_features + outputs - 1) / outputs),
             .grid_y = (c.max_rows + static_cast<unsigned>(rows) - 1) / static_cast<unsigned>(rows),
             .block = kernel->threads,
             .shared_bytes = static_cast<size_t>(kernels::PackedSharedBytes(traits, rows, 16))},
            args));
        memory.Check();
        EXPECT_EQ(memory.ReadBytes(args.out), expected);
      }
    }
  }
}

// Whoever takes a tile: inputs of one part, of three, the last one short, and of eight, which is a
// round of all warps.
TEST_P(LinearPackedTest, EveryGridOfLinearStreamHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStream, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  for (const uint32_t rows : {2u, 7u, 15u}) {
    for (const int32_t in_features : {512, 1288, 4096}) {
      const LinearCase c{"", in_features, 232, rows, rows, true, 0.5f, true};
      const LinearInput in(c, dtype());
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
      ExpectEveryGridHasTheBits(stream(), memory, kernels(), kernels::kLinearStream, rows,
                                WithWeights(call.weights, call.args), size_t{rows} * 232 * 4);
    }
  }
}

// The same with a norm of what is read and a sum of what is written.
TEST_P(LinearPackedTest, EveryGridHasTheSameBitsWithNormAndSum) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStream, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  for (const int32_t in_features : {512, 2008, 4096}) {
    for (const uint32_t rows : {1u, 7u}) {
      const LinearCase c{"", in_features, 232, rows, rows, true, 0.5f};
      const LinearInput in(c, dtype());
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
      Random random(static_cast<uint64_t>(in_features));
      LinearArgs linear = WithWeights(call.weights, call.args);
      linear.norm_weight =
          memory.ConstantTensor(dtype(), random.Tensor(dtype(), static_cast<size_t>(in_features)));
      linear.norm_eps = 1e-5f;
      linear.adds_to_out = 1;
      const std::vector<std::byte> held =
          Encode(dtype(), random.Tensor(dtype(), rows * size_t{232}));
      ExpectEveryGridHasTheBits(stream(), memory, kernels(), kernels::kLinearStream, rows, linear,
                                held.size(), held);
    }
  }
}

// Whatever a launch of linear_group chooses, and linear_stream, which takes as many rows as its
// tile: the same bits.
TEST_P(LinearPackedTest, EveryShapeOfLinearGroupHasTheBitsOfLinearStream) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (!HasGroups()) GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  // Inputs: a part and a half, and a third of a chunk. Outputs: ten tiles, the last one half.
  const LinearCase c{"", 792, 152, 13, 13, true, 0.5f, true};
  const LinearInput in(c, dtype());
  GuardedMemory memory(device(), stream());
  const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
  const LinearArgs linear = WithWeights(call.weights, call.args);
  const std::vector<std::byte> expected = StreamBytes(memory, linear);
  for (const GroupShape& s :
       {GroupShape{16, 1, 2, 16, 4}, GroupShape{16, 1, 4, 16, 10}, GroupShape{16, 3, 2, 16, 2},
        GroupShape{16, 8, 4, 16, 1}, GroupShape{32, 2, 4, 32, 5}, GroupShape{32, 5, 2, 32, 2},
        GroupShape{64, 4, 2, 64, 2}, GroupShape{64, 7, 2, 64, 1}, GroupShape{128, 1, 1, 128, 3},
        GroupShape{128, 6, 2, 64, 2}, GroupShape{128, 8, 1, 64, 2}})
    EXPECT_EQ(GroupBytes(memory, linear, c, s), expected);
}

// What a table may say of few rows and of more: a part and a half of inputs, and a third of a
// chunk. Ten tiles of outputs, the last one half, or four, for which a device of three
// multiprocessors has room in clusters.
TEST_P(LinearPackedTest, EveryKernelOfATableHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  const LinearCase cases[] = {{"few_rows", 792, 152, 1, 2, true, 0.5f, true},
                              {"more_rows", 792, 152, 19, 20, true, 0.5f, true},
                              {"few_rows_and_outputs", 792, 56, 1, 2, true, 0.5f, true},
                              {"few_outputs", 792, 56, 19, 20, true, 0.5f, true}};
  for (const LinearCase& c : cases) {
    const LinearInput in(c, dtype());
    for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPacked}) {
      if (layout == WeightLayout::kPacked && dtype() == DType::kF32) continue;
      SCOPED_TRACE(absl::StrCat(c.name, ", ", std::string(NameOf(layout))));
      ExpectEveryKernelOfATableHasTheBits(
          c, [&](GuardedMemory& memory) { return MakeCall(memory, c, in, layout); });
    }
  }
  if (!TakesPairs()) return;
  LinearCase c{"", 792, 160, 7, 8, true, 0.5f, true};
  const LinearInput in(c, dtype());
  ExpectEveryKernelOfATableHasTheBits(c, [&](GuardedMemory& memory) {
    Call call = MakeCall(memory, c, in, WeightLayout::kPackedPairs);
    call.args.silu_mul = 1;
    return call;
  });
}

TEST_P(LinearPackedTest, RefusesPairsThatNothingTakes) {
  LinearWeights weights;
  weights.format = kernels::WeightFormatOf(dtype());
  weights.in_features = weights.out_features = 16;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.silu_mul = 1}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "silu_mul is 1 with weights that lie row-major; allowed: 1 with packed"));
  if (dtype() == DType::kF32) return;
  weights.layout = WeightLayout::kPackedPairs;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "silu_mul is 0 with weights that lie packed pairs"));
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.silu_mul = 1}, 1, LinearCandidate::kPortable),
              StatusIs(absl::StatusCode::kUnimplemented, "packed pairs"));
  weights.out_features = 24;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.silu_mul = 1}, 1),
              StatusIs(absl::StatusCode::kUnimplemented, "packed pairs of 24 by 16; allowed"));
}

TEST_P(LinearPackedTest, RefusesNormsAndSumsThatNothingTakes) {
  const uint16_t norm[8] = {};
  LinearWeights weights;
  weights.format = kernels::WeightFormatOf(dtype());
  weights.in_features = weights.out_features = 16;
  // Row-major, whatever the device.
  EXPECT_FALSE(LinearNormsInput(kernels(), weights, 1));
  EXPECT_FALSE(LinearAddsToOut(kernels(), weights, 1));
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.norm_weight = norm}, 1),
              StatusIs(kUnimplemented, "a norm of the input with 1 rows of 16 inputs; allowed"));
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.adds_to_out = 1}, 1),
              StatusIs(kUnimplemented, "adds_to_out with 1 rows; allowed: where LinearAddsToOut"));
  EXPECT_THAT(Linear(stream(), kernels(), weights, {.out_is_f32 = 1, .adds_to_out = 1}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "adds_to_out with out_is_f32"));
  if (dtype() == DType::kF32) return;
  weights.layout = WeightLayout::kPacked;
  const bool streams = kernels().Find(kernels::kLinearStream, 8) != nullptr;
  EXPECT_EQ(LinearNormsInput(kernels(), weights, 4), streams);
  EXPECT_EQ(LinearAddsToOut(kernels(), weights, 8), streams);
  for (const uint32_t many : {9u, 300u}) EXPECT_FALSE(LinearAddsToOut(kernels(), weights, many));
  for (const uint32_t many : {5u, 9u, 300u})
    EXPECT_FALSE(LinearNormsInput(kernels(), weights, many));
  EXPECT_THAT(
      Linear(stream(), kernels(), weights, {.norm_weight = norm}, 1, LinearCandidate::kPortable),
      StatusIs(kUnimplemented, "a norm of the input"));
  EXPECT_THAT(
      Linear(stream(), kernels(), weights, {.adds_to_out = 1}, 1, LinearCandidate::kPortable),
      StatusIs(kUnimplemented, "adds_to_out"));
  for (const int64_t inputs : {1032, 1536, 2056, 3584, 4104}) {
    weights.in_features = inputs;
    EXPECT_FALSE(LinearNormsInput(kernels(), weights, 1)) << inputs;
  }
  EXPECT_EQ(LinearAddsToOut(kernels(), weights, 8), streams);
  weights.layout = WeightLayout::kPackedPairs;
  EXPECT_THAT(
      Linear(stream(), kernels(), weights, {.silu_mul = 1, .adds_to_out = 1}, 1),
      ::testing::AnyOf(StatusIs(absl::StatusCode::kInvalidArgument, "adds_to_out with silu"),
                       StatusIs(kUnimplemented, "packed pairs")));
}

// The same sums come out of every kernel that reads packed weights: parts of 512, each summed by
// itself, then added in order. In f32 that is 2^24, + 2, + 1 (a tie that goes up), - 2^24; by pairs
// of parts it would be 3, in one row 0.
TEST_P(LinearPackedTest, SumsInPartsInOrder) {
  if (dtype() == DType::kF32 || kernels().traits().matrix_unit == runtime::MatrixUnit::kNone)
    GTEST_SKIP() << "needs matrix units, and 16 bits";
  constexpr Term kTerms[] = {
      {100, 4096, 4096}, {512, 1, 1}, {1000, 1, 1}, {1024, 1, 1}, {2047, 4096, -4096}};
  ExpectSums(kTerms, 2048, 4.0);
}

// RmsNorm in front, or the sum behind, done by linear_stream.
TEST_P(LinearPackedTest, NormOfTheInputAndSumBehindHaveTheBitsOfTheirOwnKernels) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStream, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  ExpectResidualCasesHaveTheBits(
      device(), stream(), kernels(),
      [&](GuardedMemory& memory, const LinearCase& c, WeightLayout layout) {
        return MakeCall(memory, c, LinearInput(c, dtype()), layout);
      });
}

}  // namespace
}  // namespace reprise::testing
