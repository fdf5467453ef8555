// SPDX-License-Identifier: Apache-2.0
// Thread style on CUDA; the contract is in thread.h.
#ifndef REPRISE_KERNELS_DEVICE_CUDA_THREAD_H_
#define REPRISE_KERNELS_DEVICE_CUDA_THREAD_H_

#include <type_traits>

#include "kernels/device/traits.h"
#include "kernels/device/types.h"

namespace reprise::kernels::on_cuda {

// ---- indices ----

REPRISE_FN int ThreadX() { return static_cast<int>(threadIdx.x); }
REPRISE_FN int BlockThreads() { return static_cast<int>(blockDim.x); }
REPRISE_FN int BlockX() { return static_cast<int>(blockIdx.x); }
REPRISE_FN int BlockY() { return static_cast<int>(blockIdx.y); }
REPRISE_FN int GridX() { return static_cast<int>(gridDim.x); }
REPRISE_FN int GridY() { return static_cast<int>(gridDim.y); }
REPRISE_FN int Lane() { return static_cast<int>(threadIdx.x) & 31; }
REPRISE_FN int Warp() { return static_cast<int>(threadIdx.x) >> 5; }

// ---- synchronisation ----

REPRISE_FN void SyncBlock() { __syncthreads(); }
REPRISE_FN void SyncWarp() { __syncwarp(); }
template <typename V>
REPRISE_FN V Shuffle(V x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
template <typename V>
REPRISE_FN V ShuffleXor(V x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <typename V>
REPRISE_FN V ShuffleUp(V x, int by) {
  return __shfl_up_sync(0xffffffffu, x, by);
}

REPRISE_FN bool AnyLane(bool x) { return __any_sync(0xffffffffu, x) != 0; }

// ---- kernels of a stream ----

// No-ops where the kernel was not launched to begin early.
REPRISE_FN void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
REPRISE_FN void LetNextBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
REPRISE_FN void LetNextBeginFirst() { LetNextBegin(); }

// ---- shared memory ----

#define REPRISE_SHARED(type, name) __shared__ type name
#define REPRISE_SHARED_ARRAY(type, name, count) __shared__ type name[count]

REPRISE_FN uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
template <typename V>
REPRISE_FN V LoadShared(uint32_t address) {
  return *static_cast<const V*>(__cvta_shared_to_generic(address));
}
template <typename V>
REPRISE_FN void StoreShared(uint32_t address, const V& x) {
  *static_cast<V*>(__cvta_shared_to_generic(address)) = x;
}

// ---- asynchronous copies ----

// Past L1; fetches the rest of the 128-byte line into L2. Both addresses are multiples of 16.
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
REPRISE_FN void CopyAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
REPRISE_FN void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- barriers in shared memory (mbarrier) ----

inline constexpr bool kHasSharedBarriers = true;

REPRISE_FN void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
REPRISE_FN void BarrierArrive(uint64_t* barrier) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(SharedAddress(barrier))
      : "memory");
}
REPRISE_FN bool BarrierTest(uint64_t* barrier, uint32_t phase) {
  uint32_t done = 0;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(SharedAddress(barrier)), "r"(phase & 1u)
      : "memory");
  return done != 0;
}
REPRISE_FN void BarrierWait(uint64_t* barrier, uint32_t phase) {
#if __CUDA_ARCH__ >= 900
  const uint32_t address = SharedAddress(barrier), parity = phase & 1u;
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  }
#else
  while (!BarrierTest(barrier, phase)) {
  }
#endif
}
REPRISE_FN void BarrierWaitForEither(uint64_t* a, uint64_t* b, uint32_t phase) {
  while (!BarrierTest(a, phase) && !BarrierTest(b, phase)) {
  }
}
// On a barrier of the hardware's, the one behind that of SyncBlock.
REPRISE_FN void SyncThreads(int threads, uint64_t* /*barrier*/, uint32_t /*turn*/) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}
#if REPRISE_BULK_COPY
REPRISE_FN void BarrierArriveTimes(uint64_t* barrier, uint32_t times) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0], %1; }" ::"r"(
                   SharedAddress(barrier)),
               "r"(times)
               : "memory");
}
REPRISE_FN void BarrierArriveExpectBytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}
REPRISE_FN void BarrierArriveAfterCopies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}
REPRISE_FN void CopyBulk(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
REPRISE_FN void CopyBulkOnce(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  uint64_t evict_first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier)), "l"(evict_first)
      : "memory");
}
REPRISE_FN void FenceBulkCopies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
REPRISE_FN void FenceBulkReads() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
#endif

// ---- between blocks ----

