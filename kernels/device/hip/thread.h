// SPDX-License-Identifier: Apache-2.0
// Thread style on AMD GPUs; the contract is in thread.h. Written over the compiler's own builtins,
// so that no HIP headers are needed: kernels are compiled with -nogpuinc. Sources: LLVM, "User
// Guide for AMDGPU Backend" (memory model, address spaces); clang's BuiltinsAMDGPU list.
#ifndef REPRISE_KERNELS_DEVICE_HIP_THREAD_H_
#define REPRISE_KERNELS_DEVICE_HIP_THREAD_H_

#include <type_traits>

#include "kernels/device/traits.h"
#include "kernels/device/types.h"

// Device functions of the vendor's math library (OCML), linked as bitcode.
extern "C" {
__attribute__((device, const)) float __ocml_log_f32(float);
__attribute__((device, const)) float __ocml_sin_f32(float);
__attribute__((device, const)) float __ocml_cos_f32(float);
}

namespace reprise::kernels::on_hip {

// ---- indices ----

REPRISE_FN int ThreadX() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
REPRISE_FN int BlockThreads() { return static_cast<int>(__builtin_amdgcn_workgroup_size_x()); }
REPRISE_FN int BlockX() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
REPRISE_FN int BlockY() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
// The packet counts threads, not blocks; ours are whole blocks.
REPRISE_FN int GridX() {
  return static_cast<int>(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x());
}
REPRISE_FN int GridY() {
  return static_cast<int>(__builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y());
}
// Hides from the compiler that a thread's lane never changes. Otherwise it computes everything that
// depends on lanes alone, hundreds of addresses, ahead of a kernel's loops, and spills what does
// not fit in registers.
REPRISE_FN int Lane() {
  int thread = ThreadX();
  asm("" : "+v"(thread));
  return thread & (kWarpSize - 1);
}
REPRISE_FN int Warp() { return ThreadX() / kWarpSize; }

// ---- kernels of a stream: none begins early ----

REPRISE_FN void WaitForPrevious() {}
REPRISE_FN void LetNextBegin() {}
REPRISE_FN void LetNextBeginFirst() {}

// ---- synchronisation ----

REPRISE_FN void SyncBlock() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
REPRISE_FN void SyncWarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
template <typename V>
REPRISE_FN V Shuffle(V x, int lane) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8);
  struct Words {
    int w[sizeof(V) / 4];
  };
  Words words = __builtin_bit_cast(Words, x);
  for (int& w : words.w) w = __builtin_amdgcn_ds_bpermute(lane * 4, w);
  return __builtin_bit_cast(V, words);
}
template <typename V>
REPRISE_FN V ShuffleXor(V x, int mask) {
  return Shuffle(x, Lane() ^ mask);
}
// Lanes below `by` get their own.
template <typename V>
REPRISE_FN V ShuffleUp(V x, int by) {
  return Shuffle(x, Lane() < by ? Lane() : Lane() - by);
}

REPRISE_FN bool AnyLane(bool x) {
  uint32_t any = x ? 1u : 0u;
  REPRISE_UNROLL
  for (int mask = 1; mask < kWarpSize; mask <<= 1) any |= ShuffleXor(any, mask);
  return any != 0;
}

// ---- shared memory (LDS) ----

#define REPRISE_SHARED(type, name) __attribute__((shared)) type name
#define REPRISE_SHARED_ARRAY(type, name, count) __attribute__((shared)) type name[count]

template <typename V>
using InLds = __attribute__((address_space(3))) V;

REPRISE_FN uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>((InLds<const char>*)(p)));
}
template <typename V>
REPRISE_FN V LoadShared(uint32_t address) {
  return *(const V*)(InLds<const V>*)(uintptr_t)address;
}
template <typename V>
REPRISE_FN void StoreShared(uint32_t address, const V& x) {
  *(V*)(InLds<V>*)(uintptr_t)address = x;
}

// ---- asynchronous copies: none that fits all of our targets; they run at once ----

// The compiler's own vector: a struct whose value depends on a branch goes through scratch memory.
using Chunk = uint32_t __attribute__((ext_vector_type(4)));
REPRISE_FN void CopyAsync16(uint32_t shared, const void* global) {
  StoreShared(shared, *static_cast<const Chunk*>(global));
}
REPRISE_FN void CopyAsync16OrZero(uint32_t shared, const void* global, bool valid) {
  Chunk x = 0;
  if (valid) x = *static_cast<const Chunk*>(global);
  StoreShared(shared, x);
}
REPRISE_FN void CopyAsyncCommit() {}
template <int kPending>
REPRISE_FN void CopyAsyncWait() {}

inline constexpr bool kHasSharedBarriers = false;

// ---- between blocks ----

