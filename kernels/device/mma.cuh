// SPDX-License-Identifier: Apache-2.0
// The warp-level layer under the tensor-core kernels: 16-byte asynchronous copies into shared
// memory, matrix fragments, mma.sync, and a bank-conflict-free layout of shared tiles. sm_80 and
// newer. Not a tile library: loops and pipelines belong to the kernels.
//
// Fragments of D[16, 8] += A[16, 16] B[16, 8] (mma.m16n8k16), with g = lane / 4 and q = lane % 4:
//   A  a[0] = A[g][2q..], a[1] = A[g + 8][2q..], a[2] = A[g][2q + 8..], a[3] = A[g + 8][2q + 8..]
//   two elements each B  b0 = B[2q..][g], b1 = B[2q + 8..][g] D  d[0..1] = D[g][2q..], d[2..3] =
//   D[g + 8][2q..]
// So two D fragments side by side (columns 0-7 and 8-15), packed to T, are one A fragment.
#ifndef REPRISE_KERNELS_DEVICE_MMA_CUH_
#define REPRISE_KERNELS_DEVICE_MMA_CUH_

#include <type_traits>

#include "kernels/device/platform.h"
#include "kernels/device/types.h"

namespace reprise::kernels::on_cuda {

// ---- shared memory ----

// Address of shared memory as the instructions below take it, in bytes.
REPRISE_FN uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of rows of kChunks chunks (4, or a
// multiple of 8). Eight neighbouring rows of one chunk lie in eight different bank groups, and so
// do eight neighbouring chunks of one row: copies and LoadMatrix are free of conflicts. The tile
// starts at a multiple of 128 bytes.
template <int kChunks>
REPRISE_FN uint32_t SwizzledOffset(uint32_t row, uint32_t chunk) {
  static_assert(kChunks == 4 || kChunks % 8 == 0);
  const uint32_t flip = kChunks == 4 ? (row >> 1) & 3u : row & 7u;
  return (row * kChunks + (chunk ^ flip)) * 16;
}

// ---- asynchronous copies ----

// Copies 16 bytes to shared memory, past L1. Both addresses are multiples of 16. Fetches the rest
// of the 128-byte line into L2.
REPRISE_FN void CopyAsync16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
}
// The same when `valid`; otherwise writes zeros and reads nothing (`global` is not touched, but
// must be a valid pointer value).
REPRISE_FN void CopyAsync16OrZero(uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}
// Closes the thread's current group of copies; empty groups count.
REPRISE_FN void CopyAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of the thread's newest groups are in flight. Other threads see the
// data after a barrier.
template <int kPending>
REPRISE_FN void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- barriers in shared memory (mbarrier): threads of a block that meet without stopping the
// others ---- Phases count from 0. Everything that the arriving threads wrote before is visible to
// those that waited for the phase.

// By one thread; the others may use it after a barrier of the block. arrivals: how many complete a
// phase.
REPRISE_FN void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
REPRISE_FN void BarrierArrive(uint64_t* barrier) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(SharedAddress(barrier))
      : "memory");
}
// Waits until phase number `phase` is complete. Nobody may be more than one phase behind.
REPRISE_FN void BarrierWait(uint64_t* barrier, uint32_t phase) {
  const uint32_t address = SharedAddress(barrier), parity = phase & 1u;
  uint32_t done = 0;
  while (done == 0) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
#endif
  }
}

// ---- global memory shared between blocks ----

// counter += 1, returns the value before. Orders this thread's earlier accesses, and those that a
// barrier put before them, ahead of the addition, and later ones behind it. Cheaper than two
// __threadfence().
REPRISE_FN uint32_t AddOneAcquireRelease(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

// ---- fragments ----

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

// d += a b, f32 accumulation.
template <typename T>
REPRISE_FN void Mma16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
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

// Two elements in one register, `low` at the lower address; round to nearest even.
template <typename T>
REPRISE_FN uint32_t Pack2(float low, float high) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  uint32_t r;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  }
  return r;
}

// ---- arithmetic ----

// 2^x, within 2 ulp; 2^-inf = 0.
REPRISE_FN float Exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_DEVICE_MMA_CUH_