REPRISE_FN uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
  return atomicAdd(address, value);
}
// Orders this thread's earlier accesses, and those that a barrier put before them, ahead of the
// addition, and later ones behind it. Cheaper than two fences.
REPRISE_FN uint32_t AtomicAddAcquireRelease(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}
REPRISE_FN void AtomicAddRelease(uint32_t* address, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
// A word of shared memory; returns what was there.
REPRISE_FN uint32_t AtomicMaxRelease(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.release.cta.shared.max.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(SharedAddress(address)), "r"(value)
               : "memory");
  return before;
}
REPRISE_FN void WaitAtLeastInBlock(const uint32_t* address, uint32_t value) {
  uint32_t x;
  do {
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                 : "=r"(x)
                 : "r"(SharedAddress(address))
                 : "memory");
  } while (x < value);
}
inline constexpr uint64_t kFlagPatienceNs = 10'000'000'000;
REPRISE_FN uint32_t LoadAcquire(const uint32_t* address) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}
REPRISE_FN uint64_t ClockNs();
REPRISE_FN void WaitAtLeast(const uint32_t* address, uint32_t value) {
  constexpr uint32_t kLooksPerTurn = 4096;
  for (uint32_t looks = 0; looks < kLooksPerTurn; ++looks)
    if (LoadAcquire(address) >= value) return;
  const uint64_t begin = ClockNs();
  while (LoadAcquire(address) < value)
    if (ClockNs() - begin > kFlagPatienceNs) __trap();
}
REPRISE_FN void AtomicAdd(uint64_t* address, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
}
REPRISE_FN void AtomicOr(uint32_t* address, uint32_t value) { atomicOr(address, value); }
REPRISE_FN void FenceDevice() { __threadfence(); }

// V: 4, 8 or 16 bytes of floats or integers.
template <typename V>
REPRISE_FN V LoadFresh(const V* p) {
  if constexpr (sizeof(V) == 4) {
    const uint32_t x = __ldcg(reinterpret_cast<const unsigned*>(p));
    return reinterpret_cast<const V&>(x);
  } else if constexpr (sizeof(V) == 8) {
    const uint2 x = __ldcg(reinterpret_cast<const uint2*>(p));
    return reinterpret_cast<const V&>(x);
  } else {
    static_assert(sizeof(V) == 16);
    const uint4 x = __ldcg(reinterpret_cast<const uint4*>(p));
    return reinterpret_cast<const V&>(x);
  }
}

// ---- host memory ----

REPRISE_FN void FenceSystem() { __threadfence_system(); }
// One trip over the bus each: spread a range over threads, and never let many threads load the same
// address, which the bus serves one by one.
REPRISE_FN Vec<uint32_t, 4> LoadFromHost(const void* p) {
  Vec<uint32_t, 4> x;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.v[0]), "=r"(x.v[1]), "=r"(x.v[2]), "=r"(x.v[3])
               : "l"(p)
               : "memory");
  return x;
}
REPRISE_FN void StoreToHost(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Nanoseconds on the device's clock.
REPRISE_FN uint64_t ClockNs() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// ---- arithmetic ----

// 2^x, within 2 ulp; 2^-inf = 0.
REPRISE_FN float Exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
REPRISE_FN float Exp(float x) { return __expf(x); }
REPRISE_FN float Log(float x) { return logf(x); }
REPRISE_FN float Rsqrt(float x) { return rsqrtf(x); }
REPRISE_FN float Reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
REPRISE_FN void SinCos(float x, float* s, float* c) { sincosf(x, s, c); }
REPRISE_FN float Infinity() { return __int_as_float(0x7f800000); }
REPRISE_FN uint32_t BitsOf(float x) { return __float_as_uint(x); }
REPRISE_FN float FloatOf(uint32_t bits) { return __uint_as_float(bits); }
REPRISE_FN float QuietNaN() { return __int_as_float(0x7fc00000); }
// The larger; a NaN loses against a number.
REPRISE_FN float Max(float a, float b) { return fmaxf(a, b); }
REPRISE_FN float MultiplyAdd(float a, float b, float c) { return fmaf(a, b, c); }
// The upper half of the product.
REPRISE_FN uint32_t MultiplyHigh(uint32_t a, uint32_t b) { return __umulhi(a, b); }

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

// ---- kernels ----

// Arguments are operands in constant memory as it is.
template <typename Args>
REPRISE_FN const Args& ReadAgain(const Args& args) {
  return args;
}

#define REPRISE_THREAD_KERNEL(name, fits, threads, min_blocks, body, Args) \
  extern "C" __global__ void __launch_bounds__(threads, min_blocks)        \
      name(const __grid_constant__ Args a) {                               \
    extern __shared__ __align__(1024) unsigned char reprise_shared[];      \
    if constexpr (fits) body(a, reprise_shared);                           \
  }
#if __CUDA_ARCH__ >= 900
#define REPRISE_CLUSTER_KERNEL(name, fits, threads, min_blocks, body, Args)         \
  extern "C" __global__ void __cluster_dims__(kClusterBlocks, 1, 1)                 \
      __launch_bounds__(threads, min_blocks) name(const __grid_constant__ Args a) { \
    extern __shared__ __align__(1024) unsigned char reprise_shared[];               \
    if constexpr (fits) body(a, reprise_shared);                                    \
  }
#else
#define REPRISE_CLUSTER_KERNEL REPRISE_THREAD_KERNEL
#endif
#define REPRISE_BLOCK_KERNEL(name, threads, min_blocks, body, Args)              \
  extern "C" __global__ void __launch_bounds__(threads.Max(kTraits), min_blocks) \
      name(const __grid_constant__ Args a) {                                     \
    extern __shared__ __align__(1024) unsigned char reprise_shared[];            \
    BeginBlock<Args>();                                                          \
    Block b(reprise_shared);                                                     \
    body(b, a);                                                                  \
  }

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_DEVICE_CUDA_THREAD_H_