REPRISE_FN uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
REPRISE_FN uint32_t AtomicAddAcquireRelease(uint32_t* address, uint32_t value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
REPRISE_FN void AtomicAddRelease(uint32_t* address, uint32_t value) {
  __hip_atomic_fetch_add(address, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
REPRISE_FN uint32_t AtomicMaxRelease(uint32_t* address, uint32_t value) {
  return __hip_atomic_fetch_max(address, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
}
REPRISE_FN void WaitAtLeastInBlock(const uint32_t* address, uint32_t value) {
  while (__hip_atomic_load(address, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) < value) {
  }
}
inline constexpr uint64_t kFlagPatienceNs = 10'000'000'000;
REPRISE_FN uint64_t ClockNs();
REPRISE_FN void WaitAtLeast(const uint32_t* address, uint32_t value) {
  const uint64_t begin = ClockNs();
  while (__hip_atomic_load(address, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < value)
    if (ClockNs() - begin > kFlagPatienceNs) __builtin_trap();
}
REPRISE_FN void AtomicAdd(uint64_t* address, uint64_t value) {
  __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
REPRISE_FN void AtomicOr(uint32_t* address, uint32_t value) {
  __hip_atomic_fetch_or(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
REPRISE_FN void FenceDevice() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

template <typename V>
REPRISE_FN V LoadFresh(const V* p) {
  struct Words {
    uint32_t w[sizeof(V) / 4];
  };
  Words x;
  for (unsigned i = 0; i < sizeof(V) / 4; ++i)
    x.w[i] = __hip_atomic_load(reinterpret_cast<const uint32_t*>(p) + i, __ATOMIC_RELAXED,
                               __HIP_MEMORY_SCOPE_AGENT);
  return __builtin_bit_cast(V, x);
}

// ---- host memory ----

REPRISE_FN void FenceSystem() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
REPRISE_FN Vec<uint32_t, 4> LoadFromHost(const void* p) {
  Vec<uint32_t, 4> x;
  for (int i = 0; i < 4; ++i)
    x.v[i] = __hip_atomic_load(static_cast<const uint32_t*>(p) + i, __ATOMIC_RELAXED,
                               __HIP_MEMORY_SCOPE_SYSTEM);
  return x;
}
REPRISE_FN void StoreToHost(uint64_t* word, uint64_t value) {
  __hip_atomic_store(word, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
// The constant clock runs at 100 MHz on all CDNA and RDNA that we compile for.
REPRISE_FN uint64_t ClockNs() { return __builtin_readsteadycounter() * 10; }

// ---- arithmetic ----

REPRISE_FN float Infinity() { return __builtin_huge_valf(); }
REPRISE_FN uint32_t BitsOf(float x) { return __builtin_bit_cast(uint32_t, x); }
REPRISE_FN float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }
REPRISE_FN float QuietNaN() { return __builtin_nanf(""); }
REPRISE_FN float Exp2(float x) { return __builtin_amdgcn_exp2f(x); }
REPRISE_FN float Exp(float x) { return __builtin_amdgcn_exp2f(x * 1.4426950408889634f); }
REPRISE_FN float Log(float x) { return __ocml_log_f32(x); }
REPRISE_FN float Rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
REPRISE_FN float Reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
REPRISE_FN void SinCos(float x, float* s, float* c) {
  *s = __ocml_sin_f32(x);
  *c = __ocml_cos_f32(x);
}
REPRISE_FN float Max(float a, float b) { return __builtin_fmaxf(a, b); }
REPRISE_FN float MultiplyAdd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
REPRISE_FN uint32_t MultiplyHigh(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}
template <typename T>
REPRISE_FN uint32_t Pack2(float low, float high) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  return static_cast<uint32_t>(FromFloat<T>(low).bits) |
         (static_cast<uint32_t>(FromFloat<T>(high).bits) << 16);
}

// ---- kernels ----

// The compiler loads all that a kernel uses of its arguments when it begins, and keeps it in scalar
// registers, or in lanes of vector registers where there are too few. It cannot know that this is
// where they lie: they are the kernel's only parameter.
template <typename Args>
REPRISE_FN const Args& ReadAgain(const Args&) {
  auto* args =
      (const __attribute__((address_space(4))) Args*)__builtin_amdgcn_kernarg_segment_ptr();
  asm("" : "+s"(args));
  return *(const Args*)args;
}

#define REPRISE_HIP_KERNEL(min_threads, max_threads) \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(min_threads, max_threads))) void
#define REPRISE_THREAD_KERNEL(name, fits, threads, min_blocks, body, Args)                     \
  REPRISE_HIP_KERNEL(threads, threads) name(const Args a) {                                    \
    extern __attribute__((shared)) __attribute__((aligned(1024))) unsigned char reprise_lds[]; \
    if constexpr (fits) body(a, reprise_lds);                                                  \
  }
// There are no clusters: nothing but an empty kernel is made of it.
#define REPRISE_CLUSTER_KERNEL REPRISE_THREAD_KERNEL
#define REPRISE_BLOCK_KERNEL(name, threads, min_blocks, body, Args)                            \
  REPRISE_HIP_KERNEL(threads.Min(kTraits), threads.Max(kTraits)) name(const Args a) {          \
    extern __attribute__((shared)) __attribute__((aligned(1024))) unsigned char reprise_lds[]; \
    Block b(reprise_lds);                                                                      \
    body(b, a);                                                                                \
  }

}  // namespace reprise::kernels::on_hip

#endif  // REPRISE_KERNELS_DEVICE_HIP_THREAD_H_
