// SPDX-License-Identifier: Apache-2.0
// Thread style under the emulator of the tests; the contract is in kernels/device/thread.h, the
// executor behind kernel_interface.h. Shared memory is plain memory here, so that sanitizers and
// the race detector see every access of a body.
#ifndef REPRISE_TESTS_EMULATOR_DEVICE_THREAD_H_
#define REPRISE_TESTS_EMULATOR_DEVICE_THREAD_H_

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/device/traits.h"
#include "kernels/device/types.h"
#include "tests/emulator/kernel_interface.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// ---- indices ----

inline int ThreadX() { return static_cast<int>(emulator::Self().thread); }
inline int BlockThreads() { return static_cast<int>(emulator::Self().block_threads); }
inline int BlockX() { return static_cast<int>(emulator::Self().block_x); }
inline int BlockY() { return static_cast<int>(emulator::Self().block_y); }
inline int GridX() { return static_cast<int>(emulator::Self().grid_x); }
inline int GridY() { return static_cast<int>(emulator::Self().grid_y); }
inline int Lane() { return ThreadX() % kWarpSize; }
inline int Warp() { return ThreadX() / kWarpSize; }

// ---- synchronisation ----

REPRISE_FN void SyncBlock() { emulator::SyncBlock(); }
REPRISE_FN void SyncWarp() { emulator::SyncWarp(); }
template <typename V>
REPRISE_FN V Shuffle(V x, int lane) {
  const std::byte* all = emulator::Exchange(&x, sizeof(V));
  V out;
  std::memcpy(&out, all + static_cast<size_t>(lane) * emulator::kExchangeBytes, sizeof(V));
  return out;
}
template <typename V>
REPRISE_FN V ShuffleXor(V x, int mask) {
  return Shuffle(x, Lane() ^ mask);
}
template <typename V>
REPRISE_FN V ShuffleUp(V x, int by) {
  return Shuffle(x, Lane() < by ? Lane() : Lane() - by);
}

inline bool AnyLane(bool x) {
  const auto mine = static_cast<uint32_t>(x);
  const std::byte* all = emulator::Exchange(&mine, sizeof(mine));
  bool any = false;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    uint32_t theirs;
    std::memcpy(&theirs, all + static_cast<size_t>(lane) * emulator::kExchangeBytes,
                sizeof(theirs));
    any = any || theirs != 0;
  }
  return any;
}

// ---- kernels of a stream ----

REPRISE_FN void WaitForPrevious() { emulator::WaitForPrevious(); }
REPRISE_FN void LetNextBegin() { emulator::LetNextBegin(); }
REPRISE_FN void LetNextBeginFirst() { emulator::LetNextBeginFirst(); }

// ---- shared memory ----

