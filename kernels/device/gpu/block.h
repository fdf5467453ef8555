// SPDX-License-Identifier: Apache-2.0
// Block on a GPU: phases spread over the block's threads, written in thread style. Part of block.h,
// which has the contract and is what kernels include.
#ifndef REPRISE_KERNELS_DEVICE_GPU_BLOCK_H_
#define REPRISE_KERNELS_DEVICE_GPU_BLOCK_H_

#include "kernels/device/last_arriver.h"
#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

class Block {
 public:
  REPRISE_FN explicit Block(unsigned char* shared) : shared_(shared) {}

  REPRISE_FN int x() const { return BlockX(); }
  REPRISE_FN int y() const { return BlockY(); }
  REPRISE_FN int grid_x() const { return GridX(); }
  REPRISE_FN int grid_y() const { return GridY(); }
  REPRISE_FN int threads() const { return BlockThreads(); }

  template <typename T>
  REPRISE_FN T* Shared(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(shared_ + offset_bytes);
  }

  REPRISE_FN void Sync() const { SyncBlock(); }

  template <typename F>
  REPRISE_FN void For(int n, F f) const {
    for (int i = ThreadX(); i < n; i += BlockThreads()) f(i);
  }
  template <int kPerThread, typename F>
  REPRISE_FN void For(int n, F f) const {
    const int first = Warp() * kPerThread * kWarpSize + Lane();
    REPRISE_UNROLL
    for (int v = 0; v < kPerThread; ++v) {
      const int i = first + v * kWarpSize;
      if (i < n) f(LocalIndex{i, v});
    }
  }
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
  template <int kPerThread, typename F>
  REPRISE_FN float Sum(int n, F f) const {
    float v = 0.0f;
    For<kPerThread>(n, [&](LocalIndex at) { v += f(at); });
    return Reduce(v, 0.0f, [](float a, float b) { return a + b; });
  }
  template <typename F>
  REPRISE_FN float Max(int n, F f) const {
    float v = -Infinity();
    for (int i = ThreadX(); i < n; i += BlockThreads()) v = REPRISE_DEVICE_NS::Max(v, f(i));
    return Reduce(v, -Infinity(), [](float a, float b) { return REPRISE_DEVICE_NS::Max(a, b); });
  }
  template <int kPerThread, typename F>
  REPRISE_FN float Max(int n, F f) const {
    float v = -Infinity();
    For<kPerThread>(n, [&](LocalIndex at) { v = REPRISE_DEVICE_NS::Max(v, f(at)); });
    return Reduce(v, -Infinity(), [](float a, float b) { return REPRISE_DEVICE_NS::Max(a, b); });
  }
  template <typename F>
  REPRISE_FN ValueIndex ArgMax(int n, F f) const {
    ValueIndex v{-Infinity(), 0xffffffffu};
    for (int i = ThreadX(); i < n; i += BlockThreads())
      v = Better(v, ValueIndex{f(i), static_cast<uint32_t>(i)});
    return Reduce(v, ValueIndex{-Infinity(), 0xffffffffu},
                  [](ValueIndex a, ValueIndex b) { return Better(a, b); });
  }

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
  template <typename Get, typename Put>
  REPRISE_FN auto ScanTogether(int n, Get get, Put put) const {
    using Own = decltype(get(0));
    using Counts = decltype(Own::counts);
    constexpr int kCounts = sizeof(Counts::v) / sizeof(uint32_t);  // not of the padding behind
    REPRISE_SHARED_ARRAY(Counts, warp_totals, kMaxWarps);
    REPRISE_SHARED(Counts, total);
    Counts carry{};
    for (int base = 0; base < n; base += BlockThreads()) {
      const int i = base + ThreadX();
      const int warps = (n - base + kWarpSize - 1) / kWarpSize;  // that have any
      Own own{};
      if (i < n) own = get(i);
      Counts inclusive = own.counts;
      if (Warp() < warps) {
        ScanLanes(inclusive);
        if (Lane() == kWarpSize - 1) warp_totals[Warp()] = inclusive;
      }
      SyncBlock();
      if (Warp() < warps) {
        // A lane takes the total of a warp before.
        Counts before{};
        if (Lane() < Warp()) before = warp_totals[Lane()];
        for (int d = kWarpSize / 2; d > 0; d >>= 1) {
          REPRISE_UNROLL
          for (uint32_t& count : before.v) count += ShuffleXor(count, d);
        }
        REPRISE_UNROLL
        for (int k = 0; k < kCounts; ++k)
          before.v[k] += carry.v[k] + inclusive.v[k] - own.counts.v[k];
        if (i < n) put(i, own, before);
        if (i == n - 1 || (i < n && ThreadX() == BlockThreads() - 1)) {
          REPRISE_UNROLL
          for (int k = 0; k < kCounts; ++k) total.v[k] = before.v[k] + own.counts.v[k];
        }
      }
      SyncBlock();
      REPRISE_UNROLL
      for (int k = 0; k < kCounts; ++k) carry.v[k] = total.v[k];
    }
    return carry;
  }
  template <typename V, typename Get, typename Op>
  REPRISE_FN V Combine(int n, V none, Get get, Op op) const {
    V v = none;
    for (int i = ThreadX(); i < n; i += BlockThreads()) v = op(v, get(i));
    return Reduce(v, none, op);
  }

  REPRISE_FN bool ArriveIsLast(uint32_t* counter, uint32_t expected) const {
    return REPRISE_DEVICE_NS::ArriveIsLast(counter, 0, expected);
  }

  REPRISE_FN uint32_t AtomicAdd(uint32_t* p, uint32_t v) const {
    return REPRISE_DEVICE_NS::AtomicAdd(p, v);
  }
  REPRISE_FN void AtomicAdd(uint64_t* p, uint64_t v) const { REPRISE_DEVICE_NS::AtomicAdd(p, v); }
  REPRISE_FN void AtomicOr(uint32_t* p, uint32_t v) const { REPRISE_DEVICE_NS::AtomicOr(p, v); }

  REPRISE_FN Vec<uint32_t, 4> LoadFromHost(const void* p) const {
    return REPRISE_DEVICE_NS::LoadFromHost(p);
  }
  REPRISE_FN void PublishToHost(uint64_t* word, uint64_t value) const {
    FenceSystem();
    SyncBlock();
    if (ThreadX() == 0) StoreToHost(word, value);
  }
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
  // Of a number, or of a struct of 32-bit words.
  template <typename V>
  REPRISE_FN static V FromLane(const V& v, int mask) {
    uint32_t words[sizeof(V) / sizeof(uint32_t)];
    __builtin_memcpy(words, &v, sizeof(V));
    REPRISE_UNROLL
    for (uint32_t& word : words) word = ShuffleXor(word, mask);
    V theirs;
    __builtin_memcpy(&theirs, words, sizeof(V));
    return theirs;
  }
  // Sums over the lanes up to the own.
  template <typename Counts>
  REPRISE_FN static void ScanLanes(Counts& counts) {
    for (int d = 1; d < kWarpSize; d <<= 1) {
      REPRISE_UNROLL
      for (uint32_t& count : counts.v) {
        const uint32_t up = ShuffleUp(count, d);
        if (Lane() >= d) count += up;
      }
    }
  }

  unsigned char* shared_;
  mutable int scratch_ = 0;  // of the last reduction
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_GPU_BLOCK_H_
