// SPDX-License-Identifier: Apache-2.0
// Block style: a kernel body is written from the view of one thread block, as a sequence of phases.
// On a GPU a phase runs on all threads; on the host the same phase is a plain loop, run by one
// worker. The same body, native on both.
//
//   template <typename T>
//   REPRISE_FN void Body(Block& b, const Args& a) {
//     // Every thread gets the sum.
//     const float sum = b.Sum(a.n, [&](int i) { return ToFloat(a.x[i]); });
//     b.For(a.n, [&](int i) { a.y[i] = FromFloat<T>(ToFloat(a.x[i]) / sum); });
//   }
//   REPRISE_BLOCK_KERNEL(normalize_bf16, Threads(256), 0, Body<Bf16>, Args)
//
// REPRISE_BLOCK_KERNEL(name, threads, min_blocks, body, Args) defines a kernel; the product's are
// defined by their op's list (kernels/kernel_instance.h, which explains threads and min_blocks).
//
// Rules: a value written in one For and read by other threads in the next needs b.Sync() between
// them; locals outside a For must be the same in every thread; every thread of the block reaches
// every Sync, Sum, Max, Scan. Reductions have one fixed order per (n, threads), so they never
// depend on the rest of the batch.
#ifndef REPRISE_KERNELS_DEVICE_BLOCK_H_
#define REPRISE_KERNELS_DEVICE_BLOCK_H_

#include "kernels/device/platform.h"
#include "kernels/device/thread_count.h"
#include "kernels/device/types.h"

#if REPRISE_ON_GPU
#include "kernels/device/thread.h"
#else
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

// An index of a phase over Local values: the index, and where its thread keeps what belongs to it.
struct LocalIndex {
  int i;
  int slot;
};

// A T for every index in [0, n), n at most kSlots * b.threads(), kept from phase to phase by the
// thread that the index falls to: in registers on a GPU, in an array on the host. No other thread
// can see it, so it needs no Sync. Only phases with the same kSlots may use it, whose callbacks get
// the LocalIndex:
//
//   Local<float, 2> x;
//   const float sum = b.Sum<2>(n, [&](LocalIndex at) { return x[at] = ToFloat(in[at.i]); });
//   b.For<2>(n, [&](LocalIndex at) { out[at.i] = FromFloat<T>(x[at] / sum); });
template <typename T, int kSlots>
class Local {
 public:
  REPRISE_FN T& operator[](LocalIndex at) { return values_[at.slot]; }

 private:
#if REPRISE_ON_GPU
  T values_[kSlots];
#else
  T values_[kSlots * 1024];
#endif
};

#if REPRISE_ON_GPU

class Block {
 public:
  REPRISE_FN explicit Block(unsigned char* shared) : shared_(shared) {}

  REPRISE_FN int x() const { return BlockX(); }
  REPRISE_FN int y() const { return BlockY(); }
  REPRISE_FN int grid_x() const { return GridX(); }
  REPRISE_FN int grid_y() const { return GridY(); }
  REPRISE_FN int threads() const { return BlockThreads(); }

  // Dynamic shared memory from a byte offset on.
  template <typename T>
  REPRISE_FN T* Shared(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(shared_ + offset_bytes);
  }

  REPRISE_FN void Sync() const { SyncBlock(); }

