// SPDX-License-Identifier: Apache-2.0
// E4M3 elements as matrix units take them: in pairs, as f16, which holds them all, or bf16.
// Fragments of them: matrix_mma.h, matrix_mfma.h and matrix_wmma.h.
//
// Where there is no instruction for it, an f16 gets the fields of the element: it is worth 2^-8 of
// it then, subnormal numbers too. What that leaves to do is a factor, kHalvesWorth, of whatever is
// computed from them in the end. NaN becomes NaN.
#ifndef REPRISE_KERNELS_DEVICE_FP8_HALVES_H_
#define REPRISE_KERNELS_DEVICE_FP8_HALVES_H_

#include "kernels/device/fp8.h"
#include "kernels/device/thread.h"
#include "kernels/packed_layout.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// An element over what it becomes.
inline constexpr float kHalvesWorth = REPRISE_NATIVE_FP8 ? 1.0f : 256.0f;

// Bytes kLow and kHigh of x as f16, in the low and the high half of a register.
template <int kLow, int kHigh>
REPRISE_FN uint32_t E4m3Halves(uint32_t x) {
#if REPRISE_NATIVE_FP8
  const uint32_t pair = kHigh == kLow + 1 ? x >> (8 * kLow) : __byte_perm(x, 0, kLow | kHigh << 4);
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return halves.x | static_cast<uint32_t>(halves.y) << 16;
#else
  // Each in the upper byte of its half.
  const uint32_t low = kLow == 0 ? x << 8 : x >> (8 * kLow - 8);
  const uint32_t high = x << (24 - 8 * kHigh);
  const uint32_t z = (low & 0xff00u) | (high & 0xff000000u);
  const uint32_t magnitude = z & 0x7f007f00u;
  // Of 0x7f, and of nothing else, the sum reaches the sign: the highest bit of an f16's exponent.
  const uint32_t nan = (magnitude + 0x01000100u) & 0x80008000u;
  return (z & 0x80008000u) | (magnitude | nan) >> 1;
#endif
}

// Two f16 as T's in one register; exact.
template <typename T>
REPRISE_FN uint32_t HalvesAs(uint32_t halves) {
  if constexpr (std::is_same_v<T, F16>) return halves;
#if defined(__CUDACC__)
  return Pack2<T>(ToFloat(__ushort_as_half(static_cast<unsigned short>(halves))),
                  ToFloat(__ushort_as_half(static_cast<unsigned short>(halves >> 16))));
#else
  return Pack2<T>(ToFloat(F16{static_cast<uint16_t>(halves)}),
                  ToFloat(F16{static_cast<uint16_t>(halves >> 16)}));
#endif
}

// Elements of packed words (kernels/packed_layout.h) as T: two registers of two. They are worth
// 1 / kPackedE4m3Worth of what they stand for.
//
// A bf16 with the fields of the element is worth 2^-120 of it, an f16 2^-8, subnormal numbers too:
// a product makes up for it, exactly.
#if defined(__CUDACC__)
inline constexpr float kPackedE4m3Worth = 1.0f;
template <typename T>
REPRISE_FN uint32_t PackedHalvesAs(uint32_t fields) {
  uint32_t halves;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(halves)
        : "r"(fields), "r"(0x7b807b80u), "r"(0x80008000u));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;"
        : "=r"(halves)
        : "r"((fields & 0x80008000u) | (fields << 3 & 0x3f803f80u)), "r"(0x5c005c00u),
          "r"(0x80008000u));
  }
  return halves;
}
#else
inline constexpr float kPackedE4m3Worth = 256.0f;
template <typename T>
REPRISE_FN uint32_t PackedHalvesAs(uint32_t fields) {
  return HalvesAs<T>((fields & 0x80008000u) | (fields << 3 & 0x3f803f80u));
}
#endif
template <typename T>
REPRISE_FN void UnpackHalves(uint32_t word, uint32_t& ones, uint32_t& twos) {
  ones = PackedHalvesAs<T>(PackedOnes(word));
  twos = PackedHalvesAs<T>(PackedTwos(word));
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_FP8_HALVES_H_
