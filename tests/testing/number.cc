// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/number.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace reprise::testing {
namespace {

using runtime::DType;

struct Format {
  int significand_bits;             // without the hidden one
  int min_exponent;                 // of the smallest normal number
  int max_exponent;                 // of the largest number
  double largest = 0.0;             // of 8-bit formats: what lies beyond becomes this
  bool all_ones_is_number = false;  // numbers reach into the last exponent, as in E4M3
  int exponent_bits() const { return max_exponent == 127 ? 8 : all_ones_is_number ? 4 : 5; }
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {23, -126, 127};
    case DType::kBf16:
      return {7, -126, 127};
    case DType::kF16:
      return {10, -14, 15};
    case DType::kE4m3:
      return {3, -6, 8, 448.0, true};
    case DType::kE5m2:
      return {2, -14, 15, 57344.0};
  }
  return {};
}

// Of a double's bits: tests round and encode hundreds of millions of numbers, and the library's
// ilogb and ldexp take most of that time.
constexpr int kDoubleBias = 1023, kDoubleSignificandBits = 52;

// Of a finite value; of 0 and of what only subnormal doubles hold, less than any format's smallest.
int ExponentOf(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  return static_cast<int>(bits >> kDoubleSignificandBits & 0x7ff) - kDoubleBias;
}

// 2 to the power of an exponent that normal doubles have.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kDoubleBias)
                               << kDoubleSignificandBits);
}

// The distance between neighbours at a finite value.
double Ulp(const Format& format, double value) {
  return PowerOfTwo(std::max(ExponentOf(value), format.min_exponent) - format.significand_bits);
}

// Bits of a value that the format holds.
uint64_t BitsOf(const Format& format, double value) {
  const int exponent_bits = format.exponent_bits();
  const uint64_t all_ones = (uint64_t{1} << exponent_bits) - 1;
  const uint64_t sign = uint64_t{std::signbit(value)} << (exponent_bits + format.significand_bits);
  if (std::isnan(value) && format.largest != 0.0) return 0x7f;
  if (std::isnan(value))
    return sign | all_ones << format.significand_bits |
           uint64_t{1} << (format.significand_bits - 1);
  if (std::isinf(value)) return sign | all_ones << format.significand_bits;
  const double steps = std::fabs(value) / Ulp(format, value);
  const uint64_t significand = static_cast<uint64_t>(steps);
  if (significand < uint64_t{1} << format.significand_bits) return sign | significand;  // subnormal
  const uint64_t exponent = static_cast<uint64_t>(ExponentOf(value) - format.min_exponent)
                            << format.significand_bits;
  return sign | (exponent + significand);  // the hidden bit adds the 1 of the exponent's bias
}

double ValueOf(const Format& format, uint64_t bits) {
  const int exponent_bits = format.exponent_bits();
  const uint64_t all_ones = (uint64_t{1} << exponent_bits) - 1;
  const uint64_t fraction = bits & ((uint64_t{1} << format.significand_bits) - 1);
  const uint64_t exponent = bits >> format.significand_bits & all_ones;
  const double sign = (bits >> (format.significand_bits + exponent_bits) & 1) != 0 ? -1.0 : 1.0;
  if (format.all_ones_is_number && (bits & 0x7f) == 0x7f)
    return std::numeric_limits<double>::quiet_NaN();
  if (exponent == all_ones && !format.all_ones_is_number)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  const double hidden = exponent == 0 ? 0.0 : PowerOfTwo(format.significand_bits);
  const int power = format.min_exponent - format.significand_bits +
                    (exponent == 0 ? 0 : static_cast<int>(exponent) - 1);
  return sign * (hidden + static_cast<double>(fraction)) * PowerOfTwo(power);
}

}  // namespace

double RoundTo(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  if (format.largest != 0.0 && std::fabs(value) > format.largest)
    return std::copysign(format.largest, value);
  if (!std::isfinite(value)) return value;
  const double ulp = Ulp(format, value);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  return PowerOfTwo(format.max_exponent + 1) <= std::fabs(rounded)
             ? std::copysign(std::numeric_limits<double>::infinity(), value)
             : rounded;
}

double HalfUlp(DType dtype, double value) {
  return std::isfinite(value) ? 0.5 * Ulp(FormatOf(dtype), value) : 0.0;
}

std::vector<std::byte> Encode(DType dtype, std::span<const double> values) {
  const Format format = FormatOf(dtype);
  const size_t size = SizeOf(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = BitsOf(format, RoundTo(dtype, values[i]));
    for (size_t b = 0; b < size; ++b) bytes[i * size + b] = static_cast<std::byte>(bits >> (8 * b));
  }
  return bytes;
}

std::vector<double> Decode(DType dtype, std::span<const std::byte> bytes) {
  const Format format = FormatOf(dtype);
  const size_t size = SizeOf(dtype);
  std::vector<double> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t bits = 0;
    for (size_t b = 0; b < size; ++b) bits |= static_cast<uint64_t>(bytes[i * size + b]) << (8 * b);
    values[i] = ValueOf(format, bits);
  }
  return values;
}

uint64_t Random::Bits() {  // splitmix64
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint32_t Random::Below(uint32_t n) { return static_cast<uint32_t>((Bits() >> 32) * n >> 32); }

double Random::Uniform() { return (static_cast<double>(Bits() >> 12) + 0.5) * 0x1p-52; }

double Random::Normal() {  // Box-Muller
  const double radius = std::sqrt(-2.0 * std::log(Uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * Uniform());
}

std::vector<double> Random::Tensor(DType dtype, size_t n, double stddev) {
  std::vector<double> values(n);
  for (double& v : values) v = RoundTo(dtype, stddev * Normal());
  return values;
}

std::vector<uint32_t> Random::Permutation(uint32_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[Below(i)]);
  return order;
}

}  // namespace reprise::testing
