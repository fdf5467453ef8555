// SPDX-License-Identifier: Apache-2.0
// What native kernels of the host (style Host) share about the CPU's vector units: how Highway is
// set up, the instruction sets that a source compiles itself for, and which of them run here. A
// source includes this ahead of hwy/foreach_target.h, names itself in HWY_TARGET_INCLUDE, and in
// its HWY_ONCE part lists its entry points, best first:
//
//   #define ENTRY(name, ns) Target{name, &ns::Kernel<float>},
//   constexpr Target kTargets[] = {REPRISE_FOR_EACH_INSTRUCTION_SET(ENTRY)};
//   static const std::span<const Target> targets = RunnableHere<Target>(kTargets);
#ifndef REPRISE_KERNELS_DEVICE_HOST_INSTRUCTION_SETS_H_
#define REPRISE_KERNELS_DEVICE_HOST_INSTRUCTION_SETS_H_

#include <cstddef>
#include <span>
#include <string_view>

// Highway's headers alone are used. Its own run-time choice needs its shared library, and our
// programs link none beyond libc and libm.
#define HWY_IS_DEBUG_BUILD 0
#if !defined(__x86_64__)
#define HWY_COMPILE_ONLY_STATIC
#elif defined(__SANITIZE_THREAD__)
// How threads share work is the same in all of them, and each takes long to compile there.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#elif defined(__SANITIZE_ADDRESS__)
// SSE4's vectors are as long as the baseline's.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
#include "hwy/detect_targets.h"

#if HWY_TARGETS & HWY_AVX3 & ~HWY_STATIC_TARGET
#define REPRISE_IF_AVX3(X) X("avx512", N_AVX3)
#else
#define REPRISE_IF_AVX3(X)
#endif
#if HWY_TARGETS & HWY_AVX2 & ~HWY_STATIC_TARGET
#define REPRISE_IF_AVX2(X) X("avx2", N_AVX2)
#else
#define REPRISE_IF_AVX2(X)
#endif
#if HWY_TARGETS & HWY_SSE4 & ~HWY_STATIC_TARGET
#define REPRISE_IF_SSE4(X) X("sse4", N_SSE4)
#else
#define REPRISE_IF_SSE4(X)
#endif
// X(name, namespace of the code), best first; each runs wherever one before it does.
#define REPRISE_FOR_EACH_INSTRUCTION_SET(X) \
  REPRISE_IF_AVX3(X) REPRISE_IF_AVX2(X) REPRISE_IF_SSE4(X) X("baseline", HWY_NAMESPACE)

namespace reprise::kernels::on_host {

// Whether the CPU and the operating system run everything that Highway's target of this name lets
// the compiler use, and for "avx512_bf16" its products of bf16, too; true of "baseline".
bool RunsInstructionSet(std::string_view name);

// Those of `targets`, best first, from the first one on that runs here. The last one must.
template <typename Target>
std::span<const Target> RunnableHere(std::span<const Target> targets) {
  size_t first = 0;
  while (!RunsInstructionSet(targets[first].name)) ++first;
  return targets.subspan(first);
}

}  // namespace reprise::kernels::on_host

#endif  // REPRISE_KERNELS_DEVICE_HOST_INSTRUCTION_SETS_H_
