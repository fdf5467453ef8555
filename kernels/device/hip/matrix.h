// SPDX-License-Identifier: Apache-2.0
// AMD's matrix instructions, one function each; matrix_mfma.h and matrix_wmma.h make fragments of
// them. MFMA: gfx90a and gfx942; WMMA: gfx11.
#ifndef REPRISE_KERNELS_DEVICE_HIP_MATRIX_H_
#define REPRISE_KERNELS_DEVICE_HIP_MATRIX_H_

#include "kernels/device/thread.h"

namespace reprise::kernels::on_hip {

template <typename E, int N>
using Lanes = E __attribute__((ext_vector_type(N)));

// x, of which the compiler knows nothing. Constants added to it stay in the offset fields of loads;
// otherwise every sum is an invariant of the kernel, computed ahead of its loops into a register of
// its own.
REPRISE_FN uint32_t Opaque(uint32_t x) {
  asm("" : "+v"(x));
  return x;
}

// The compiler moves no instruction across this point, least of all loads ahead of the products
// before it: each would hold registers meanwhile.
REPRISE_FN void EndOfSchedule() { __builtin_amdgcn_sched_barrier(0); }

#if defined(__GFX9__)

// D[16, 16] += A[16, 16] B[16, 16]. d: 4, a and b: 2 registers of 2 elements.
template <typename T>
REPRISE_FN void Mfma16x16x16(float* d, const uint32_t* a, const uint32_t* b) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  struct Pair {
    uint32_t r[2];
  };
  Lanes<float, 4> sum = {d[0], d[1], d[2], d[3]};
  if constexpr (std::is_same_v<T, Bf16>) {
    using V = Lanes<short, 4>;
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(V, (Pair{{a[0], a[1]}})),
                                                    __builtin_bit_cast(V, (Pair{{b[0], b[1]}})),
                                                    sum, 0, 0, 0);
  } else {
    using V = Lanes<_Float16, 4>;
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(V, (Pair{{a[0], a[1]}})),
                                                __builtin_bit_cast(V, (Pair{{b[0], b[1]}})), sum, 0,
                                                0, 0);
  }
  for (int i = 0; i < 4; ++i) d[i] = sum[i];
}

#elif defined(__GFX11__)

// D[16, 16] += A[16, 16] B[16, 16]. d: 8, a and b: 8 registers of 2 elements.
template <typename T>
REPRISE_FN void Wmma16x16x16(float* d, const uint32_t* a, const uint32_t* b) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  Lanes<uint32_t, 8> x, y;
  Lanes<float, 8> sum;
  for (int i = 0; i < 8; ++i) {
    x[i] = a[i];
    y[i] = b[i];
    sum[i] = d[i];
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    using V = Lanes<short, 16>;
    sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(V, x),
                                                      __builtin_bit_cast(V, y), sum);
  } else {
    using V = Lanes<_Float16, 16>;
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(V, x),
                                                     __builtin_bit_cast(V, y), sum);
  }
  for (int i = 0; i < 8; ++i) d[i] = sum[i];
}

#endif

}  // namespace reprise::kernels::on_hip

#endif  // REPRISE_KERNELS_DEVICE_HIP_MATRIX_H_
