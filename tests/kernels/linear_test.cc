// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/fill/fill.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/host_native.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/stamp/stamp.h"
#include "runtime/map_tiles.h"
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

using kernels::DeviceTraits;
using kernels::LinearArgs;
using kernels::LinearCandidate;
using kernels::LinearCase;
using kernels::LinearWeights;
using kernels::WeightFormat;
using kernels::WeightLayout;
using runtime::DType;

constexpr LinearCandidate kCandidates[] = {LinearCandidate::kBest, LinearCandidate::kPortable};

// A way to run a case: what is asked for, and how the weight lies.
struct Way {
  LinearCandidate candidate;
  WeightLayout layout;

  std::string name() const {
    return absl::StrCat(candidate == LinearCandidate::kBest ? "best" : "portable", ", ",
                        std::string(kernels::NameOf(layout)));
  }
};
std::vector<Way> WaysOf(DType dtype) {
  std::vector<Way> ways;
  for (const LinearCandidate candidate : kCandidates) {
    ways.push_back({candidate, WeightLayout::kRowMajor});
    if (dtype != DType::kF32) ways.push_back({candidate, WeightLayout::kPacked});
  }
  return ways;
}

// What fills packed matrices up: would be seen in a sum.
constexpr double kFiller = 96.0;

struct Input {
  std::vector<double> x, weight, bias;

  Input(const LinearCase& c, DType dtype) {
    Random random(static_cast<uint64_t>(c.in_features) * 1009 + c.rows);
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    x = random.Tensor(dtype, c.rows * k);
    weight = random.Tensor(dtype, n * k, 1.0 / std::sqrt(static_cast<double>(k)));
    if (c.bias) bias = random.Tensor(dtype, n);
  }
};

class LinearTest : public KernelTest {
 protected:
  DType OutType(const LinearCase& c) const { return c.out_is_f32 ? DType::kF32 : dtype(); }

  // Whether the device takes the product of two halves at once.
  bool TakesPairs() const { return kernels::LinearTakesPairs(kernels(), 16, 8); }

  // What Linear is called with.
  struct Call {
    LinearWeights weights;
    LinearArgs args;
  };

  // Over fresh buffers: rows of x beyond the live ones are NaN, all of the output is poisoned.
  Call MakeCall(GuardedMemory& memory, const LinearCase& c, const Input& in,
                WeightLayout layout = WeightLayout::kRowMajor) {
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    std::vector<double> x = in.x;
    x.resize(c.max_rows * k, NAN);
    Call call;
    call.weights.format = kernels::WeightFormatOf(dtype());
    call.weights.layout = layout;
    call.weights.data = memory.ConstantTensor(
        dtype(), layout == WeightLayout::kPacked        ? Packed(in.weight, n, k, kFiller)
                 : layout == WeightLayout::kPackedPairs ? PackedPairs(in.weight, n, k, kFiller)
                                                        : in.weight);
    if (c.bias) call.weights.bias = memory.ConstantTensor(dtype(), in.bias);
    call.weights.in_features = c.in_features;
    call.weights.out_features = c.out_features;
    LinearArgs& args = call.args;
    args.x = memory.ConstantTensor(dtype(), x);
    args.out = memory.Poisoned(c.max_rows * n * SizeOf(OutType(c)));
    args.num_rows = memory.Constant(std::vector<uint32_t>{c.rows});
    args.partials = memory.Poisoned<float>(LinearPartialFloats(kernels(), c.max_rows));
    args.counters = memory.Variable(
        std::vector<uint32_t>(LinearNumCounters(kernels(), static_cast<uint32_t>(c.out_features))));
    args.scale = c.scale;
    args.out_is_f32 = c.out_is_f32 ? 1 : 0;
    return call;
  }

  void ExpectCountersZero(GuardedMemory& memory, const LinearArgs& args) {
    for (const uint32_t counter : memory.Read(args.counters)) EXPECT_EQ(counter, 0u);
  }

