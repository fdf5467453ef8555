// SPDX-License-Identifier: Apache-2.0
// Conversions between the storage formats of dtype.h: scalar ones, usable in constant expressions,
// and one over arrays. For loading weights; kernels convert with kernels/device/.
// Rounding is to nearest, ties to even. NaN stays NaN with its sign; infinities stay.
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

// dst[i] = src[i] converted, i < count. Neither needs alignment; they must not overlap.
// Between the two half formats by way of f32, which holds both exactly: one rounding.
void ConvertElements(DType from, DType to, const std::byte* src, std::byte* dst, size_t count);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_FLOAT_CONVERT_H_
