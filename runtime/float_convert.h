// SPDX-License-Identifier: Apache-2.0
// Conversions between storage formats: scalar ones, usable in constant expressions, and one over
// arrays of the formats of dtype.h. For loading weights, and what kernels/device/ converts with on
// the host. Rounding is to nearest, ties to even.
//
// bf16 and f16: NaN stays NaN with its sign, infinities stay.
//
// The two 8-bit formats of the Open Compute Project (OCP 8-bit Floating Point Specification 1.0):
// E4M3 (4 bits of exponent, 3 of mantissa, no infinities, NaN 0x7f and 0xff, largest 448) and E5M2
// (5 and 2, infinities, largest 57344). They saturate: magnitudes beyond the largest, infinities
// included, become the largest, since one stored outlier must not spoil all that is computed from
// it. Every NaN becomes 0x7f. Zeros keep their sign. So NVIDIA's conversions with __NV_SATFINITE,
// and kernels on every device, to the bit.
#ifndef REPRISE_RUNTIME_FLOAT_CONVERT_H_
#define REPRISE_RUNTIME_FLOAT_CONVERT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/dtype.h"

namespace reprise::runtime {

// Exact.
constexpr float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Exact, subnormals included.
constexpr float F16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

constexpr uint16_t FloatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  // The quiet bit keeps a NaN whose payload lies in the dropped half from turning into infinity.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  bits += 0x7fffu + (bits >> 16 & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

// Magnitudes from 65520 on become infinity, the midpoint between the largest half and 2^16.
constexpr uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below 2^-25: nearest is zero
  // A normal half keeps the top bits of the rebiased float; a subnormal one counts units of 2^-24.
  const bool normal = magnitude >= 0x38800000u;
  const uint32_t shift = normal ? 13 : 126 - (magnitude >> 23);
  const uint32_t source = normal ? magnitude - 0x38000000u : (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t dropped = source & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  uint32_t result = source >> shift;
  // A carry out of the mantissa lands in the exponent, where it belongs.
  if (dropped > half || (dropped == half && (result & 1u) != 0)) ++result;
  return static_cast<uint16_t>(sign | result);
}

// The finite code whose value is nearest, kMantissa bits of mantissa, exponents biased by kBias.
// `largest` is the largest finite code, sign aside. Selects, no branches: it vectorises.
template <uint32_t kMantissa, uint32_t kBias>
constexpr uint8_t FloatToOcpFp8(float value, uint32_t largest) {
  constexpr uint32_t kDropped = 23 - kMantissa;
  constexpr uint32_t kRebias = 127 - kBias;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t largest_bits = (largest + (kRebias << kMantissa)) << kDropped;
  const uint32_t clamped = magnitude < largest_bits ? magnitude : largest_bits;
  const uint32_t odd = clamped >> kDropped & 1u;
  const uint32_t normal =
      ((clamped + (1u << (kDropped - 1)) - 1u + odd) >> kDropped) - (kRebias << kMantissa);
  // Below the smallest normal number: added to a float whose last place is worth the smallest
  // subnormal one, the number is rounded by the addition, and its code is in the last places.
  constexpr uint32_t kAdded = (kRebias + 1 + kDropped) << 23;
  const float sum = std::bit_cast<float>(clamped) + std::bit_cast<float>(kAdded);
  const uint32_t subnormal = std::bit_cast<uint32_t>(sum) - kAdded;
  const uint32_t number = clamped < (kRebias + 1) << 23 ? subnormal : normal;
  return static_cast<uint8_t>(magnitude > 0x7f800000u ? 0x7fu : sign | number);
}
constexpr uint8_t FloatToE4m3(float value) { return FloatToOcpFp8<3, 7>(value, 0x7e); }
constexpr uint8_t FloatToE5m2(float value) { return FloatToOcpFp8<2, 15>(value, 0x7b); }

// Exact, subnormals included.
constexpr float E4m3ToFloat(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t code = bits & 0x7fu;
  const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(code) * 0x1p-9f);
  const uint32_t magnitude = code < 8 ? tiny : (code << 20) + (120u << 23);
  return std::bit_cast<float>(sign | (code == 0x7fu ? 0x7fc00000u : magnitude));
}
// Exact: the upper half of an f16.
constexpr float E5m2ToFloat(uint8_t bits) { return F16ToFloat(static_cast<uint16_t>(bits << 8)); }

// dst[i] = src[i] converted, i < count. Neither needs alignment; they must not overlap.
// Always by way of f32, which holds every other format exactly: one rounding.
void ConvertElements(DType from, DType to, const std::byte* src, std::byte* dst, size_t count);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_FLOAT_CONVERT_H_
