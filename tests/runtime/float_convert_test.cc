// SPDX-License-Identifier: Apache-2.0
// Conversions between storage formats, against plain double arithmetic that shares nothing with
// them.
#include "runtime/float_convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/testing/ocp_fp8.h"

namespace reprise::runtime {
namespace {

using testing::NearestCode;
using testing::ValueOf;

static_assert(FloatToF16(1.0f) == 0x3c00);
static_assert(FloatToBf16(1.0f) == 0x3f80);
static_assert(F16ToFloat(0xc000) == -2.0f);
static_assert(Bf16ToFloat(0xc000) == -2.0f);
static_assert(FloatToE4m3(1.0f) == 0x38 && FloatToE5m2(1.0f) == 0x3c);
static_assert(E4m3ToFloat(0xc0) == -2.0f && E5m2ToFloat(0xc0) == -2.0f);

// sign * mantissa * 2^exponent by ldexp, for a format of `mantissa_bits` and `bias`.
double Decode(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

bool IsF16Special(int bits) { return (bits & 0x7c00) == 0x7c00; }
bool IsBf16Special(int bits) { return (bits & 0x7f80) == 0x7f80; }

TEST(FloatConvert, DecodesEveryFiniteHalfExactly) {
  for (int bits = 0; bits < 65536; ++bits) {
    if (IsF16Special(bits)) continue;
    const float value = F16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(static_cast<double>(value), Decode(static_cast<uint16_t>(bits), 10, 15)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
  }
}

TEST(FloatConvert, DecodesEveryFiniteBf16Exactly) {
  for (int bits = 0; bits < 65536; ++bits) {
    if (IsBf16Special(bits)) continue;
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(static_cast<double>(value), Decode(static_cast<uint16_t>(bits), 7, 127)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
  }
}

TEST(FloatConvert, EveryHalfPatternSurvivesTheWayThroughFloat) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (IsF16Special(bits) && (bits & 0x3ff) != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(F16ToFloat(FloatToF16(value)))) << bits;
      ASSERT_EQ(FloatToF16(value) & 0x8000, bits & 0x8000) << bits;
    } else {
      ASSERT_EQ(FloatToF16(value), half) << bits;
    }
  }
}

TEST(FloatConvert, EveryBf16PatternSurvivesTheWayThroughFloat) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = Bf16ToFloat(half);
    if (IsBf16Special(bits) && (bits & 0x7f) != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value)))) << bits;
      ASSERT_EQ(FloatToBf16(value) & 0x8000, bits & 0x8000) << bits;
    } else {
      ASSERT_EQ(FloatToBf16(value), half) << bits;
    }
  }
}

// Between any two neighbouring halves: the midpoint goes to the even one, anything else to the
// nearer one. Covers every rounding decision there is, subnormals and the step to infinity
// included.
TEST(FloatConvert, RoundsToNearestEvenBetweenAllNeighbouringHalves) {
  for (int low = 0; low < 0x7c00; ++low) {
    const auto even = static_cast<uint16_t>(low % 2 == 0 ? low : low + 1);
    // The value that 2^16 would have is where infinity stands in this ladder.
    const double above =
        low + 1 == 0x7c00 ? 65536.0 : Decode(static_cast<uint16_t>(low + 1), 10, 15);
    const auto middle =
        static_cast<float>((Decode(static_cast<uint16_t>(low), 10, 15) + above) / 2);
    ASSERT_EQ(FloatToF16(middle), even) << low;
    ASSERT_EQ(FloatToF16(-middle), even | 0x8000) << low;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 1e9f)), low + 1) << low;
  }
}

TEST(FloatConvert, RoundsToNearestEvenBetweenAllNeighbouringBf16) {
  for (int low = 0; low < 0x7f80; ++low) {
    const auto even = static_cast<uint16_t>(low % 2 == 0 ? low : low + 1);
    const auto middle_bits = static_cast<uint32_t>(low) << 16 | 0x8000u;
    const float middle = std::bit_cast<float>(middle_bits);
    ASSERT_EQ(FloatToBf16(middle), even) << low;
    ASSERT_EQ(FloatToBf16(-middle), even | 0x8000) << low;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle_bits - 1)), low) << low;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle_bits + 1)), low + 1) << low;
  }
}

// The nearest of all finite halves and 2^16, which stands for infinity, by search.
uint16_t NearestHalf(const std::vector<double>& ladder, float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (magnitude >= ladder.back()) return sign | 0x7c00;
  const auto above = std::upper_bound(ladder.begin(), ladder.end(), magnitude);
  const auto low = static_cast<uint16_t>(above - ladder.begin() - 1);
  const double to_low = magnitude - ladder[low];
  const double to_high = *above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
  return static_cast<uint16_t>(sign | (low + (up ? 1 : 0)));
}

