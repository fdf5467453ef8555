// SPDX-License-Identifier: Apache-2.0
// 4-bit elements as matrix units take them: in pairs, less their zero point, as parts of
// kInt4Worth, which 16 bits hold exactly. Fragments of them: matrix_mma.h, matrix_mfma.h and
// matrix_wmma.h.
//
// A 16-bit float whose exponent is 0 or 1 counts steps of the smallest number: all of a bf16's
// lowest eight bits, and more of an f16's, are one number. So a mask takes an element of bits 0 to
// 3 as it is, and one of bits 4 to 7 as 16 times as much; a product and a sum, in one instruction,
// do the rest.
#ifndef REPRISE_KERNELS_DEVICE_INT4_PAIRS_H_
#define REPRISE_KERNELS_DEVICE_INT4_PAIRS_H_

#include "kernels/device/int4.h"
#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// What the scales of elements are multiplied by, a power of two.
template <typename T>
inline constexpr float kInt4Worth = std::is_same_v<T, F16> ? 512.0f : 128.0f;

// The scale of a ScaleWord, for sums of products of such elements.
template <typename T>
REPRISE_FN float Int4Scale(uint32_t scale_word) {
  return FloatOf(scale_word & ~kZeroPointBits) * kInt4Worth<T>;
}

#if defined(__CUDACC__)
template <typename T>
REPRISE_FN uint32_t MultiplyAddPairs(uint32_t x, uint32_t y, uint32_t z) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, F16>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(x), "r"(y), "r"(z));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(x), "r"(y), "r"(z));
  }
  return pair;
}
// What counts of steps are multiplied by to become parts of kInt4Worth: 2^126 in bf16, 2^15 in f16,
// for both of a pair; and the same for counts that are 16 times as large.
template <typename T>
inline constexpr uint32_t kInt4Factor = std::is_same_v<T, F16> ? 0x78007800u : 0x7e807e80u;
template <typename T>
inline constexpr uint32_t kInt4UpperFactor = std::is_same_v<T, F16> ? 0x68006800u : 0x7c807c80u;
#endif

// The zero point of a ScaleWord, for Int4Pair.
template <typename T>
REPRISE_FN uint32_t Int4Zero(uint32_t scale_word) {
  const uint32_t zeros = ZeroPointOfWord(scale_word) * 0x10001u;
#if defined(__CUDACC__)
  return MultiplyAddPairs<T>(zeros, kInt4Factor<T> | 0x80008000u, 0x80008000u);  // plus -0
#else
  return zeros;
#endif
}

// Elements 0 and 4 of a word, less the zero point, as T's. kUpper: elements 1 and 5.
template <typename T, bool kUpper = false>
REPRISE_FN uint32_t Int4Pair(uint32_t word, uint32_t zero) {
#if defined(__CUDACC__)
  return kUpper ? MultiplyAddPairs<T>(word & 0x00f000f0u, kInt4UpperFactor<T>, zero)
                : MultiplyAddPairs<T>(word & 0x000f000fu, kInt4Factor<T>, zero);
#else
  const auto at = [&](int shift) {
    const uint32_t element = word >> (shift + (kUpper ? 4 : 0)) & 15u;
    return static_cast<float>(static_cast<int>(element) - static_cast<int>(zero >> shift & 31u)) /
           kInt4Worth<T>;
  };
  return Pack2<T>(at(0), at(16));
#endif
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_INT4_PAIRS_H_
