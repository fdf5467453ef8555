// SPDX-License-Identifier: Apache-2.0
// 4-bit elements as matrix units take them: in pairs, less their zero point, which 16 bits hold
// exactly. Fragments of them: matrix_mma.h, matrix_mfma.h and matrix_wmma.h.
//
// A float whose last bit is worth 1 and whose lowest four are an element is the element and a
// constant; with the zero point likewise, the difference is what is wanted.
#ifndef REPRISE_KERNELS_DEVICE_INT4_PAIRS_H_
#define REPRISE_KERNELS_DEVICE_INT4_PAIRS_H_

#include "kernels/device/int4.h"
#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// 128 in bf16, 1024 in f16, twice.
template <typename T>
inline constexpr uint32_t kInt4Base = std::is_same_v<T, F16> ? 0x64006400u : 0x43004300u;

// The zero point of a ScaleWord, for Int4Pair.
template <typename T>
REPRISE_FN uint32_t Int4Zero(uint32_t scale_word) {
  return kInt4Base<T> | ZeroPointOfWord(scale_word) * 0x10001u;
}

// Elements 0 and 4 of a word, less the zero point, as T's.
template <typename T>
REPRISE_FN uint32_t Int4Pair(uint32_t word, uint32_t zero) {
  const uint32_t pair = (word & 0x000f000fu) | kInt4Base<T>;
#if defined(__CUDACC__)
  using Pair = std::conditional_t<std::is_same_v<T, F16>, __half2, __nv_bfloat162>;
  const Pair less = __hsub2(*reinterpret_cast<const Pair*>(&pair),  //
                            *reinterpret_cast<const Pair*>(&zero));
  return *reinterpret_cast<const uint32_t*>(&less);
#else
  const auto at = [&](int shift) {
    return static_cast<float>(static_cast<int>(pair >> shift & 31u) -
                              static_cast<int>(zero >> shift & 31u));
  };
  return Pack2<T>(at(0), at(16));
#endif
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_INT4_PAIRS_H_
