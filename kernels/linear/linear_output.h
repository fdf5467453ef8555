// SPDX-License-Identifier: Apache-2.0
// How kernels of linear write an output, or add to what it holds.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_OUTPUT_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_OUTPUT_H_

#include "kernels/device/types.h"
#include "kernels/linear/linear_args.h"
#if REPRISE_ON_GPU
#include "kernels/device/matrix.h"
#include "kernels/rms_norm/norm_arithmetic.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

// One rounding, to T or none. at: of the output's elements.
template <typename T>
REPRISE_FN void StoreLinearOutput(const LinearArgs& a, int64_t at, float y) {
  if (a.out_is_f32 != 0) {
    static_cast<float*>(a.out)[at] = y;
  } else {
    static_cast<T*>(a.out)[at] = FromFloat<T>(y);
  }
}

#if REPRISE_ON_GPU
// Scale, bias and, where asked for, SiLU and product, then one rounding, of what a lane has of the
// outputs first .. first + 15. sum(h, j): of its row h and column j. row(j): of the output, at
// least `rows` where there is none. kPairs: the kernel is one of packed weights.
template <typename T, int kColumns, bool kPairs, typename Sum, typename Row>
REPRISE_FN void StoreLinearTile(const LinearArgs& a, int64_t first, int rows, Sum sum, Row row) {
  const T* const biases = static_cast<const T*>(a.bias);
  const auto bias = [&](int64_t n) { return biases != nullptr ? ToFloat(biases[n]) : 0.0f; };
  if constexpr (kPairs && kLaneHoldsPairs) {
    if (a.silu_mul != 0) {
      const int64_t half = a.out_features / 2, n = first / 2 + MatrixRow(0);
      if (n >= half) return;
      const float gate_bias = bias(n), up_bias = bias(half + n);
      REPRISE_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        if (row(j) >= rows) continue;
        const float gate = MultiplyAdd(sum(0, j), a.scale, gate_bias);
        const float y = gate / (1.0f + Exp(-gate)) * MultiplyAdd(sum(1, j), a.scale, up_bias);
        StoreLinearOutput<T>(a, row(j) * half + n, y);
      }
      return;
    }
  }
  REPRISE_UNROLL
  for (int h = 0; h < kLaneRows; ++h) {
    const int64_t n = first + MatrixRow(h);
    if (n >= a.out_features) continue;
    const float of_output = bias(n);
    REPRISE_UNROLL
    for (int j = 0; j < kColumns; ++j)
      if (row(j) < rows)
        StoreLinearOutput<T>(a, static_cast<int64_t>(row(j)) * a.out_features + n,
                             MultiplyAdd(sum(h, j), a.scale, of_output));
  }
}

// Reads what out holds where StoreLinearTile would store, of adds_to_out: put(h, j, x) for each.
template <typename T, int kColumns, typename Row, typename Put>
REPRISE_FN void LoadLinearTile(const LinearArgs& a, int64_t first, int rows, Row row, Put put) {
  const T* const out = static_cast<const T*>(a.out);
  REPRISE_UNROLL
  for (int h = 0; h < kLaneRows; ++h) {
    const int64_t n = first + MatrixRow(h);
    REPRISE_UNROLL
    for (int j = 0; j < kColumns; ++j)
      if (n < a.out_features && row(j) < rows)
        put(h, j, out[static_cast<int64_t>(row(j)) * a.out_features + n]);
  }
}
// As StoreLinearTile without SiLU, but what it rounds is added to held(h, j).
template <typename T, int kColumns, typename Sum, typename Row, typename Held>
REPRISE_FN void AddLinearTile(const LinearArgs& a, int64_t first, int rows, Sum sum, Row row,
                              Held held) {
  const T* const biases = static_cast<const T*>(a.bias);
  T* const out = static_cast<T*>(a.out);
  REPRISE_UNROLL
  for (int h = 0; h < kLaneRows; ++h) {
    const int64_t n = first + MatrixRow(h);
    if (n >= a.out_features) continue;
    const float bias = biases != nullptr ? ToFloat(biases[n]) : 0.0f;
    REPRISE_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      if (row(j) >= rows) continue;
      const T branch = FromFloat<T>(MultiplyAdd(sum(h, j), a.scale, bias));
      out[static_cast<int64_t>(row(j)) * a.out_features + n] =
          AddBranch(held(h, j), branch, a.branch_scale);
    }
  }
}
#endif

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_OUTPUT_H_