  // The output's bytes of rows [0, c.rows), computed with in.x's rows in this order.
  std::vector<std::byte> RowBytes(const LinearCase& c, const Input& in, const Way& way) {
    GuardedMemory memory(device(), stream());
    Call call = MakeCall(memory, c, in, way.layout);
    // As in a model, where another kernel comes between the plan and this one.
    auto* const stamp = memory.Poisoned<uint64_t>(1);
    EXPECT_OK(kernels::Stamp(stream(), kernels(), {.out = stamp}));
    call.args.reads_ahead = reads_ahead_ = !reads_ahead_;
    EXPECT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows, way.candidate));
    memory.Check();
    ExpectCountersZero(memory, call.args);
    std::vector<std::byte> bytes = memory.ReadBytes(call.args.out);
    bytes.resize(c.rows * static_cast<size_t>(c.out_features) * SizeOf(OutType(c)));
    return bytes;
  }

 private:
  bool reads_ahead_ = false;  // of the last launch: by turns
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearTest);

TEST_P(LinearTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const LinearCase& c : kernels::kLinearCases) {
    const Input in(c, dtype());
    const Expected expected =
        OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale);
    for (const Way& way : WaysOf(dtype())) {
      SCOPED_TRACE(std::string(c.name) + ", " + way.name());
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, way.layout);
      ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows, way.candidate));
      memory.Check();
      ExpectNear(memory.ReadTensor(OutType(c), call.args.out), expected, OutType(c));
      ExpectCountersZero(memory, call.args);
    }
  }
}

// Decode shapes of real models: a sample of the outputs, since the oracle would take longer than
// everything else.
TEST_P(LinearTest, MatchesTheOracleAtTheTimedShapes) {
  REPRISE_SKIP_IF_EMULATED();
  for (const LinearCase& c : kernels::kLinearTimedCases) {
    SCOPED_TRACE(c.name);
    const size_t k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    Random random(k);
    const std::vector<double> x = random.Tensor(dtype(), c.rows * k);
    GuardedMemory memory(device(), stream());
    void* weight = memory.Poisoned(n * k * SizeOf(dtype()));
    ASSERT_OK(RandomFill(stream(), kernels(),
                         {.out = weight,
                          .dtype = dtype(),
                          .count = static_cast<int64_t>(n * k),
                          .seed = 1,
                          .stddev = 0.02f}));
    Input in({.name = "", .in_features = 1, .out_features = 1, .rows = 0, .max_rows = 0}, dtype());
    in.x = x;
    Call call = MakeCall(memory, c, in);
    call.weights.data = weight;
    ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows));
    memory.Check();
    const std::vector<double> out = memory.ReadTensor(dtype(), call.args.out);
    const std::vector<std::byte> weight_bytes = memory.ReadBytes(weight);
    Expected expected;
    std::vector<double> got;
    for (size_t i = 0; i < 200; ++i) {
      const size_t r = random.Below(c.rows), f = random.Below(static_cast<uint32_t>(n));
      const std::vector<double> w = Decode(
          dtype(), std::span(weight_bytes).subspan(f * k * SizeOf(dtype()), k * SizeOf(dtype())));
      OracleLinearOutput(std::span(x).subspan(r * k, k), w, c.scale, 0.0, expected);
      got.push_back(out[r * n + f]);
    }
    ExpectNear(got, expected, dtype());
    EXPECT_TRUE(std::none_of(out.begin(), out.end(), [](double y) { return std::isnan(y); }));
  }
}

