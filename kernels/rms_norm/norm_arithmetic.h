// SPDX-License-Identifier: Apache-2.0
// The arithmetic of RMSNorm, for whoever norms a row: the op's own kernels, the step kernel, and
// linear layers that norm what they read (kernels/linear). On a GPU, rows that a block keeps, in
// packs of 16 bytes, are added up in one order by all of them, so that bits do not say who did it:
// - A pack of 16 bytes: its squares, one after the other (NormSquares).
// - kNormPacksPerThread * kWarpSize packs side by side are a warp's: lane l adds pack l, then pack
//   kWarpSize + l, and the lanes add up by exchanges, the farthest first.
// - The sums of warps, zero where there is none, add up by exchanges in the same way.
#ifndef REPRISE_KERNELS_RMS_NORM_NORM_ARITHMETIC_H_
#define REPRISE_KERNELS_RMS_NORM_NORM_ARITHMETIC_H_

#include "kernels/device/block.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// What residual + branch is: of the branch, one rounding came before.
template <typename T>
REPRISE_FN T AddBranch(T residual, T branch, float branch_scale) {
  return FromFloat<T>(ToFloat(residual) + branch_scale * ToFloat(branch));
}

template <typename T, int kWidth>
REPRISE_FN float NormSquares(const Vec<T, kWidth>& x) {
  float squares = 0.0f;
  REPRISE_UNROLL
  for (int j = 0; j < kWidth; ++j) squares += ToFloat(x.v[j]) * ToFloat(x.v[j]);
  return squares;
}

// share: of one element in the mean, 1 / hidden.
REPRISE_FN float NormScale(float squares, float share, float eps) {
  return Rsqrt(MultiplyAdd(squares, share, eps));
}

// One rounding, to T.
template <typename T, int kWidth>
REPRISE_FN Vec<T, kWidth> Normed(const Vec<T, kWidth>& x, float scale, const Vec<T, kWidth>& weight,
                                 float weight_offset) {
  Vec<T, kWidth> y;
  REPRISE_UNROLL
  for (int j = 0; j < kWidth; ++j)
    y.v[j] = FromFloat<T>(ToFloat(x.v[j]) * scale * (weight_offset + ToFloat(weight.v[j])));
  return y;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_RMS_NORM_NORM_ARITHMETIC_H_
