// SPDX-License-Identifier: Apache-2.0
// Element types as kernels see them: Bf16, F16 and float, conversions to and from float (round to
// nearest even), and Vec, an aligned pack that moves as one wide load or store.
#ifndef REPRISE_KERNELS_DEVICE_TYPES_H_
#define REPRISE_KERNELS_DEVICE_TYPES_H_

#include "kernels/device/platform.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#elif !defined(__HIP__)
#include "runtime/float_convert.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

#if defined(__CUDACC__)

using Bf16 = __nv_bfloat16;
using F16 = __half;

REPRISE_FN float ToFloat(Bf16 x) { return __bfloat162float(x); }
REPRISE_FN float ToFloat(F16 x) { return __half2float(x); }
REPRISE_FN float ToFloat(float x) { return x; }

template <typename T>
REPRISE_FN T FromFloat(float x);
template <>
REPRISE_FN Bf16 FromFloat<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
REPRISE_FN F16 FromFloat<F16>(float x) {
  return __float2half_rn(x);
}
template <>
REPRISE_FN float FromFloat<float>(float x) {
  return x;
}

#else

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

#if defined(__HIP__)
REPRISE_FN float ToFloat(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
REPRISE_FN float ToFloat(F16 x) { return static_cast<float>(__builtin_bit_cast(_Float16, x.bits)); }
REPRISE_FN uint16_t Bf16Bits(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40u;
  return static_cast<uint16_t>(x != x ? quiet_nan : rounded);  // a select, never a branch
}
REPRISE_FN uint16_t F16Bits(float x) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(x));
}
#else
REPRISE_FN float ToFloat(Bf16 x) { return runtime::Bf16ToFloat(x.bits); }
REPRISE_FN float ToFloat(F16 x) { return runtime::F16ToFloat(x.bits); }
REPRISE_FN uint16_t Bf16Bits(float x) { return runtime::FloatToBf16(x); }
REPRISE_FN uint16_t F16Bits(float x) { return runtime::FloatToF16(x); }
#endif
REPRISE_FN float ToFloat(float x) { return x; }

template <typename T>
REPRISE_FN T FromFloat(float x);
template <>
REPRISE_FN Bf16 FromFloat<Bf16>(float x) {
  return {Bf16Bits(x)};
}
template <>
REPRISE_FN F16 FromFloat<F16>(float x) {
  return {F16Bits(x)};
}
template <>
REPRISE_FN float FromFloat<float>(float x) {
  return x;
}

#endif

// N elements that are loaded and stored together. The address must be a multiple of sizeof(Vec), at
// most 16.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T v[N];
};

template <int N, typename T>
REPRISE_FN Vec<T, N> LoadVec(const T* p) {
#if defined(__HIP__)  // element by element: a whole struct that is loaded under a branch goes
                      // through scratch memory
  Vec<T, N> x;
  for (int i = 0; i < N; ++i) x.v[i] = reinterpret_cast<const Vec<T, N>*>(p)->v[i];
  return x;
#else
  return *reinterpret_cast<const Vec<T, N>*>(p);
#endif
}
template <int N, typename T>
REPRISE_FN void StoreVec(T* p, const Vec<T, N>& x) {
  *reinterpret_cast<Vec<T, N>*>(p) = x;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_TYPES_H_