TEST(FloatConvert, RandomBitsBecomeTheNearestHalf) {
  std::vector<double> ladder;
  ladder.reserve(0x7c01);
  for (int bits = 0; bits < 0x7c00; ++bits) {
    ladder.push_back(Decode(static_cast<uint16_t>(bits), 10, 15));
  }
  ladder.push_back(65536.0);
  std::mt19937 random(20240607);
  for (int i = 0; i < 1'000'000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random());
    // Every other one inside or near the range of halves, where random bits seldom fall.
    if (i % 2 == 0) bits = (bits & 0x807fffffu) | (95u + (bits >> 23) % 52u) << 23;
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
      continue;
    }
    ASSERT_EQ(FloatToF16(value), NearestHalf(ladder, value)) << value;
  }
}

TEST(FloatConvert, NaNWithAPayloadOnlyInTheDroppedBitsStaysNaN) {
  for (const uint32_t sign : {0u, 0x80000000u}) {
    const float value = std::bit_cast<float>(sign | 0x7f800001u);
    EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value))));
    EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
  }
}

struct Fp8Conversion {
  testing::OcpFp8 format;
  float (*to_float)(uint8_t);
  uint8_t (*from_float)(float);
};
constexpr Fp8Conversion kFp8Conversions[] = {
    {testing::kOcpE4m3, E4m3ToFloat, FloatToE4m3},
    {testing::kOcpE5m2, E5m2ToFloat, FloatToE5m2},
};

// Infinities come back as the largest number, NaNs as the one NaN; all others as they were.
TEST(FloatConvert, EveryFp8CodeIsExactAndSurvivesTheWayThroughFloat) {
  for (const Fp8Conversion& c : kFp8Conversions) {
    for (int code = 0; code < 256; ++code) {
      SCOPED_TRACE(::testing::Message() << c.format.name << " " << code);
      const float value = c.to_float(static_cast<uint8_t>(code));
      const double want = ValueOf(c.format, static_cast<uint8_t>(code));
      const int magnitude = code & 0x7f, sign = code & 0x80;
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_EQ(c.from_float(value), 0x7f);
        continue;
      }
      EXPECT_EQ(value, want);
      EXPECT_EQ(std::signbit(value), sign != 0);
      EXPECT_EQ(c.from_float(value), sign | std::min<int>(magnitude, c.format.largest));
    }
  }
}

TEST(FloatConvert, RoundsToTheNearestFp8AndSaturates) {
  for (const Fp8Conversion& c : kFp8Conversions) {
    std::vector<float> values = testing::RoundingDecisions(c.format);
    std::mt19937 random(20240607);
    for (int i = 0; i < 200'000; ++i) {
      uint32_t bits = static_cast<uint32_t>(random());
      // Every other one inside or near the range of the format.
      if (i % 2 == 0) bits = (bits & 0x807fffffu) | (107u + (bits >> 23) % 39u) << 23;
      values.push_back(std::bit_cast<float>(bits));
    }
    for (const float value : values) {
      ASSERT_EQ(c.from_float(value), NearestCode(c.format, value)) << c.format.name << " " << value;
    }
  }
}

float Rounded(DType dtype, float value) {
  if (dtype == DType::kBf16) return Bf16ToFloat(FloatToBf16(value));
  if (dtype == DType::kF16) return F16ToFloat(FloatToF16(value));
  return value;
}

// Each pair of formats, from and to addresses that are aligned to nothing.
TEST(FloatConvert, ConvertsArraysAtAnyAlignment) {
  const std::vector<float> values = {0.0f, -1.5f, 3.140625f, 1e-3f, -65504.0f, 0.333333f, 7.0f};
  for (const DType from : {DType::kF32, DType::kBf16, DType::kF16}) {
    std::vector<std::byte> source(values.size() * SizeOf(from) + 1);
    ConvertElements(DType::kF32, from, reinterpret_cast<const std::byte*>(values.data()),
                    source.data() + 1, values.size());
    for (const DType to : {DType::kF32, DType::kBf16, DType::kF16}) {
      std::vector<std::byte> out(values.size() * SizeOf(to) + 4, std::byte{0x5a});
      ConvertElements(from, to, source.data() + 1, out.data() + 3, values.size());
      std::vector<float> seen(values.size());
      ConvertElements(to, DType::kF32, out.data() + 3, reinterpret_cast<std::byte*>(seen.data()),
                      seen.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const float want = Rounded(to, Rounded(from, values[i]));
        EXPECT_EQ(seen[i], want) << NameOf(from) << " to " << NameOf(to) << " of " << values[i];
      }
      EXPECT_EQ(out[2], std::byte{0x5a});
      EXPECT_EQ(out.back(), std::byte{0x5a});
    }
  }
}

}  // namespace
}  // namespace reprise::runtime
