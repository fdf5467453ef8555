// SPDX-License-Identifier: Apache-2.0
// 4-bit floats as matrix units take them, beside int4_pairs.h: in pairs, as T's of what they stand
// for. Both kinds of 4-bit elements are told apart here, by W, so that tiles and sums are written
// once.
//
// E2M1's bits of exponent and mantissa, moved to where T has its lowest bits of exponent and its
// highest of mantissa, are a T that is smaller by a power of two, whatever they are: T's exponent 0
// has no leading one either. A product undoes that.
#ifndef REPRISE_KERNELS_DEVICE_MXFP4_PAIRS_H_
#define REPRISE_KERNELS_DEVICE_MXFP4_PAIRS_H_

#include "kernels/device/int4_pairs.h"
#include "kernels/device/mxfp4.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

#if defined(__CUDACC__)
// That power, of both of a pair: 2^126 of bf16, 2^14 of f16.
template <typename T>
inline constexpr uint32_t kMxfp4Factor = std::is_same_v<T, F16> ? 0x74007400u : 0x7e807e80u;
#endif

// Elements 0 and 4 of a word as T's. kUpper: elements 1 and 5.
template <typename T, bool kUpper = false>
REPRISE_FN uint32_t Mxfp4Pair(uint32_t word) {
#if defined(__CUDACC__)
  constexpr int kToSign = kUpper ? 8 : 12;
  constexpr int kToRest = (std::is_same_v<T, F16> ? 9 : 6) - (kUpper ? 4 : 0);
  constexpr uint32_t kRest = std::is_same_v<T, F16> ? 0x0e000e00u : 0x01c001c0u;
  const uint32_t small = (word << kToSign & 0x80008000u) | (word << kToRest & kRest);
  return MultiplyAddPairs<T>(small, kMxfp4Factor<T>, 0x80008000u);  // plus -0
#else
  constexpr int kFirst = kUpper ? 4 : 0;
  return Pack2<T>(Mxfp4Value(static_cast<int>(word >> kFirst & 15u)),
                  Mxfp4Value(static_cast<int>(word >> (16 + kFirst) & 15u)));
#endif
}

// What products of 4-bit elements of W are scaled with, of a word of `scales`; and their zero
// point, as FourBitPair takes it.
template <typename T, typename W>
REPRISE_FN float FourBitScale(uint32_t scale_word) {
  if constexpr (std::is_same_v<W, Int4>) {
    return Int4Scale<T>(scale_word);
  } else {
    return FloatOf(scale_word);
  }
}
template <typename T, typename W>
REPRISE_FN uint32_t FourBitZero([[maybe_unused]] uint32_t scale_word) {
  if constexpr (std::is_same_v<W, Int4>) {
    return Int4Zero<T>(scale_word);
  } else {
    return 0;
  }
}
template <typename T, typename W, bool kUpper = false>
REPRISE_FN uint32_t FourBitPair(uint32_t word, [[maybe_unused]] uint32_t zero) {
  if constexpr (std::is_same_v<W, Int4>) {
    return Int4Pair<T, kUpper>(word, zero);
  } else {
    return Mxfp4Pair<T, kUpper>(word);
  }
}
// Elements i and i + 4 of a word, for i of 0 to 3; the zero point of odd ones is the second.
template <typename T, typename W>
REPRISE_FN void FourBitPairs(uint32_t word, const uint32_t (&zero)[2], uint32_t (&pairs)[4]) {
  pairs[0] = FourBitPair<T, W>(word, zero[0]);
  pairs[1] = FourBitPair<T, W, true>(word, zero[1]);
  pairs[2] = FourBitPair<T, W>(word >> 8, zero[0]);
  pairs[3] = FourBitPair<T, W, true>(word >> 8, zero[1]);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MXFP4_PAIRS_H_
