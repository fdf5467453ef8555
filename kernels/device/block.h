// SPDX-License-Identifier: Apache-2.0
// Block style: a kernel body is written from the view of one thread block, as a sequence of phases.
// On a GPU a phase runs on all threads; on the host the same phase is a plain loop, run by one
// worker. The same body, native on both.
//
//   template <typename T> REPRISE_FN void Body(Block& b, const Args& a) {
//     float sum = b.Sum(a.n, [&](int i) { return ToFloat(a.x[i]); });   // every thread gets the
//     sum b.For(a.n, [&](int i) { a.y[i] = FromFloat<T>(ToFloat(a.x[i]) / sum); });
//   }
//   REPRISE_BLOCK_KERNEL(normalize_bf16, 256, Body<Bf16>, Args)
//
// Rules: a value written in one For and read by other threads in the next needs b.Sync() between
// them; locals outside a For must be the same in every thread; every thread of the block reaches
// every Sync, Sum, Max, Scan. Reductions have one fixed order per (n, threads), so they never
// depend on the rest of the batch.
#ifndef REPRISE_KERNELS_DEVICE_BLOCK_H_
#define REPRISE_KERNELS_DEVICE_BLOCK_H_

#include "kernels/device/platform.h"
#include "kernels/device/types.h"

#if !REPRISE_ON_GPU
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/device.h"
#endif

namespace reprise::kernels::REPRISE_DEVICE_NS {

// A float and where it was found.
struct ValueIndex {
  float value;
  uint32_t index;
};

// The better of two for an arg-max: larger value, then lower index. NaN never wins.
REPRISE_FN ValueIndex Better(ValueIndex a, ValueIndex b) {
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
  return a;
}

#if REPRISE_ON_GPU

REPRISE_FN float Exp(float x) { return __expf(x); }
REPRISE_FN float Log(float x) { return logf(x); }
REPRISE_FN float Rsqrt(float x) { return rsqrtf(x); }
REPRISE_FN void SinCos(float x, float* s, float* c) { sincosf(x, s, c); }
REPRISE_FN float Infinity() { return __int_as_float(0x7f800000); }
REPRISE_FN float QuietNaN() { return __int_as_float(0x7fc00000); }
REPRISE_FN uint32_t BitsOf(float x) { return __float_as_uint(x); }
REPRISE_FN float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

class Block {
 public:
  __device__ __forceinline__ explicit Block(unsigned char* shared) : shared_(shared) {}

  __device__ __forceinline__ int x() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int y() const { return static_cast<int>(blockIdx.y); }
  __device__ __forceinline__ int grid_x() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ int grid_y() const { return static_cast<int>(gridDim.y); }

  // Dynamic shared memory from a byte offset on.
  template <typename T>
  __device__ __forceinline__ T* Shared(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(shared_ + offset_bytes);
  }

  __device__ __forceinline__ void Sync() const { __syncthreads(); }

  // f(i) for every i in [0, n), neighbouring i in neighbouring threads.
  template <typename F>
  __device__ __forceinline__ void For(int n, F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) f(i);
  }
  // f() once.
  template <typename F>
  __device__ __forceinline__ void Once(F f) const {
    if (threadIdx.x == 0) f();
  }

