// SPDX-License-Identifier: Apache-2.0
// The compiled instances of the tensor-core linear: two dtypes x five row tiles, and one that owns
// whole tiles.
#include "kernels/linear/mma_body.cuh"

namespace reprise::kernels::on_cuda {

#define REPRISE_MMA_LINEAR(suffix, T, rows)                                        \
  extern "C" __global__ void __launch_bounds__(kMmaLinearThreads, MmaBlocks(rows)) \
      reprise_linear_mma_##suffix##_##rows(const __grid_constant__ LinearArgs a) { \
    MmaLinearKernel<T, rows, false>(a);                                            \
  }
#define REPRISE_MMA_LINEAR_OF_DTYPE(suffix, T)                                    \
  REPRISE_MMA_LINEAR(suffix, T, 8)                                                \
  REPRISE_MMA_LINEAR(suffix, T, 16)                                               \
  REPRISE_MMA_LINEAR(suffix, T, 32)                                               \
  REPRISE_MMA_LINEAR(suffix, T, 64)                                               \
  REPRISE_MMA_LINEAR(suffix, T, 128)                                              \
  extern "C" __global__ void __launch_bounds__(kMmaLinearThreads, 1)              \
      reprise_linear_mma_##suffix##_whole(const __grid_constant__ LinearArgs a) { \
    MmaLinearKernel<T, 128, true>(a);                                             \
  }

REPRISE_MMA_LINEAR_OF_DTYPE(bf16, Bf16)
REPRISE_MMA_LINEAR_OF_DTYPE(f16, F16)

}  // namespace reprise::kernels::on_cuda
