// SPDX-License-Identifier: Apache-2.0
// Linear, native candidate of the host device: streams the weight once with the CPU's vector units.
// Not the reference, which is portable_body.h. Written over Highway; this file compiles itself once
// per instruction set (foreach_target.h) and picks at run time.
//
// Order of K: an output has one vector of partial sums, walked in ascending K, added up lane by
// lane at the end. Neither the number of rows nor the blocking enters, so a row's bits are the same
// alone and among others. The vector width does enter.
#include "kernels/linear/host_native.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernels/device/types.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"

// Highway's headers alone are used. Its own run-time choice needs its shared library, and our
// programs link none beyond libc and libm.
#define HWY_IS_DEBUG_BUILD 0
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS HWY_SSSE3
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/host_native.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// What one pass over K computes, in registers: rows x features sums, the features' weights, one
// vector of x. Any values give the same bits. One row takes 4 streams of weights everywhere: on a
// 2-core Zen 4 that reads at 85 % of the speed of reading alone, 2 at 78 %, 8 at 88 %; software
// prefetch changed nothing.
constexpr int kBlockRows = 4;
#if HWY_TARGET == HWY_AVX3
constexpr int kBlockFeatures = 4;  // of 32 registers
#else
constexpr int kBlockFeatures = 2;  // of 16
#endif
constexpr int kOneRowFeatures = 4;

// How elements of T become vectors of f32: a step takes kStep elements and yields kParts vectors.
template <typename T>
struct Elements;

template <>
struct Elements<float> {
  static constexpr int kParts = 1;
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const float* p) {
    return hn::LoadU(D(), p);
  }
};

template <>
struct Elements<F16> {
  static constexpr int kParts = 1;
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const F16* p) {
    const hn::Rebind<hwy::float16_t, D> d;
    return hn::PromoteTo(D(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};

template <>
struct Elements<Bf16> {
#if HWY_TARGET == HWY_SCALAR
  static constexpr int kParts = 1;
  static constexpr int kStep = 1;
  template <int kPart>
  static HWY_INLINE V Load(const Bf16* p) {
    return hn::Set(D(), ToFloat(*p));
  }
#else
  // Even elements, then odd ones: a 32-bit lane holds two, and either is a float after one
  // instruction. x and weight are taken apart alike, so products meet as they should.
  static constexpr int kParts = 2;
  static constexpr int kStep = 2 * static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const Bf16* p) {
    const hn::RepartitionToNarrow<hn::RebindToUnsigned<D> > du16;
    const hn::RebindToUnsigned<D> du32;
    const auto pairs = hn::BitCast(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
    if constexpr (kPart == 0) {
      return hn::BitCast(D(), hn::ShiftLeft<16>(pairs));
    } else {
      return hn::BitCast(D(), hn::And(pairs, hn::Set(du32, 0xffff0000u)));
    }
  }
#endif
};

template <int kRows, int kFeatures>
using Sums = V[kRows][kFeatures];

// sums += products of the elements at x[r] + k and w[f] + k, one part of a step.
template <int kPart, int kRows, int kFeatures, typename T>
HWY_INLINE void AddPart(const T* const* x, const T* const* w, ptrdiff_t k,
                        Sums<kRows, kFeatures>& sums) {
  V weights[kFeatures];
#pragma GCC unroll 8
  for (int f = 0; f < kFeatures; ++f) weights[f] = Elements<T>::template Load<kPart>(w[f] + k);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const V activation = Elements<T>::template Load<kPart>(x[r] + k);
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) sums[r][f] = hn::MulAdd(activation, weights[f], sums[r][f]);
  }
}

template <int kRows, int kFeatures, typename T>
HWY_INLINE void AddStep(const T* const* x, const T* const* w, ptrdiff_t k,
                        Sums<kRows, kFeatures>& sums) {
  AddPart<0, kRows, kFeatures>(x, w, k, sums);
  if constexpr (Elements<T>::kParts == 2) AddPart<1, kRows, kFeatures>(x, w, k, sums);
}

// The last n < kStep elements, from copies that zeros fill up.
template <int kRows, int kFeatures, typename T>
HWY_INLINE void AddTail(const T* const* x, const T* const* w, ptrdiff_t k, int n,
                        Sums<kRows, kFeatures>& sums) {
  constexpr int kStep = Elements<T>::kStep;
  T x_tail[kRows][kStep] = {};
  T w_tail[kFeatures][kStep] = {};
  const T* xs[kRows];
  const T* ws[kFeatures];
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(x_tail[r], x[r] + k, static_cast<size_t>(n) * sizeof(T));
    xs[r] = x_tail[r];
  }
  for (int f = 0; f < kFeatures; ++f) {
    std::memcpy(w_tail[f], w[f] + k, static_cast<size_t>(n) * sizeof(T));
    ws[f] = w_tail[f];
  }
  AddStep<kRows, kFeatures>(xs, ws, 0, sums);
}

// One bias and one rounding per output; the only place that computes them, so that no blocking can
// round another way.
template <typename T>
HWY_NOINLINE void StoreOutput(const LinearArgs& a, int64_t row, int feature, float dot) {
  float y = dot * a.scale;
  if (a.bias != nullptr) y += ToFloat(static_cast<const T*>(a.bias)[feature]);
  const int64_t at = row * a.out_features + feature;
  if (a.out_is_f32 != 0) {
    static_cast<float*>(a.out)[at] = y;
  } else {
    static_cast<T*>(a.out)[at] = FromFloat<T>(y);
  }
}

