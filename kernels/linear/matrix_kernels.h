// SPDX-License-Identifier: Apache-2.0
// The compiled instances of the matrix-unit linear: per dtype one for each tile of rows that the
// device has room for, and one whose blocks own whole tiles. Included once per target.
#ifndef REPRISE_KERNELS_LINEAR_MATRIX_KERNELS_H_
#define REPRISE_KERNELS_LINEAR_MATRIX_KERNELS_H_

#include "kernels/linear/linear_matrix_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

#define REPRISE_MATRIX_LINEAR(suffix, T, rows)                                         \
  REPRISE_THREAD_KERNEL(reprise_linear_matrix_##suffix##_##rows, kMatrixLinearThreads, \
                        MatrixBlocks(rows), (MatrixLinearBody<T, rows, false>), LinearArgs)
#define REPRISE_MATRIX_LINEAR_WHOLE(suffix, T)                                           \
  REPRISE_THREAD_KERNEL(reprise_linear_matrix_##suffix##_whole, kMatrixLinearThreads, 1, \
                        (MatrixLinearBody<T, MatrixMaxSplitRows(kTraits), true>), LinearArgs)

// Preprocessor, because extern "C" kernels cannot be discarded by `if constexpr`.
#if defined(__CUDACC__) || defined(REPRISE_EMULATE_MMA)
#define REPRISE_MATRIX_LINEAR_OF_UNIT(suffix, T) \
  REPRISE_MATRIX_LINEAR(suffix, T, 8)            \
  REPRISE_MATRIX_LINEAR(suffix, T, 128)
#else
#define REPRISE_MATRIX_LINEAR_OF_UNIT(suffix, T)
#endif
#define REPRISE_MATRIX_LINEAR_OF_DTYPE(suffix, T) \
  REPRISE_MATRIX_LINEAR_OF_UNIT(suffix, T)        \
  REPRISE_MATRIX_LINEAR(suffix, T, 16)            \
  REPRISE_MATRIX_LINEAR(suffix, T, 32)            \
  REPRISE_MATRIX_LINEAR(suffix, T, 64)            \
  REPRISE_MATRIX_LINEAR_WHOLE(suffix, T)

REPRISE_MATRIX_LINEAR_OF_DTYPE(bf16, Bf16)
REPRISE_MATRIX_LINEAR_OF_DTYPE(f16, F16)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_MATRIX_KERNELS_H_
