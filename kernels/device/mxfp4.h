// SPDX-License-Identifier: Apache-2.0
// 4-bit floats of weights, WeightFormat::kMxfp4, as kernels see them: E2M1, a bit of sign, two of
// exponent, one of mantissa. They lie as elements of kInt4 do.
#ifndef REPRISE_KERNELS_DEVICE_MXFP4_H_
#define REPRISE_KERNELS_DEVICE_MXFP4_H_

#include <cstdint>

#include "kernels/device/int4.h"
#include "kernels/device/types.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Two elements: what instances name, and what a pointer to weights counts.
struct Mxfp4 {
  uint8_t bits;
};

template <>
inline constexpr int kElementBits<Mxfp4> = 4;

// Element `offset` of a matrix, its four bits.
REPRISE_FN int Mxfp4At(const Mxfp4* matrix, int64_t offset) {
  return matrix[offset / 2].bits >> (offset % 2 * 4) & 15;
}

// What four bits stand for: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, and these below zero.
REPRISE_FN float Mxfp4Value(int bits) {
  const int exponent = bits >> 1 & 3, mantissa = bits & 1;
  const int halves = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
  return static_cast<float>(bits < 8 ? halves : -halves) * 0.5f;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MXFP4_H_