// Picks one row of a case's 130 and runs it alone, and as the last of a few in every kind of
// bucket.
TEST_P(LinearTest, ARowsBitsDependNeitherOnItsNeighboursNorOnTheBucket) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  constexpr uint32_t kRows = 130;
  // Most without a rounding to 16 bits, which would hide a difference.
  const LinearCase shapes[] = {
      {"even", 320, 192, kRows, kRows, true, 1.0f, true},
      {"odd", 131, 45, kRows, kRows},
      {"long_k", is_emulated() ? 1096 : 4104, 72, kRows, kRows, false, 1.0f, true}};
  const LinearCase buckets[] = {
      {"1", 0, 0, 1, 1},     {"2", 0, 0, 2, 2},       {"3", 0, 0, 3, 8},
      {"12", 0, 0, 12, 16},  {"33", 0, 0, 33, 64},    {"64", 0, 0, 64, 64},
      {"65", 0, 0, 65, 128}, {"130", 0, 0, 130, 256}, {"1 of 300", 0, 0, 1, 300}};
  for (const LinearCase& shape : shapes) {
    const Input in(shape, dtype());
    const size_t k = static_cast<size_t>(shape.in_features);
    for (const Way& way : WaysOf(dtype())) {
      const std::vector<std::byte> all = RowBytes(shape, in, way);
      const size_t row_bytes = all.size() / kRows;
      for (const LinearCase& bucket : buckets) {
        SCOPED_TRACE(std::string(shape.name) + ", " + way.name() + ", " + bucket.name);
        LinearCase c = shape;
        c.rows = bucket.rows;
        c.max_rows = bucket.max_rows;
        const uint32_t first = (bucket.rows * 37 + 5) % (kRows - bucket.rows + 1);
        Input part = in;
        const auto begin = in.x.begin() + static_cast<ptrdiff_t>(first * k);
        part.x.assign(begin, begin + static_cast<ptrdiff_t>(c.rows * k));
        const std::vector<std::byte> got = RowBytes(c, part, way);
        EXPECT_TRUE(std::equal(got.begin(), got.end(),
                               all.begin() + static_cast<ptrdiff_t>(first * row_bytes)));
      }
    }
  }
}

// Launches that begin early touch nothing of the one before until it has ended: what it wrote, what
// it still reads, the counters of both. The emulator looks for that; elsewhere the sums would
// differ.
TEST_P(LinearTest, WaitsForTheLaunchBefore) {
  for (const uint32_t rows : {2u, 12u, 20u, 140u}) {
    const LinearCase c{"", 64, 64, rows, rows};
    const Input in(c, dtype());
    for (const Way& way : WaysOf(dtype())) {
      SCOPED_TRACE(absl::StrCat(way.name(), ", rows: ", rows));
      std::vector<std::byte> results[2];
      for (const bool reads_ahead : {false, true}) {
        GuardedMemory memory(device(), stream());
        const Call call = MakeCall(memory, c, in, way.layout);
        // Nothing here lies where a launch of another round wrote.
        auto* const stamp = memory.Poisoned<uint64_t>(1);
        ASSERT_OK(kernels::Stamp(stream(), kernels(), {.out = stamp}));
        LinearArgs there = call.args, back = call.args, again = call.args;
        back.x = there.out;
        back.out = memory.Poisoned(rows * 64 * SizeOf(dtype()));
        again.x = back.out;
        for (LinearArgs* args : {&there, &back, &again}) {
          args->reads_ahead = reads_ahead;
          ASSERT_OK(Linear(stream(), kernels(), call.weights, *args, rows, way.candidate));
        }
        memory.Check();
        ExpectCountersZero(memory, call.args);
        results[reads_ahead ? 1 : 0] = memory.ReadBytes(again.out);
      }
      EXPECT_EQ(results[0], results[1]);
    }
  }
}