#define REPRISE_SHARED(type, name)      \
  static constexpr char name##_key = 0; \
  type& name = *static_cast<type*>(emulator::StaticShared(&name##_key, sizeof(type), alignof(type)))
#define REPRISE_SHARED_ARRAY(type, name, count) \
  static constexpr char name##_key = 0;         \
  type* const name = static_cast<type*>(        \
      emulator::StaticShared(&name##_key, sizeof(type) * (count), alignof(type)))

inline uint32_t SharedAddress(const void* p) { return emulator::SharedAddress(p); }
template <typename V>
REPRISE_FN V LoadShared(uint32_t address) {
  return *reinterpret_cast<const V*>(emulator::SharedPointer(address));
}
template <typename V>
REPRISE_FN void StoreShared(uint32_t address, const V& x) {
  *reinterpret_cast<V*>(emulator::SharedPointer(address)) = x;
}

// ---- asynchronous copies ----

REPRISE_FN void CopyAsync16(uint32_t shared, const void* global) {
  emulator::CopyAsync(emulator::SharedPointer(shared), global, 16);
}
REPRISE_FN void CopyAsync16OrZero(uint32_t shared, const void* global, bool valid) {
  emulator::CopyAsync(emulator::SharedPointer(shared), valid ? global : nullptr, 16);
}
REPRISE_FN void CopyAsyncCommit() { emulator::CopyAsyncCommit(); }
template <int kPending>
REPRISE_FN void CopyAsyncWait() {
  emulator::CopyAsyncWait(kPending);
}

// ---- barriers in shared memory ----

inline constexpr bool kHasSharedBarriers = kTraits.matrix_unit == runtime::MatrixUnit::kMma;

REPRISE_FN void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  emulator::BarrierInit(barrier, arrivals);
}
REPRISE_FN void BarrierArrive(uint64_t* barrier) { emulator::BarrierArrive(barrier); }
REPRISE_FN void BarrierArriveTimes(uint64_t* barrier, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) emulator::BarrierArrive(barrier);
}
REPRISE_FN void BarrierArriveExpectBytes(uint64_t* barrier, uint32_t bytes) {
  emulator::BarrierArriveExpectBytes(barrier, bytes);
}
REPRISE_FN void BarrierArriveAfterCopies(uint64_t* barrier) {
  emulator::BarrierArriveAfterCopies(barrier);
}
REPRISE_FN void BarrierWait(uint64_t* barrier, uint32_t phase) {
  emulator::BarrierWait(barrier, phase);
}
REPRISE_FN void BarrierWaitForEither(uint64_t* a, uint64_t* b, uint32_t phase) {
  emulator::BarrierWaitForEither(a, b, phase);
}
REPRISE_FN void SyncThreads(int /*threads*/, uint64_t* barrier, uint32_t turn) {
  emulator::BarrierArrive(barrier);
  emulator::BarrierWait(barrier, turn);
}
REPRISE_FN void CopyBulk(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  emulator::CopyBulk(shared, global, bytes, barrier);
}
REPRISE_FN void CopyBulkOnce(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  emulator::CopyBulk(shared, global, bytes, barrier);
}
inline void FenceBulkCopies() {}
inline void FenceBulkReads() {}

// ---- between blocks ----

REPRISE_FN uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
  return emulator::AtomicAdd(address, value);
}
REPRISE_FN uint32_t AtomicAddAcquireRelease(uint32_t* address, uint32_t value) {
  return emulator::AtomicAddAcquireRelease(address, value);
}
REPRISE_FN void AtomicAddRelease(uint32_t* address, uint32_t value) {
  emulator::AtomicAddRelease(address, value);
}
REPRISE_FN uint32_t AtomicMaxRelease(uint32_t* address, uint32_t value) {
  return emulator::AtomicMaxRelease(address, value);
}
REPRISE_FN void WaitAtLeastInBlock(const uint32_t* address, uint32_t value) {
  emulator::WaitAtLeast(address, value);
}
REPRISE_FN void WaitAtLeast(const uint32_t* address, uint32_t value) {
  emulator::WaitAtLeast(address, value);
}
REPRISE_FN void AtomicAdd(uint64_t* address, uint64_t value) {
  emulator::AtomicAdd(address, value);
}
REPRISE_FN void AtomicOr(uint32_t* address, uint32_t value) { emulator::AtomicOr(address, value); }
REPRISE_FN void FenceDevice() { emulator::FenceDevice(); }
template <typename V>
REPRISE_FN V LoadFresh(const V* p) {
  return *p;
}

// ---- host memory ----

REPRISE_FN void FenceSystem() { emulator::FenceDevice(); }
inline Vec<uint32_t, 4> LoadFromHost(const void* p) {
  return *static_cast<const Vec<uint32_t, 4>*>(p);
}
inline void StoreToHost(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline uint64_t ClockNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// ---- arithmetic ----

inline float Infinity() { return __builtin_huge_valf(); }
inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float QuietNaN() { return __builtin_nanf(""); }
inline float Exp2(float x) { return std::exp2(x); }
inline float Exp(float x) { return std::exp(x); }
inline float Log(float x) { return std::log(x); }
inline float Rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float Reciprocal(float x) { return 1.0f / x; }
inline void SinCos(float x, float* s, float* c) {
  *s = std::sin(x);
  *c = std::cos(x);
}
inline float Max(float a, float b) { return std::fmax(a, b); }
inline float MultiplyAdd(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t MultiplyHigh(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}
template <typename T>
uint32_t Pack2(float low, float high) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  return static_cast<uint32_t>(FromFloat<T>(low).bits) |
         (static_cast<uint32_t>(FromFloat<T>(high).bits) << 16);
}

// ---- kernels ----

template <typename Args>
REPRISE_FN const Args& ReadAgain(const Args& args) {
  return args;
}

inline constexpr emulator::BlockLimits kBlockLimits = {
    .warp_size = static_cast<unsigned>(kTraits.warp_size),
    .shared_bytes = static_cast<size_t>(kTraits.shared_bytes),
    .waits_for_previous = true};

constexpr emulator::BlockLimits LimitsOfClusters() {
  emulator::BlockLimits limits = kBlockLimits;
  limits.cluster = kClusterBlocks;
  return limits;
}

#define REPRISE_THREAD_KERNEL(name, fits, threads, min_blocks, body, Args) \
  REPRISE_THREAD_KERNEL_WITHIN(kBlockLimits, name, fits, body, Args)
#define REPRISE_CLUSTER_KERNEL(name, fits, threads, min_blocks, body, Args) \
  REPRISE_THREAD_KERNEL_WITHIN(LimitsOfClusters(), name, fits, body, Args)
// The condition stands inside the lambda: g++ compiles a lambda's body also where it is discarded.
#define REPRISE_THREAD_KERNEL_WITHIN(limits, name, fits, body, Args)           \
  void name(const runtime::HostBlockContext& context, const void* args) {      \
    emulator::RunBlock(                                                        \
        context, limits,                                                       \
        []([[maybe_unused]] void* a) {                                         \
          if constexpr (fits)                                                  \
            body(*static_cast<const Args*>(a),                                 \
                 reinterpret_cast<unsigned char*>(emulator::DynamicShared())); \
        },                                                                     \
        const_cast<void*>(args), sizeof(Args));                                \
  }
#define REPRISE_BLOCK_KERNEL(name, threads, min_blocks, body, Args)             \
  void name(const runtime::HostBlockContext& context, const void* args) {       \
    emulator::RunBlock(                                                         \
        context, kBlockLimits,                                                  \
        [](void* a) {                                                           \
          BeginBlock<Args>();                                                   \
          Block b(reinterpret_cast<unsigned char*>(emulator::DynamicShared())); \
          body(b, *static_cast<const Args*>(a));                                \
        },                                                                      \
        const_cast<void*>(args), sizeof(Args));                                 \
  }

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_TESTS_EMULATOR_DEVICE_THREAD_H_
