// SPDX-License-Identifier: Apache-2.0
// NVIDIA's matrix instructions, one function each; matrix_mma.h makes fragments of them. sm_80 and
// newer.
#ifndef REPRISE_KERNELS_DEVICE_CUDA_MATRIX_H_
#define REPRISE_KERNELS_DEVICE_CUDA_MATRIX_H_

#include "kernels/device/thread.h"

namespace reprise::kernels::on_cuda {

// x, of which the compiler knows nothing: it finds no part of what follows ahead of a loop.
REPRISE_FN uint32_t Opaque(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the addresses of the rows of matrix i.
// r[i] of lane l: matrix i, row l / 4, elements 2 (l % 4) and the next.
REPRISE_FN void LoadMatrix4(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
// The same, each matrix transposed.
REPRISE_FN void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
// Two matrices; lanes 0..15 give the addresses.
REPRISE_FN void LoadMatrix2(uint32_t (&r)[2], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared)
               : "memory");
}

// The transpose of an 8x8 matrix that lies as LoadMatrix4 leaves one.
REPRISE_FN uint32_t TransposeMatrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// D[16, 8] += A[16, 16] B[16, 8]. d: 4, a: 4.
template <typename T>
REPRISE_FN void MmaSync16x8x16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_DEVICE_CUDA_MATRIX_H_