// The number of rows is written by the launch before, or long ago.
TEST_P(LinearTest, ReadsTheNumberOfRowsWhenItIsThere) {
  for (const uint32_t max_rows : {8u, 16u, 32u, 140u}) {
    const LinearCase c{"", 64, 64, 3, max_rows};
    const Input in(c, dtype());
    for (const Way& way : WaysOf(dtype())) {
      SCOPED_TRACE(absl::StrCat(way.name(), ", rows of the bucket: ", max_rows));
      GuardedMemory memory(device(), stream());
      Call call = MakeCall(memory, c, in, way.layout);
      auto* const num_rows = memory.Variable(std::vector<uint32_t>{3});
      call.args.num_rows = num_rows;
      const int64_t elements = static_cast<int64_t>(sizeof(uint32_t) / SizeOf(dtype()));
      ASSERT_OK(kernels::BlockFill(stream(), kernels(),
                                   {.out = num_rows,
                                    .dtype = dtype(),
                                    .layer_elements = elements,
                                    .block_elements = elements,
                                    .layers = 1,
                                    .count = 1}));
      for (const bool reads_ahead : {false, true}) {
        call.args.reads_ahead = reads_ahead;
        ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, max_rows, way.candidate));
      }
      memory.Check();
      const std::vector<double> out = memory.ReadTensor(dtype(), call.args.out);
      EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](double y) { return std::isnan(y); }));
    }
  }
}

TEST_P(LinearTest, RefusesImpossibleShapes) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  LinearWeights weights;
  weights.format = kernels::WeightFormatOf(dtype());
  weights.in_features = weights.out_features = 8;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 0), StatusIs(kInvalid, "max_rows is 0"));
  weights.in_features = 0;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1), StatusIs(kInvalid, "in_features is 0"));
  weights.in_features = 8;
  weights.out_features = -3;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(kInvalid, "out_features is -3"));
  weights.out_features = int64_t{1} << 31;
  EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1),
              StatusIs(kInvalid, "out_features is 2147483648; allowed: at most 2147483647"));
}

// What no instance reads is said, with what is read instead.
TEST_P(LinearTest, RefusesWeightsThatNoInstanceReads) {
  constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
  LinearWeights good;
  good.format = kernels::WeightFormatOf(dtype());
  good.in_features = good.out_features = 8;
  const std::string name(runtime::NameOf(dtype()));
  const auto refusal = [&](const LinearWeights& weights, const std::string& text) {
    for (const LinearCandidate candidate : kCandidates)
      EXPECT_THAT(Linear(stream(), kernels(), weights, {}, 1, candidate),
                  StatusIs(kUnimplemented, text));
  };
  for (const WeightFormat format :
       {WeightFormat::kNone, WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kF16}) {
    if (format == good.format) continue;
    LinearWeights weights = good;
    weights.format = format;
    refusal(weights,
            absl::StrCat("linear: weights are ", std::string(kernels::NameOf(format)),
                         " with activations of ", name, "; allowed: ", name, ", fp8_e4m3, int4"));
  }
  const float number = 0.0f;
  LinearWeights weights = good;
  weights.scales = &number;
  refusal(weights, "have scales; allowed: none");
  weights = good;
  weights.group_size = 64;
  refusal(weights, "have a group size; allowed: none");
  weights = good;
  weights.shard = {.rank = 1, .world = 2};
  refusal(weights, "weights are shard 1 of 2; allowed: shard 0 of 1");
  if (dtype() != DType::kF32) return;
  weights = good;
  weights.layout = WeightLayout::kPacked;
  refusal(weights, "weights are packed and f32; allowed: packed bf16, f16, fp8_e4m3 and int4");
}

