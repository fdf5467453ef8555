// SPDX-License-Identifier: Apache-2.0
// Element types as kernels see them: Bf16, F16 and float, conversions to and from float (round to
// nearest even), and Vec, an aligned pack that moves as one wide load or store.
#ifndef REPRISE_KERNELS_DEVICE_TYPES_H_
#define REPRISE_KERNELS_DEVICE_TYPES_H_

#include "kernels/device/platform.h"

#if REPRISE_ON_GPU
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "runtime/float_convert.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

#if REPRISE_ON_GPU

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

REPRISE_FN float ToFloat(Bf16 x) { return runtime::Bf16ToFloat(x.bits); }
REPRISE_FN float ToFloat(F16 x) { return runtime::F16ToFloat(x.bits); }
REPRISE_FN float ToFloat(float x) { return x; }

template <typename T>
T FromFloat(float x);
template <>
inline Bf16 FromFloat<Bf16>(float x) {
  return {runtime::FloatToBf16(x)};
}
template <>
inline F16 FromFloat<F16>(float x) {
  return {runtime::FloatToF16(x)};
}
template <>
inline float FromFloat<float>(float x) {
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
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
template <int N, typename T>
REPRISE_FN void StoreVec(T* p, const Vec<T, N>& x) {
  *reinterpret_cast<Vec<T, N>*>(p) = x;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_TYPES_H_
