// SPDX-License-Identifier: Apache-2.0
// Rounding of rows, as every kernel that does it computes it (round_rows.h).
#ifndef REPRISE_KERNELS_ROUND_ROWS_ROUND_ARITHMETIC_H_
#define REPRISE_KERNELS_ROUND_ROWS_ROUND_ARITHMETIC_H_

#include "kernels/device/fp8.h"
#include "kernels/round_rows/round_rows_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The largest size among the elements.
template <typename T, int kWidth>
REPRISE_FN float LargestOf(const Vec<T, kWidth>& x) {
  float largest = 0.0f;
  REPRISE_UNROLL
  for (int j = 0; j < kWidth; ++j) {
    const float y = ToFloat(x.v[j]), size = y < 0.0f ? -y : y;
    largest = size > largest ? size : largest;  // NaN is larger than nothing
  }
  return largest;
}
// The scale of a row of which `largest` is the largest.
REPRISE_FN float RowScale(float largest) {
  const float share = largest * (1.0f / kMostE4m3);
  return share > kLeastRowScale ? share : kLeastRowScale;
}
// inverse: 1 / RowScale.
template <typename T, int kWidth>
REPRISE_FN void StoreRounded(const Vec<T, kWidth>& x, float inverse, E4m3* to) {
  if constexpr (kWidth == 1) {
    *to = FromFloat<E4m3>(ToFloat(x.v[0]) * inverse);
  } else {
    Vec<float, kWidth> scaled;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) scaled.v[j] = ToFloat(x.v[j]) * inverse;
    StoreVec(to, FromFloats<E4m3>(scaled));
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ROUND_ROWS_ROUND_ARITHMETIC_H_