// SiLU of the first half times the second, from gates far on either side of 0.
TEST_P(LinearTest, MultipliesPairsLikeTheOracle) {
  if (!TakesPairs()) GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const LinearCase cases[] = {{"one_row", 64, 32, 1, 1},
                              {"three_rows", 200, 112, 3, 8, true},
                              {"eleven_rows", 136, 80, 11, 16, false, 4.0f},
                              {"twenty_rows", 712, 80, 20, 24, true, 2.0f},
                              {"forty_rows", 136, 208, 40, 64, true, 1.0f, true},
                              {"hundred_thirty_rows", 128, 48, 130, 130, false, -3.0f}};
  for (const LinearCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Input in(c, dtype());
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
TEST_P(LinearTest, PairsHaveTheSameBitsInEveryBucket) {
  if (!TakesPairs()) GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const LinearCase shape{"", 1096, 48, 1, 1, true, 1.0f, true};
  const Input in(shape, dtype());
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
TEST_P(LinearTest, ThePackedKernelHasTheBitsOfThoseBeforeIt) {
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearPacked) == nullptr)
    GTEST_SKIP() << "needs matrix units, and 16 bits";
  const DeviceTraits traits = kernels().traits();
  const LinearCase cases[] = {{"five_rows", 712, 80, 5, 5, true, 1.0f, true},
                              {"forty_rows", 1096, 144, 40, 40, false, 0.5f, true},
                              {"many_rows", 136, 208, 140, 140, true, 1.0f, true}};
  for (const LinearCase& c : cases) {
    const Input in(c, dtype());
    for (const bool pairs : {false, true}) {
      if (pairs && !TakesPairs()) continue;
      GuardedMemory memory(device(), stream());
      const Call call =
          MakeCall(memory, c, in, pairs ? WeightLayout::kPackedPairs : WeightLayout::kPacked);
      LinearArgs args = call.args;
      args.silu_mul = pairs ? 1 : 0;
      const auto features = static_cast<size_t>(c.out_features) / (pairs ? 2 : 1);
      args.out = memory.Poisoned(c.rows * features * sizeof(float));
      ASSERT_OK(Linear(stream(), kernels(), call.weights, args, c.max_rows));
      const std::vector<std::byte> expected = memory.ReadBytes(args.out);
      args.weight = call.weights.data;
      args.bias = call.weights.bias;
      args.in_features = c.in_features;
      args.out_features = c.out_features;
      args.packed = 1;
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
TEST_P(LinearTest, EveryGridOfLinearStreamHasTheSameBits) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || kernels().Find(kernels::kLinearStream, 8) == nullptr)
    GTEST_SKIP() << "needs bulk copies, and 16 bits";
  for (const int tokens : {8, 16}) {
    for (const int32_t in_features : {512, 1288, 4096}) {
      const auto rows = static_cast<uint32_t>(tokens - 1);
      const LinearCase c{"", in_features, 232, rows, rows, true, 0.5f, true};
      const Input in(c, dtype());
      GuardedMemory memory(device(), stream());
      const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
      ExpectEveryGridHasTheBits(stream(), memory, kernels().Get(kernels::kLinearStream, tokens),
                                WithWeights(call.weights, call.args), size_t{rows} * 232 * 4);
    }
  }
}

// Whatever a launch of linear_group chooses, and linear_stream, which takes as many rows as its
// tile: the same bits.
TEST_P(LinearTest, EveryShapeOfLinearGroupHasTheBitsOfLinearStream) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  const kernels::LoadedKernel* const few = kernels().Find(kernels::kLinearStream, 16);
  if (dtype() == DType::kF32 || few == nullptr || !kernels().traits().group_products)
    GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  // Inputs: a part and a half, and a third of a chunk. Outputs: ten tiles, the last one half.
  const LinearCase c{"", 792, 152, 13, 13, true, 0.5f, true};
  const Input in(c, dtype());
  GuardedMemory memory(device(), stream());
  const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
  kernels::LinearGroupArgs args{.linear = WithWeights(call.weights, call.args)};
  LinearArgs& linear = args.linear;
  ASSERT_OK(stream().Launch(
      few->kernel,
      {.grid_x = 3, .block = few->threads, .shared_bytes = kernels::StreamLayout(16, 16).bytes},
      linear));
  memory.Check();
  const std::vector<std::byte> expected = memory.ReadBytes(linear.out);
  struct Shape {
    int tokens, span, chunks, copied_rows, columns;
  };
  for (const Shape& s : {Shape{16, 1, 2, 16, 4}, Shape{16, 1, 4, 16, 10}, Shape{16, 3, 2, 16, 2},
                         Shape{16, 8, 4, 16, 1}, Shape{32, 2, 4, 32, 5}, Shape{32, 5, 2, 32, 2},
                         Shape{64, 4, 2, 64, 2}, Shape{64, 7, 2, 64, 1}, Shape{128, 1, 1, 128, 3},
                         Shape{128, 6, 2, 64, 2}, Shape{128, 8, 1, 64, 2}}) {
    SCOPED_TRACE(absl::StrCat("tokens ", s.tokens, ", span ", s.span, ", chunks ", s.chunks));
    const kernels::LoadedKernel* const group = kernels().Find(kernels::kLinearGroup, s.tokens);
    ASSERT_NE(group, nullptr);
    linear.out = memory.Poisoned(c.rows * static_cast<size_t>(c.out_features) * sizeof(float));
    args.span = s.span;
    args.stage_chunks = s.chunks;
    args.copied_rows = s.copied_rows;
    const runtime::DeviceKind kind = device().kind();
    ASSERT_OK_AND_ASSIGN(args.tokens, MapTiles(kind, LinearGroupTokens(args, c.max_rows)));
    ASSERT_OK_AND_ASSIGN(args.weights, MapTiles(kind, LinearGroupWeights(args, 16)));
    ASSERT_OK(
        stream().Launch(group->kernel,
                        {.grid_x = static_cast<unsigned>(s.columns),
                         .block = group->threads,
                         .shared_bytes = kernels::LinearGroupSharedBytes(
                             kernels().traits().shared_bytes, s.tokens, s.span, s.chunks, 16)},
                        args));
    memory.Check();
    EXPECT_EQ(memory.ReadBytes(linear.out), expected);
  }
}

TEST_P(LinearTest, RefusesPairsThatNothingTakes) {
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

// The order of K of packed weights follows from K alone, so that the same sums come out of every
// kernel that reads them: parts of 512, each summed by itself, then added in order. In f32 that is
// 2^24, + 2, + 1 (a tie that goes up), - 2^24; by pairs of parts it would be 3, in one row 0.
TEST_P(LinearTest, SumsPackedWeightsInPartsInOrder) {
  if (dtype() == DType::kF32 || kernels().traits().matrix_unit == runtime::MatrixUnit::kNone)
    GTEST_SKIP() << "needs matrix units, and 16 bits";
  struct Term {
    size_t k;
    double x, weight;
  };
  constexpr Term kTerms[] = {
      {100, 4096, 4096}, {512, 1, 1}, {1000, 1, 1}, {1024, 1, 1}, {2047, 4096, -4096}};
  constexpr size_t kIn = 2048, kOut = 16;
  const LinearCase shape{"", kIn, kOut, 1, 1, false, 1.0f, true};
  Input in(shape, dtype());
  std::fill(in.x.begin(), in.x.end(), 0.0);
  std::fill(in.weight.begin(), in.weight.end(), 0.0);
  for (const Term& term : kTerms) {
    in.x[term.k] = term.x;
    for (size_t n = 0; n < kOut; ++n) in.weight[n * kIn + term.k] = term.weight;
  }
  for (const uint32_t max_rows : {1u, 8u, 16u, 32u, 64u, 300u}) {
    LinearCase c = shape;
    c.max_rows = max_rows;
    GuardedMemory memory(device(), stream());
    const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
    ASSERT_OK(Linear(stream(), kernels(), call.weights, call.args, c.max_rows));
    memory.Check();
    const std::vector<double> out = memory.ReadTensor(DType::kF32, call.args.out);
    for (size_t n = 0; n < kOut; ++n) EXPECT_EQ(out[n], 4.0) << "rows of the bucket: " << max_rows;
  }
}

// The host's native linear in every form that this CPU runs, not only the one that it would choose.
class LinearInstructionSetTest : public LinearTest {
 protected:
  static runtime::HostKernelFn EntryOf(const kernels::on_host::NativeLinearTarget& target,
                                       DType dtype) {
    return dtype == DType::kF32 ? target.f32 : dtype == DType::kBf16 ? target.bf16 : target.f16;
  }
  // As Linear sets them.
  LinearArgs MakeArgs(GuardedMemory& memory, const LinearCase& c, const Input& in) {
    const Call call = MakeCall(memory, c, in);
    LinearArgs args = call.args;
    args.weight = call.weights.data;
    args.bias = call.weights.bias;
    args.in_features = c.in_features;
    args.out_features = c.out_features;
    return args;
  }
};
INSTANTIATE_TEST_SUITE_P(Host, LinearInstructionSetTest,
                         ::testing::Values(KernelTestParam{.dtype = DType::kF32},
                                           KernelTestParam{.dtype = DType::kBf16},
                                           KernelTestParam{.dtype = DType::kF16}),
                         NameOfParam);

TEST_P(LinearInstructionSetTest, MatchesTheOracleAndTouchesNothingElse) {
  constexpr uint32_t kTile = kernels::kNativeTileFeatures;
  for (const auto& target : kernels::on_host::NativeLinearTargets()) {
    const runtime::KernelDef def[] = {{.name = "linear", .host = EntryOf(target, dtype())}};
    ASSERT_OK_AND_ASSIGN(const auto module, device().Load({.kernels = def, .cuda_fatbins = {}}));
    ASSERT_OK_AND_ASSIGN(const runtime::Kernel kernel, module->Find("linear"));
    for (const LinearCase& c : kernels::kLinearCases) {
      SCOPED_TRACE(std::string(target.name) + ", " + c.name);
      const Input in(c, dtype());
      GuardedMemory memory(device(), stream());
      const LinearArgs args = MakeArgs(memory, c, in);
      const unsigned tiles = (static_cast<unsigned>(c.out_features) + kTile - 1) / kTile;
      ASSERT_OK(stream().Launch(kernel, {.grid_x = tiles}, args));
      memory.Check();
      ExpectNear(
          memory.ReadTensor(OutType(c), args.out),
          OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale),
          OutType(c));
    }
  }
}

TEST_P(LinearInstructionSetTest, ARowsBitsDependOnNoNeighbour) {
  const LinearCase all{"all", 391, 70, 9, 9, true};
  const Input in(all, dtype());
  const size_t k = static_cast<size_t>(all.in_features);
  for (const auto& target : kernels::on_host::NativeLinearTargets()) {
    SCOPED_TRACE(target.name);
    const auto run = [&](const LinearCase& c, const Input& input) {
      GuardedMemory memory(device(), stream());
      const LinearArgs args = MakeArgs(memory, c, input);
      for (unsigned tile = 0; tile < 3; ++tile) {
        const runtime::HostBlockContext block{.block_x = tile,
                                              .block_y = 0,
                                              .grid_x = 3,
                                              .grid_y = 1,
                                              .block_threads = 1,
                                              .shared = nullptr,
                                              .shared_bytes = 0};
        EntryOf(target, dtype())(block, &args);
      }
      memory.Check();
      return memory.ReadBytes(args.out);
    };
    const std::vector<std::byte> together = run(all, in);
    LinearCase one = all;
    one.rows = one.max_rows = 1;
    for (uint32_t r = 0; r < all.rows; ++r) {
      Input row = in;
      const auto begin = in.x.begin() + static_cast<ptrdiff_t>(r * k);
      row.x.assign(begin, begin + all.in_features);
      const std::vector<std::byte> alone = run(one, row);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                             together.begin() + static_cast<ptrdiff_t>(r * alone.size())))
          << "row " << r;
    }
  }
}

}  // namespace
}  // namespace reprise::testing