  // f(i) for every i in [0, n), neighbouring i in neighbouring threads.
  template <typename F>
  REPRISE_FN void For(int n, F f) const {
    for (int i = ThreadX(); i < n; i += BlockThreads()) f(i);
  }
  // The same for Local values: f(LocalIndex). n is at most kSlots * threads().
  template <int kSlots, typename F>
  REPRISE_FN void For(int n, F f) const {
    REPRISE_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const int i = ThreadX() + slot * BlockThreads();
      if (i < n) f(LocalIndex{i, slot});
    }
  }
  // f() once.
  template <typename F>
  REPRISE_FN void Once(F f) const {
    if (ThreadX() == 0) f();
  }

  template <typename F>
  REPRISE_FN float Sum(int n, F f) const {
    float v = 0.0f;
    for (int i = ThreadX(); i < n; i += BlockThreads()) v += f(i);
    return Reduce(v, 0.0f, [](float a, float b) { return a + b; });
  }
  template <int kSlots, typename F>
  REPRISE_FN float Sum(int n, F f) const {
    float v = 0.0f;
    For<kSlots>(n, [&](LocalIndex at) { v += f(at); });
    return Reduce(v, 0.0f, [](float a, float b) { return a + b; });
  }
  template <typename F>
  REPRISE_FN float Max(int n, F f) const {
    float v = -Infinity();
    for (int i = ThreadX(); i < n; i += BlockThreads()) v = REPRISE_DEVICE_NS::Max(v, f(i));
    return Reduce(v, -Infinity(), [](float a, float b) { return REPRISE_DEVICE_NS::Max(a, b); });
  }
  // Largest f(i), lowest i among equals; {-inf, 0xffffffff} when all are NaN or n is 0.
  template <typename F>
  REPRISE_FN ValueIndex ArgMax(int n, F f) const {
    ValueIndex v{-Infinity(), 0xffffffffu};
    for (int i = ThreadX(); i < n; i += BlockThreads())
      v = Better(v, ValueIndex{f(i), static_cast<uint32_t>(i)});
    return Reduce(v, ValueIndex{-Infinity(), 0xffffffffu},
                  [](ValueIndex a, ValueIndex b) { return Better(a, b); });
  }

  // put(i, sum of get(0..i-1)) for every i; returns the sum of all. get must not depend on put. An
  // i falls to the thread that For gives it to, and a Sync follows the last put: what was written
  // for an i needs none before it, what put writes none behind.
  template <typename Get, typename Put>
  REPRISE_FN uint32_t ExclusiveScan(int n, Get get, Put put) const {
    REPRISE_SHARED_ARRAY(uint32_t, warp_totals, kMaxWarps);
    const int num_warps = BlockThreads() / kWarpSize;
    uint32_t carry = 0;
    for (int base = 0; base < n; base += BlockThreads()) {
      const int i = base + ThreadX();
      const uint32_t own = i < n ? get(i) : 0u;
      uint32_t inclusive = own;
      for (int d = 1; d < kWarpSize; d <<= 1) {
        const uint32_t up = ShuffleUp(inclusive, d);
        if (Lane() >= d) inclusive += up;
      }
      if (Lane() == kWarpSize - 1) warp_totals[Warp()] = inclusive;
      SyncBlock();
      uint32_t before = carry, total = 0;
      for (int w = 0; w < num_warps; ++w) {
        const uint32_t sum = warp_totals[w];
        if (w < Warp()) before += sum;
        total += sum;
      }
      if (i < n) put(i, before + inclusive - own);
      carry += total;
      SyncBlock();
    }
    return carry;
  }

  // Called by every block that contributes to one result, after its writes: true in exactly the
  // last of `expected` arrivals, which then sees all others' writes. Resets the counter for the
  // next use. Contains Sync.
  REPRISE_FN bool ArriveIsLast(uint32_t* counter, uint32_t expected) const {
    REPRISE_SHARED(uint32_t, last);
    FenceDevice();
    SyncBlock();  // and whoever arrived before has read `last`
    if (ThreadX() == 0) {
      last = REPRISE_DEVICE_NS::AtomicAdd(counter, 1u) == expected - 1 ? 1u : 0u;
      if (last != 0) *counter = 0;
    }
    SyncBlock();
    const bool result = last != 0;
    if (result) FenceDevice();
    return result;
  }

  // Integer atomics on memory that only this block touches, shared or global: sums and unions of
  // integers do not depend on the order. The 32-bit sum returns what was there before.
  REPRISE_FN uint32_t AtomicAdd(uint32_t* p, uint32_t v) const {
    return REPRISE_DEVICE_NS::AtomicAdd(p, v);
  }
  REPRISE_FN void AtomicAdd(uint64_t* p, uint64_t v) const { REPRISE_DEVICE_NS::AtomicAdd(p, v); }
  REPRISE_FN void AtomicOr(uint32_t* p, uint32_t v) const { REPRISE_DEVICE_NS::AtomicOr(p, v); }

  // 16 bytes of memory that the host writes, past every cache.
  REPRISE_FN Vec<uint32_t, 4> LoadFromHost(const void* p) const {
    return REPRISE_DEVICE_NS::LoadFromHost(p);
  }
  // Makes every earlier write of the block visible to the host, then stores. Contains Sync.
  REPRISE_FN void PublishToHost(uint64_t* word, uint64_t value) const {
    FenceSystem();
    SyncBlock();
    if (ThreadX() == 0) StoreToHost(word, value);
  }
  // Nanoseconds on the device's clock.
  REPRISE_FN uint64_t ClockNs() const { return REPRISE_DEVICE_NS::ClockNs(); }

 private:
  static constexpr int kMaxWarps = 1024 / kWarpSize;

  template <typename V, typename Op>
  REPRISE_FN V Reduce(V v, V identity, Op op) const {
    // Two in turn: when one is written again, all have passed the barrier of the other.
    REPRISE_SHARED_ARRAY(V, scratch, 2 * kMaxWarps);
    const int num_warps = BlockThreads() / kWarpSize;
    for (int d = kWarpSize / 2; d > 0; d >>= 1) v = op(v, FromLane(v, d));
    if (num_warps == 1) return v;
    scratch_ ^= kMaxWarps;
    if (Lane() == 0) scratch[scratch_ + Warp()] = v;
    SyncBlock();
    // Every group of kMaxWarps lanes reduces all of it.
    const int warp = Lane() % kMaxWarps;
    v = warp < num_warps ? scratch[scratch_ + warp] : identity;
    for (int d = kMaxWarps / 2; d > 0; d >>= 1) v = op(v, FromLane(v, d));
    return v;
  }
  REPRISE_FN static float FromLane(float v, int mask) { return ShuffleXor(v, mask); }
  REPRISE_FN static ValueIndex FromLane(const ValueIndex& v, int mask) {
    return {ShuffleXor(v.value, mask), ShuffleXor(v.index, mask)};
  }

  unsigned char* shared_;
  mutable int scratch_ = 0;  // of the last reduction
};

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
  int threads() const { return static_cast<int>(context_.block_threads); }

  template <typename T>
  T* Shared(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(context_.shared + offset_bytes);
  }

  void Sync() const {}

  template <typename F>
  void For(int n, F f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  template <int kSlots, typename F>
  void For(int n, F f) const {
    for (int i = 0; i < n; ++i) f(LocalIndex{i, i});
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
  template <int kSlots, typename F>
  float Sum(int n, F f) const {
    return Sum(n, [&](int i) { return f(LocalIndex{i, i}); });
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

#define REPRISE_BLOCK_KERNEL(name, threads, min_blocks, body, Args)       \
  void name(const runtime::HostBlockContext& context, const void* args) { \
    Block b(context);                                                     \
    body(b, *static_cast<const Args*>(args));                             \
  }

#endif

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_BLOCK_H_
