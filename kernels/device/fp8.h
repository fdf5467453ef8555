// SPDX-License-Identifier: Apache-2.0
// 8-bit floats as kernels see them: E4m3 and E5m2 of the Open Compute Project, as elements like
// those of types.h, for KV caches and weights. Storage alone: sums are f32.
//
// FromFloat rounds to nearest even and saturates: what lies beyond the largest number (448, 57344),
// infinities too, becomes the largest, and every NaN becomes 0x7f. runtime/float_convert.h has the
// contract; it is NVIDIA's with __NV_SATFINITE. ToFloat is exact; NaN codes become a NaN of no
// certain bits.
//
// From sm_89 on NVIDIA's own conversions, two elements at a time. The matrix units of gfx942 know
// other 8-bit formats (FNUZ: biases one larger, no negative zero), those of sm_80, gfx90a and
// gfx1100 none: there it is bit arithmetic without branches, the same to the bit.
#ifndef REPRISE_KERNELS_DEVICE_FP8_H_
#define REPRISE_KERNELS_DEVICE_FP8_H_

#include <type_traits>

#include "kernels/device/types.h"
#include "runtime/float_convert.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define REPRISE_NATIVE_FP8 1
#include <cuda_fp8.h>
#else
#define REPRISE_NATIVE_FP8 0
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

struct E4m3 {
  uint8_t bits;
};
struct E5m2 {
  uint8_t bits;
};

template <typename T>
inline constexpr bool kIsFp8 = std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2>;

#if REPRISE_NATIVE_FP8

template <typename T>
inline constexpr __nv_fp8_interpretation_t kFp8Format =
    std::is_same_v<T, E4m3> ? __NV_E4M3 : __NV_E5M2;

template <typename T>
REPRISE_FN float Fp8ToFloat(T x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, kFp8Format<T>)));
}
template <typename T>
REPRISE_FN T FloatToFp8(float x) {
  return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kFp8Format<T>)};
}
// Neighbours, x at the lower address.
template <typename T>
REPRISE_FN void Fp8PairToFloats(T x, T y, float* to) {
  const unsigned pair = x.bits | static_cast<unsigned>(y.bits) << 8;
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), kFp8Format<T>);
  const float2 f = __half22float2(__half2(halves));
  to[0] = f.x;
  to[1] = f.y;
}
template <typename T>
REPRISE_FN void FloatsToFp8Pair(float x, float y, T* to) {
  const unsigned pair = __nv_cvt_float2_to_fp8x2({x, y}, __NV_SATFINITE, kFp8Format<T>);
  to[0] = {static_cast<uint8_t>(pair)};
  to[1] = {static_cast<uint8_t>(pair >> 8)};
}

#else

#if REPRISE_ON_GPU

REPRISE_FN float F16BitsToFloat(uint32_t bits) {
#if defined(__CUDACC__)
  return ToFloat(__ushort_as_half(static_cast<unsigned short>(bits)));
#else
  return ToFloat(F16{static_cast<uint16_t>(bits)});
#endif
}
template <typename T>
REPRISE_FN float Fp8ToFloat(T x) {
  if constexpr (std::is_same_v<T, E5m2>) {
    return F16BitsToFloat(static_cast<uint32_t>(x.bits) << 8);
  } else {
    // As an f16 with the same fields; its exponents are biased by 8 more. There is no NaN among
    // those.
    const uint32_t code = x.bits & 0x7fu;
    const float scaled = F16BitsToFloat((x.bits & 0x80u) << 8 | code << 7) * 256.0f;
    return code == 0x7fu ? __builtin_nanf("") : scaled;
  }
}

#else

template <typename T>
REPRISE_FN float Fp8ToFloat(T x) {
  return std::is_same_v<T, E4m3> ? runtime::E4m3ToFloat(x.bits) : runtime::E5m2ToFloat(x.bits);
}

#endif

template <typename T>
REPRISE_FN T FloatToFp8(float x) {
  if constexpr (std::is_same_v<T, E4m3>) return {runtime::FloatToE4m3(x)};
  return {runtime::FloatToE5m2(x)};
}
template <typename T>
REPRISE_FN void Fp8PairToFloats(T x, T y, float* to) {
  to[0] = Fp8ToFloat(x);
  to[1] = Fp8ToFloat(y);
}
template <typename T>
REPRISE_FN void FloatsToFp8Pair(float x, float y, T* to) {
  to[0] = FloatToFp8<T>(x);
  to[1] = FloatToFp8<T>(y);
}

#endif

REPRISE_FN float ToFloat(E4m3 x) { return Fp8ToFloat(x); }
REPRISE_FN float ToFloat(E5m2 x) { return Fp8ToFloat(x); }
template <>
REPRISE_FN E4m3 FromFloat<E4m3>(float x) {
  return FloatToFp8<E4m3>(x);
}
template <>
REPRISE_FN E5m2 FromFloat<E5m2>(float x) {
  return FloatToFp8<E5m2>(x);
}

// Packs, N even: LoadVec<16> and StoreVec move 16 elements as one load or store, and these convert
// them two by two where the hardware can.
template <typename T, int N>
REPRISE_FN Vec<float, N> ToFloats(const Vec<T, N>& x) {
  static_assert(kIsFp8<T> && N % 2 == 0);
  Vec<float, N> y;
  REPRISE_UNROLL
  for (int i = 0; i < N; i += 2) Fp8PairToFloats(x.v[i], x.v[i + 1], y.v + i);
  return y;
}
template <typename T, int N>
REPRISE_FN Vec<T, N> FromFloats(const Vec<float, N>& x) {
  static_assert(kIsFp8<T> && N % 2 == 0);
  Vec<T, N> y;
  REPRISE_UNROLL
  for (int i = 0; i < N; i += 2) FloatsToFp8Pair(x.v[i], x.v[i + 1], y.v + i);
  return y;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_FP8_H_
