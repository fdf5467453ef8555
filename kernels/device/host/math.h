// SPDX-License-Identifier: Apache-2.0
// Arithmetic of block-style bodies on the host: the functions of thread.h that they use, by the C
// library.
#ifndef REPRISE_KERNELS_DEVICE_HOST_MATH_H_
#define REPRISE_KERNELS_DEVICE_HOST_MATH_H_

#include <cmath>
#include <cstring>

#include "kernels/device/platform.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN float Exp(float x) { return std::exp(x); }
REPRISE_FN float Log(float x) { return std::log(x); }
REPRISE_FN float Tanh(float x) { return std::tanh(x); }
REPRISE_FN float Rsqrt(float x) { return 1.0f / std::sqrt(x); }
// The build has no fused products for the host: two roundings, everywhere.
REPRISE_FN float MultiplyAdd(float a, float b, float c) { return a * b + c; }
REPRISE_FN void SinCos(float x, float* s, float* c) {
  *s = std::sin(x);
  *c = std::cos(x);
}
REPRISE_FN float Infinity() { return __builtin_huge_valf(); }
REPRISE_FN float QuietNaN() { return __builtin_nanf(""); }
REPRISE_FN uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
REPRISE_FN float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_HOST_MATH_H_
