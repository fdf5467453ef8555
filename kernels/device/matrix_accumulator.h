// SPDX-License-Identifier: Apache-2.0
// What a lane holds of D, whatever the matrix unit: kCount floats. Which elements of
// D they are is said in matrix_mma.h, matrix_mfma.h and matrix_wmma.h. Part of matrix.h.
#ifndef REPRISE_KERNELS_DEVICE_MATRIX_ACCUMULATOR_H_
#define REPRISE_KERNELS_DEVICE_MATRIX_ACCUMULATOR_H_

#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <int kCount>
struct MatrixAccumulator {
  static constexpr int kSize = kCount;
  float v[kSize];
  REPRISE_FN void Clear() {
    REPRISE_UNROLL
    for (int i = 0; i < kSize; ++i) v[i] = 0.0f;
  }
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_ACCUMULATOR_H_
