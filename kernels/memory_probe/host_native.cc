// SPDX-License-Identifier: Apache-2.0
// Memory probes, native candidates of the host device: with the CPU's widest vectors. Written over
// Highway; this file compiles itself once per instruction set (foreach_target.h) and picks at run
// time.
#include "kernels/memory_probe/host_native.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/device/host/instruction_sets.h"
#include "kernels/memory_probe/host_native_targets.h"
#include "kernels/memory_probe/memory_probe_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/memory_probe/host_native.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kVectorBytes = 16;  // of a group, four of which lie a quarter of a piece apart

// Bytes of this block's piece.
inline int64_t PieceBytes(const runtime::HostBlockContext& context, int64_t bytes) {
  return std::min(bytes - int64_t{context.block_x} * kMemoryProbePiece, kMemoryProbePiece);
}

#if HWY_TARGET == HWY_SCALAR
// One word at a time, where vectors are one word long.
HWY_NOINLINE void Read(const runtime::HostBlockContext& context, const void* args) {
  const MemoryReadArgs& a = *static_cast<const MemoryReadArgs*>(args);
  const int64_t quarter = PieceBytes(context, a.bytes) / 4 / int64_t{sizeof(uint32_t)};
  const uint32_t* piece =
      static_cast<const uint32_t*>(a.data) + context.block_x * (kMemoryProbePiece / 4);
  uint32_t matches = 0;
  for (int64_t i = 0; i < quarter; i += 4) {
    uint32_t word = 0;
    for (int64_t k = 0; k < 4; ++k)
      for (int64_t j = 0; j < 4; ++j) word ^= piece[i + k * quarter + j];
    matches += word == a.pattern ? 1 : 0;
  }
  a.matches[context.block_x] = matches;
}
#else
// Matches among the groups whose vectors begin at p, p + quarter, ..., as many as fill a vector.
template <class D>
HWY_INLINE size_t CountMatches(D d, const uint32_t* p, int64_t quarter, hn::Vec<D> pattern) {
  const auto low = hn::Xor(hn::LoadU(d, p), hn::LoadU(d, p + quarter));
  const auto high = hn::Xor(hn::LoadU(d, p + 2 * quarter), hn::LoadU(d, p + 3 * quarter));
  const auto both = hn::Xor(low, high);
  // The four words of each 16 bytes, in all of them.
  const auto pairs = hn::Xor(both, hn::Shuffle1032(both));
  const auto word = hn::Xor(pairs, hn::Shuffle2301(pairs));
  return hn::CountTrue(d, hn::Eq(word, pattern)) / 4;
}

HWY_NOINLINE void Read(const runtime::HostBlockContext& context, const void* args) {
  const MemoryReadArgs& a = *static_cast<const MemoryReadArgs*>(args);
  const int64_t quarter = PieceBytes(context, a.bytes) / 4 / int64_t{sizeof(uint32_t)};
  const uint32_t* piece =
      static_cast<const uint32_t*>(a.data) + context.block_x * (kMemoryProbePiece / 4);
  const hn::ScalableTag<uint32_t> d;
  const hn::CappedTag<uint32_t, kVectorBytes / sizeof(uint32_t)> group;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  size_t matches = 0;
  int64_t i = 0;
  for (const auto pattern = hn::Set(d, a.pattern); i + lanes <= quarter; i += lanes)
    matches += CountMatches(d, piece + i, quarter, pattern);
  for (const auto pattern = hn::Set(group, a.pattern); i < quarter; i += 4)
    matches += CountMatches(group, piece + i, quarter, pattern);
  a.matches[context.block_x] = static_cast<uint32_t>(matches);
}
#endif

// Stores go past the caches where whole vectors can: memory then is not read before it is written.
HWY_NOINLINE void Copy(const runtime::HostBlockContext& context, const void* args) {
  const MemoryCopyArgs& a = *static_cast<const MemoryCopyArgs*>(args);
  const int64_t bytes = PieceBytes(context, a.bytes);
  const auto* from = static_cast<const uint8_t*>(a.from) + context.block_x * kMemoryProbePiece;
  auto* to = static_cast<uint8_t*>(a.to) + context.block_x * kMemoryProbePiece;
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(lanes) != 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t i = 0; i < bytes; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::on_host {
namespace {

#define REPRISE_MEMORY_PROBE_TARGET(name, ns) NativeMemoryProbeTarget{name, &ns::Read, &ns::Copy},
constexpr NativeMemoryProbeTarget kTargets[] = {
    REPRISE_FOR_EACH_INSTRUCTION_SET(REPRISE_MEMORY_PROBE_TARGET)};

}  // namespace

std::span<const NativeMemoryProbeTarget> NativeMemoryProbeTargets() {
  static const std::span<const NativeMemoryProbeTarget> targets =
      RunnableHere<NativeMemoryProbeTarget>(kTargets);
  return targets;
}

void reprise_memory_read_native(const runtime::HostBlockContext& context, const void* args) {
  NativeMemoryProbeTargets().front().read(context, args);
}
void reprise_memory_copy_native(const runtime::HostBlockContext& context, const void* args) {
  NativeMemoryProbeTargets().front().copy(context, args);
}

}  // namespace reprise::kernels::on_host
#endif  // HWY_ONCE
