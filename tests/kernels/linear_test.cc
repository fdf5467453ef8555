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
#include "kernels/linear/host_native.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/stamp/stamp.h"
#include "tests/kernels/linear_fixture.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
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

class LinearTest : public LinearFixture {
 protected:
  // Computed with in.x's rows in this order.
  std::vector<std::byte> RowBytesOf(const LinearCase& c, const LinearInput& in, const Way& way) {
    GuardedMemory memory(device(), stream());
    return RowBytes(memory, c, MakeCall(memory, c, in, way.layout), way.candidate);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearTest);

TEST_P(LinearTest, MatchesTheOracleAndTouchesNothingElse) {
  size_t index = 0;
  for (const LinearCase& c : kernels::kLinearCases) {
    // Of f32 there is no other kernel under emulation.
    const bool runs_portable = IsOfThisUnit(index++);
    if (is_emulated() && dtype() == DType::kF32 && !runs_portable) continue;
    const LinearInput in(c, dtype());
    const Expected expected =
        OracleLinear(in.x, in.weight, in.bias, static_cast<size_t>(c.in_features), c.scale);
    for (const Way& way : WaysOf(dtype())) {
      if (way.candidate == LinearCandidate::kPortable && !runs_portable) continue;
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
    LinearInput in({.name = "", .in_features = 1, .out_features = 1, .rows = 0, .max_rows = 0},
                   dtype());
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
      {"long_k", is_emulated() ? 1096 : 4104, 56, kRows, kRows, false, 1.0f, true}};
  const LinearCase buckets[] = {
      {"1", 0, 0, 1, 1},     {"2", 0, 0, 2, 2},       {"3", 0, 0, 3, 8},
      {"12", 0, 0, 12, 16},  {"33", 0, 0, 33, 64},    {"64", 0, 0, 64, 64},
      {"65", 0, 0, 65, 128}, {"130", 0, 0, 130, 256}, {"1 of 300", 0, 0, 1, 300}};
  size_t index = 0;
  for (const LinearCase& shape : shapes) {
    const bool runs_portable = IsOfThisUnit(index++);
    const LinearInput in(shape, dtype());
    const size_t k = static_cast<size_t>(shape.in_features);
    for (const Way& way : WaysOf(dtype())) {
      if (way.candidate == LinearCandidate::kPortable && !runs_portable) continue;
      const std::vector<std::byte> all = RowBytesOf(shape, in, way);
      const size_t row_bytes = all.size() / kRows;
      for (const LinearCase& bucket : buckets) {
        SCOPED_TRACE(std::string(shape.name) + ", " + way.name() + ", " + bucket.name);
        LinearCase c = shape;
        c.rows = bucket.rows;
        c.max_rows = bucket.max_rows;
        const uint32_t first = (bucket.rows * 37 + 5) % (kRows - bucket.rows + 1);
        LinearInput part = in;
        const auto begin = in.x.begin() + static_cast<ptrdiff_t>(first * k);
        part.x.assign(begin, begin + static_cast<ptrdiff_t>(c.rows * k));
        const std::vector<std::byte> got = RowBytesOf(c, part, way);
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
    const LinearInput in(c, dtype());
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
  for (const uint32_t max_rows : {2u, 8u, 16u, 32u, 140u}) {
    const uint32_t rows = std::min(max_rows, 3u);
    const LinearCase c{"", 64, 64, rows, max_rows};
    const LinearInput in(c, dtype());
    for (const Way& way : WaysOf(dtype())) {
      SCOPED_TRACE(absl::StrCat(way.name(), ", rows of the bucket: ", max_rows));
      GuardedMemory memory(device(), stream());
      Call call = MakeCall(memory, c, in, way.layout);
      auto* const num_rows = memory.Variable(std::vector<uint32_t>{rows});
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
  refusal(
      weights,
      "weights are packed and f32; allowed: packed bf16, f16, int4, fp8_e4m3 and fp8_e4m3_rounded");
}

// The host's native linear in every form that this CPU runs, not only the one that it would choose.
class LinearInstructionSetTest : public LinearTest {
 protected:
  static runtime::HostKernelFn EntryOf(const kernels::on_host::NativeLinearTarget& target,
                                       DType dtype) {
    return dtype == DType::kF32 ? target.f32 : dtype == DType::kBf16 ? target.bf16 : target.f16;
  }
  // As Linear sets them.
  LinearArgs MakeArgs(GuardedMemory& memory, const LinearCase& c, const LinearInput& in) {
    const Call call = MakeCall(memory, c, in);
    return kernels::WithWeights(call.weights, call.args);
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
    for (const LinearCase& c : HostLinearCases()) {
      SCOPED_TRACE(std::string(target.name) + ", " + c.name);
      const LinearInput in(c, dtype());
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
  const LinearInput in(all, dtype());
  const size_t k = static_cast<size_t>(all.in_features);
  for (const auto& target : kernels::on_host::NativeLinearTargets()) {
    SCOPED_TRACE(target.name);
    const auto run = [&](const LinearCase& c, const LinearInput& input) {
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
      LinearInput row = in;
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