// Rows [row, row + kRows) x features [feature, feature + kFeatures). Those at or beyond num_rows or
// out_features repeat the last one and are not stored.
template <typename T, int kRows, int kFeatures>
HWY_NOINLINE void ComputeBlock(const LinearArgs& a, int64_t row, int64_t num_rows, int feature) {
  const int k = a.in_features;
  const T* x[kRows];
  const T* w[kFeatures];
  for (int r = 0; r < kRows; ++r)
    x[r] = static_cast<const T*>(a.x) + std::min<int64_t>(row + r, num_rows - 1) * k;
  for (int f = 0; f < kFeatures; ++f)
    w[f] = static_cast<const T*>(a.weight) +
           static_cast<int64_t>(std::min(feature + f, a.out_features - 1)) * k;

  Sums<kRows, kFeatures> sums;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) sums[r][f] = hn::Zero(D());
  }
  constexpr int kStep = Elements<T>::kStep;
  ptrdiff_t i = 0;
  for (; i + kStep <= k; i += kStep) AddStep<kRows, kFeatures>(x, w, i, sums);
  if (i < k) AddTail<kRows, kFeatures>(x, w, i, k - static_cast<int>(i), sums);

#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) {
      if (row + r < num_rows && feature + f < a.out_features)
        StoreOutput<T>(a, row + r, feature + f, hn::GetLane(hn::SumOfLanes(D(), sums[r][f])));
    }
  }
}

// kFeatures features, all rows: the weights come from memory for the first rows and from the cache
// for the others.
template <typename T, int kFeatures>
HWY_INLINE void ComputeRows(const LinearArgs& a, int64_t num_rows, int feature) {
  int64_t row = 0;
  for (; num_rows - row > 2; row += kBlockRows)
    ComputeBlock<T, kBlockRows, kFeatures>(a, row, num_rows, feature);
  if (num_rows - row == 2) {
    ComputeBlock<T, 2, kFeatures>(a, row, num_rows, feature);
  } else if (num_rows - row == 1) {
    ComputeBlock<T, 1, kFeatures>(a, row, num_rows, feature);
  }
}

template <typename T>
HWY_NOINLINE void ComputeTile(const runtime::HostBlockContext& context, const void* args) {
  const LinearArgs& a = *static_cast<const LinearArgs*>(args);
  const int64_t num_rows = *a.num_rows;
  const int begin = static_cast<int>(context.block_x) * kNativeTileFeatures;
  const int end = std::min(begin + kNativeTileFeatures, a.out_features);
  if (num_rows == 1) {
    for (int f = begin; f < end; f += kOneRowFeatures)
      ComputeBlock<T, 1, kOneRowFeatures>(a, 0, 1, f);
  } else {
    for (int f = begin; f < end; f += kBlockFeatures)
      ComputeRows<T, kBlockFeatures>(a, num_rows, f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::on_host {
namespace {

// Whether the CPU and the operating system run everything that Highway's target of this name lets
// the compiler use.
bool RunsHere([[maybe_unused]] std::string_view name) {
#if defined(__x86_64__)
  const bool sse4 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  if (name == "sse4") return sse4;
  // Not every compiler's builtin knows F16C. It uses AVX's registers: AVX2's check covers the
  // operating system.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool avx2 = sse4 && f16c && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (name == "avx2") return avx2;
  if (name == "avx512")
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#endif
  return true;  // what the compiler takes for granted everywhere
}

#define REPRISE_NATIVE_TARGET(name, ns)                                          \
  NativeLinearTarget {                                                           \
    name, &ns::ComputeTile<float>, &ns::ComputeTile<Bf16>, &ns::ComputeTile<F16> \
  }

// Best first; each runs wherever one before it does.
constexpr NativeLinearTarget kTargets[] = {
#if HWY_TARGETS & HWY_AVX3 & ~HWY_STATIC_TARGET
    REPRISE_NATIVE_TARGET("avx512", N_AVX3),
#endif
#if HWY_TARGETS & HWY_AVX2 & ~HWY_STATIC_TARGET
    REPRISE_NATIVE_TARGET("avx2", N_AVX2),
#endif
#if HWY_TARGETS & HWY_SSE4 & ~HWY_STATIC_TARGET
    REPRISE_NATIVE_TARGET("sse4", N_SSE4),
#endif
    REPRISE_NATIVE_TARGET("baseline", HWY_NAMESPACE),
};

}  // namespace

std::span<const NativeLinearTarget> NativeLinearTargets() {
  static const std::span<const NativeLinearTarget> targets = [] {
    size_t first = 0;
    while (!RunsHere(kTargets[first].name)) ++first;
    return std::span<const NativeLinearTarget>(kTargets).subspan(first);
  }();
  return targets;
}

void reprise_linear_native_f32(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f32(context, args);
}
void reprise_linear_native_bf16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().bf16(context, args);
}
void reprise_linear_native_f16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f16(context, args);
}

}  // namespace reprise::kernels::on_host
#endif  // HWY_ONCE