  template <typename F>
  __device__ __forceinline__ float Sum(int n, F f) const {
    float v = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) v += f(i);
    return Reduce(v, 0.0f, [](float a, float b) { return a + b; });
  }
  template <typename F>
  __device__ __forceinline__ float Max(int n, F f) const {
    float v = -Infinity();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
      v = fmaxf(v, f(i));
    return Reduce(v, -Infinity(), [](float a, float b) { return fmaxf(a, b); });
  }
  // Largest f(i), lowest i among equals; {-inf, 0xffffffff} when all are NaN or n is 0.
  template <typename F>
  __device__ __forceinline__ ValueIndex ArgMax(int n, F f) const {
    ValueIndex v{-Infinity(), 0xffffffffu};
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
      v = Better(v, ValueIndex{f(i), static_cast<uint32_t>(i)});
    return Reduce(v, ValueIndex{-Infinity(), 0xffffffffu},
                  [](ValueIndex a, ValueIndex b) { return Better(a, b); });
  }

  // put(i, sum of get(0..i-1)) for every i; returns the sum of all. get must not depend on put.
  template <typename Get, typename Put>
  __device__ __forceinline__ uint32_t ExclusiveScan(int n, Get get, Put put) const {
    __shared__ uint32_t warp_totals[32];
    const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
    const int num_warps = (static_cast<int>(blockDim.x) + 31) >> 5;
    uint32_t carry = 0;
    for (int base = 0; base < n; base += static_cast<int>(blockDim.x)) {
      const int i = base + static_cast<int>(threadIdx.x);
      const uint32_t own = i < n ? get(i) : 0u;
      uint32_t inclusive = own;
      for (int d = 1; d < 32; d <<= 1) {
        const uint32_t up = __shfl_up_sync(0xffffffffu, inclusive, d);
        if (lane >= d) inclusive += up;
      }
      if (lane == 31) warp_totals[warp] = inclusive;
      __syncthreads();
      uint32_t before = carry, total = 0;
      for (int w = 0; w < num_warps; ++w) {
        if (w < warp) before += warp_totals[w];
        total += warp_totals[w];
      }
      if (i < n) put(i, before + inclusive - own);
      carry += total;
      __syncthreads();
    }
    return carry;
  }

  // Called by every block that contributes to one result, after its writes: true in exactly the
  // last of `expected` arrivals, which then sees all others' writes. Resets the counter for the
  // next use. Contains Sync.
  __device__ __forceinline__ bool ArriveIsLast(uint32_t* counter, uint32_t expected) const {
    __shared__ uint32_t last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      last = atomicAdd(counter, 1u) == expected - 1 ? 1u : 0u;
      if (last != 0) *counter = 0;
    }
    __syncthreads();
    const bool result = last != 0;
    if (result) __threadfence();
    __syncthreads();
    return result;
  }

  // Integer atomics on memory that only this block touches, shared or global: sums and unions of
  // integers do not depend on the order. The 32-bit sum returns what was there before.
  __device__ __forceinline__ uint32_t AtomicAdd(uint32_t* p, uint32_t v) const {
    return atomicAdd(p, v);
  }
  __device__ __forceinline__ void AtomicAdd(uint64_t* p, uint64_t v) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
  }
  __device__ __forceinline__ void AtomicOr(uint32_t* p, uint32_t v) const { atomicOr(p, v); }

  // 16 bytes of memory that the host writes, past every cache. One trip over the bus each: spread a
  // range over threads, and never let many threads load the same address, which the bus serves one
  // by one.
  __device__ __forceinline__ Vec<uint32_t, 4> LoadFromHost(const void* p) const {
    Vec<uint32_t, 4> x;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.v[0]), "=r"(x.v[1]), "=r"(x.v[2]), "=r"(x.v[3])
                 : "l"(p)
                 : "memory");
    return x;
  }
  // Makes every earlier write of the block visible to the host, then stores. Contains Sync.
  __device__ __forceinline__ void PublishToHost(uint64_t* word, uint64_t value) const {
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
      asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  // Nanoseconds on the device's clock.
  __device__ __forceinline__ uint64_t ClockNs() const {
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
  }

 private:
  template <typename V>
  static __device__ __forceinline__ V ShuffleXor(V v, int mask) {
    if constexpr (sizeof(V) == 8) {
      V out = v;
      out.value = __shfl_xor_sync(0xffffffffu, v.value, mask);
      out.index = __shfl_xor_sync(0xffffffffu, v.index, mask);
      return out;
    } else {
      return __shfl_xor_sync(0xffffffffu, v, mask);
    }
  }
  template <typename V, typename Op>
  __device__ __forceinline__ V Reduce(V v, V identity, Op op) const {
    __shared__ V scratch[32];
    const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
    const int num_warps = static_cast<int>(blockDim.x) >> 5;
    for (int d = 16; d > 0; d >>= 1) v = op(v, ShuffleXor(v, d));
    if (num_warps == 1) return v;
    __syncthreads();  // scratch may still be read from the reduction before
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    v = lane < num_warps ? scratch[lane] : identity;
    for (int d = 16; d > 0; d >>= 1) v = op(v, ShuffleXor(v, d));
    return v;
  }

  unsigned char* shared_;
};

