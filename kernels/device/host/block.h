// SPDX-License-Identifier: Apache-2.0
// Block on the host: one worker runs the whole block, and a phase is a loop. Part of block.h, which
// has the contract and is what kernels include.
#ifndef REPRISE_KERNELS_DEVICE_HOST_BLOCK_H_
#define REPRISE_KERNELS_DEVICE_HOST_BLOCK_H_

#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>

#include "kernels/device/host/math.h"
#include "runtime/device.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

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
  template <int kPerThread, typename F>
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
  template <int kPerThread, typename F>
  float Sum(int n, F f) const {
    return Sum(n, [&](int i) { return f(LocalIndex{i, i}); });
  }
  template <typename F>
  float Max(int n, F f) const {
    float v = -Infinity();
    for (int i = 0; i < n; ++i) v = std::fmax(v, f(i));
    return v;
  }
  template <int kPerThread, typename F>
  float Max(int n, F f) const {
    return Max(n, [&](int i) { return f(LocalIndex{i, i}); });
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
  template <typename Get, typename Put>
  auto ScanTogether(int n, Get get, Put put) const {
    using Counts = decltype(get(0).counts);
    Counts sums{};
    for (int i = 0; i < n; ++i) {
      const auto own = get(i);
      put(i, own, sums);
      for (size_t k = 0; k < std::size(sums.v); ++k) sums.v[k] += own.counts.v[k];
    }
    return sums;
  }
  template <typename V, typename Get, typename Op>
  V Combine(int n, V none, Get get, Op op) const {
    V v = none;
    for (int i = 0; i < n; ++i) v = op(v, get(i));
    return v;
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

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_HOST_BLOCK_H_
