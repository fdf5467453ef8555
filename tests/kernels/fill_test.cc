// SPDX-License-Identifier: Apache-2.0
#include "kernels/fill/fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/testing/cases/fill_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::FillCase;
using runtime::DType;

class FillTest : public KernelTest {
 protected:
  // Of the compute dtype and of 8 bits.
  std::vector<DType> Filled() const { return {dtype(), DType::kE4m3, DType::kE5m2}; }

  std::vector<std::byte> RandomBytes(DType of, int64_t count, uint64_t seed, float stddev) {
    GuardedMemory memory(device(), stream());
    void* out = memory.Poisoned(static_cast<size_t>(count) * SizeOf(of));
    EXPECT_OK(
        RandomFill(stream(), kernels(),
                   {.out = out, .dtype = of, .count = count, .seed = seed, .stddev = stddev}));
    memory.Check();
    return memory.ReadBytes(out);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(FillTest);

constexpr uint64_t kSeed = 0x123456789abcdefu;

TEST_P(FillTest, RandomFillMatchesTheOracle) {
  for (const FillCase& c : kernels::kFillCases) {
    SCOPED_TRACE(c.name);
    Expected expected;
    for (uint32_t i = 0; i < c.count; ++i) {
      double sum = -2.0;
      for (const uint32_t word :
           OraclePhilox({i, 0, 0, 0}, {static_cast<uint32_t>(kSeed), kSeed >> 32}))
        sum += OracleUniform(word);
      const double scale = std::sqrt(3.0) * c.stddev;
      // Four sums of numbers below 2, and two products.
      expected.Add(scale * sum, scale * 16 * 0x1p-24);
    }
    for (const DType of : Filled())
      ExpectNear(Decode(of, RandomBytes(of, c.count, kSeed, c.stddev)), expected, of);
  }
}

TEST_P(FillTest, RandomFillHasTheMeanAndDeviationItPromises) {
  constexpr int64_t kCount = 200000;
  constexpr double kStddev = 0.25;
  const std::vector<double> x = Decode(dtype(), RandomBytes(dtype(), kCount, 7, kStddev));
  double sum = 0.0, squares = 0.0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
  }
  // Five standard errors. The fourth moment of a sum of four uniforms is 2.7 variances squared: 1.3
  // for the variance's own error.
  const double n = kCount;
  EXPECT_NEAR(sum / n, 0.0, 5 * kStddev / std::sqrt(n));
  EXPECT_NEAR(
      squares / n, kStddev * kStddev,
      5 * 1.31 * kStddev * kStddev / std::sqrt(n) + kStddev * kStddev * HalfUlp(dtype(), 1.0));
}

TEST_P(FillTest, RandomFillIsAFunctionOfSeedAndIndex) {
  const std::vector<std::byte> first = RandomBytes(dtype(), 5000, kSeed, 1.0f);
  EXPECT_EQ(RandomBytes(dtype(), 5000, kSeed, 1.0f), first);
  EXPECT_NE(RandomBytes(dtype(), 5000, kSeed + 1, 1.0f), first);
  const std::vector<std::byte> longer = RandomBytes(dtype(), 20000, kSeed, 1.0f);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), longer.begin()));
}

// The same elements as without, but in words.
TEST_P(FillTest, RandomFillOfPackedWordsHoldsTheSameElements) {
  constexpr int64_t kCount = 9000;
  std::vector<uint8_t> elements;
  for (const std::byte element : RandomBytes(DType::kE4m3, kCount, kSeed, 8.0f))
    elements.push_back(static_cast<uint8_t>(element));
  GuardedMemory memory(device(), stream());
  void* out = memory.Poisoned(kCount);
  ASSERT_OK(RandomFill(stream(), kernels(),
                       {.out = out,
                        .dtype = DType::kE4m3,
                        .count = kCount,
                        .seed = kSeed,
                        .stddev = 8.0f,
                        .packed = true}));
  memory.Check();
  std::vector<uint8_t> packed;
  for (const std::byte byte : memory.ReadBytes(out)) packed.push_back(static_cast<uint8_t>(byte));
  EXPECT_EQ(packed, PackedFp8Words(elements));
}

TEST_P(FillTest, NanFillWritesNothingButNan) {
  for (const FillCase& c : kernels::kFillCases) {
    for (const DType of : Filled()) {
      SCOPED_TRACE(std::string(c.name) + ", " + std::string(NameOf(of)));
      GuardedMemory memory(device(), stream());
      void* out = memory.VariableTensor(of, std::vector<double>(static_cast<size_t>(c.count), 1.0));
      ASSERT_OK(NanFill(stream(), kernels(), {.out = out, .dtype = of, .count = c.count}));
      memory.Check();
      size_t num_numbers = 0;
      for (const double x : memory.ReadTensor(of, out)) num_numbers += !std::isnan(x);
      EXPECT_EQ(num_numbers, 0u);
    }
  }
}