// Defines the kernel `name` over a block-style body. `threads` is a multiple of 32.
#define REPRISE_BLOCK_KERNEL(name, threads, body, Args)                                        \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args a) { \
    extern __shared__ __align__(16) unsigned char reprise_shared[];                            \
    Block b(reprise_shared);                                                                   \
    body(b, a);                                                                                \
  }

#else  // host

REPRISE_FN float Exp(float x) { return std::exp(x); }
REPRISE_FN float Log(float x) { return std::log(x); }
REPRISE_FN float Rsqrt(float x) { return 1.0f / std::sqrt(x); }
REPRISE_FN void SinCos(float x, float* s, float* c) {
  *s = std::sin(x);
  *c = std::cos(x);
}
REPRISE_FN float Infinity() { return __builtin_huge_valf(); }
REPRISE_FN float QuietNaN() { return __builtin_nanf(""); }
REPRISE_FN uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
REPRISE_FN float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

class Block {
 public:
  explicit Block(const runtime::HostBlockContext& context) : context_(context) {}

  int x() const { return static_cast<int>(context_.block_x); }
  int y() const { return static_cast<int>(context_.block_y); }
  int grid_x() const { return static_cast<int>(context_.grid_x); }
  int grid_y() const { return static_cast<int>(context_.grid_y); }

  template <typename T>
  T* Shared(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(context_.shared + offset_bytes);
  }

  void Sync() const {}

  template <typename F>
  void For(int n, F f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  template <typename F>
  void Once(F f) const {
    f();
  }

  template <typename F>
  float Sum(int n, F f) const {
    constexpr int kLanes =
        16;  // independent partial sums, so that the loop vectorises in one fixed order
    float lanes[kLanes] = {};
    int i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
    for (int l = 0; i < n; ++i, ++l) lanes[l] += f(i);
    float sum = 0.0f;
    for (float lane : lanes) sum += lane;
    return sum;
  }
  template <typename F>
  float Max(int n, F f) const {
    float v = -Infinity();
    for (int i = 0; i < n; ++i) v = std::fmax(v, f(i));
    return v;
  }
  template <typename F>
  ValueIndex ArgMax(int n, F f) const {
    ValueIndex v{-Infinity(), 0xffffffffu};
    for (int i = 0; i < n; ++i) v = Better(v, ValueIndex{f(i), static_cast<uint32_t>(i)});
    return v;
  }
  template <typename Get, typename Put>
  uint32_t ExclusiveScan(int n, Get get, Put put) const {
    uint32_t sum = 0;
    for (int i = 0; i < n; ++i) {
      const uint32_t own = get(i);
      put(i, sum);
      sum += own;
    }
    return sum;
  }

  bool ArriveIsLast(uint32_t* counter, uint32_t expected) const {
    if (__atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL) != expected - 1) return false;
    __atomic_store_n(counter, 0u, __ATOMIC_RELAXED);
    return true;
  }

  // One worker runs the whole block.
  uint32_t AtomicAdd(uint32_t* p, uint32_t v) const {
    const uint32_t before = *p;
    *p += v;
    return before;
  }
  void AtomicAdd(uint64_t* p, uint64_t v) const { *p += v; }
  void AtomicOr(uint32_t* p, uint32_t v) const { *p |= v; }

  Vec<uint32_t, 4> LoadFromHost(const void* p) const {
    Vec<uint32_t, 4> x;
    std::memcpy(&x, p, sizeof(x));  // ordered by the launch
    return x;
  }
  void PublishToHost(uint64_t* word, uint64_t value) const {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  uint64_t ClockNs() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }

 private:
  const runtime::HostBlockContext& context_;
};

#define REPRISE_BLOCK_KERNEL(name, threads, body, Args)                          \
  inline void name(const runtime::HostBlockContext& context, const void* args) { \
    Block b(context);                                                            \
    body(b, *static_cast<const Args*>(args));                                    \
  }

#endif

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_BLOCK_H_