// Blocks of a pool of three layers: those named, and nothing beside them.
TEST_P(FillTest, BlockFillWritesTheNamedBlocksInEveryLayerAlone) {
  constexpr int kLayers = 3, kBlocks = 7;
  // Less than a piece, one, and more than one.
  for (const int64_t elements : {int64_t{1}, int64_t{4096}, int64_t{4100}}) {
    for (const DType of : Filled()) {
      const double value = of == DType::kE5m2 ? 0.0 : 2.0;
      SCOPED_TRACE(std::to_string(elements) + ", " + std::string(NameOf(of)));
      GuardedMemory memory(device(), stream());
      void* pool = memory.VariableTensor(
          of, std::vector<double>(static_cast<size_t>(elements) * kLayers * kBlocks, 1.0));
      kernels::BlockFillArgs args = {.out = pool,
                                     .dtype = of,
                                     .layer_elements = elements * kBlocks,
                                     .block_elements = elements,
                                     .layers = kLayers,
                                     .count = 3,
                                     .value = static_cast<float>(value),
                                     .block = {6, 0, 3}};
      ASSERT_OK(BlockFill(stream(), kernels(), args));
      memory.Check();
      const std::vector<double> got = memory.ReadTensor(of, pool);
      size_t num_wrong = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t block = i / static_cast<size_t>(elements) % kBlocks;
        const bool named = block == 6 || block == 0 || block == 3;
        num_wrong += got[i] != (named ? value : 1.0);
      }
      EXPECT_EQ(num_wrong, 0u);
    }
  }
}

TEST_P(FillTest, BlockFillTakesAsManyBlocksAsItSays) {
  constexpr int64_t kElements = 8;
  constexpr int kBlocks = kernels::kMaxFillBlocks + 2;
  GuardedMemory memory(device(), stream());
  void* pool = memory.VariableTensor(dtype(), std::vector<double>(kElements * kBlocks, 1.0));
  kernels::BlockFillArgs args = {.out = pool,
                                 .dtype = dtype(),
                                 .layer_elements = kElements * kBlocks,
                                 .block_elements = kElements,
                                 .layers = 1,
                                 .count = kernels::kMaxFillBlocks};
  for (uint32_t i = 0; i < kernels::kMaxFillBlocks; ++i) args.block[i] = i + 1;
  ASSERT_OK(BlockFill(stream(), kernels(), args));
  memory.Check();
  const std::vector<double> got = memory.ReadTensor(dtype(), pool);
  EXPECT_EQ(std::count(got.begin(), got.end(), 0.0), kElements * kernels::kMaxFillBlocks);
  EXPECT_EQ(got.front(), 1.0);
  EXPECT_EQ(got.back(), 1.0);
  ++args.count;
  EXPECT_THAT(BlockFill(stream(), kernels(), args),
              StatusIs(absl::StatusCode::kInvalidArgument, "count is 257; allowed: at most 256"));
}

TEST_P(FillTest, RefusesToFillNothing) {
  EXPECT_THAT(RandomFill(stream(), kernels(), {}), StatusIs(kInvalid, "count is 0"));
  EXPECT_THAT(
      RandomFill(stream(), kernels(), {.dtype = DType::kE4m3, .count = 7, .packed = true}),
      StatusIs(kInvalid, "packed words of 7 elements of fp8_e4m3; allowed: fp8_e4m3 in whole"));
  EXPECT_THAT(RandomFill(stream(), kernels(), {.dtype = dtype(), .count = 8, .packed = true}),
              StatusIs(kInvalid, "packed words of 8"));
  EXPECT_THAT(NanFill(stream(), kernels(), {}), StatusIs(kInvalid, "count is 0"));
  EXPECT_THAT(BlockFill(stream(), kernels(), {}), StatusIs(kInvalid, "count is 0"));
  EXPECT_THAT(BlockFill(stream(), kernels(), {.count = 1}), StatusIs(kInvalid, "layers is 0"));
  EXPECT_THAT(BlockFill(stream(), kernels(), {.layers = 1, .count = 1}),
              StatusIs(kInvalid, "block_elements is 0"));
}

TEST_P(FillTest, RefusesElementsOfAnotherType) {
  const DType other = dtype() == DType::kF32 ? DType::kBf16 : DType::kF32;
  const std::string message = "dtype is " + std::string(NameOf(other)) +
                              "; allowed: " + std::string(NameOf(dtype())) + ", fp8_e4m3, fp8_e5m2";
  EXPECT_THAT(RandomFill(stream(), kernels(), {.dtype = other, .count = 1}),
              StatusIs(kInvalid, "random_fill: " + message));
  EXPECT_THAT(NanFill(stream(), kernels(), {.dtype = other, .count = 1}),
              StatusIs(kInvalid, "nan_fill: " + message));
  EXPECT_THAT(BlockFill(stream(), kernels(),
                        {.dtype = other, .block_elements = 1, .layers = 1, .count = 1}),
              StatusIs(kInvalid, "block_fill: " + message));
}

}  // namespace
}  // namespace reprise::testing
