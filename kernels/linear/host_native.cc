// SPDX-License-Identifier: Apache-2.0
// Linear, native candidate of the host device: streams the weight once with the CPU's vector units.
// Not the reference, which is portable_body.h. Written over Highway; this file compiles itself once
// per instruction set (foreach_target.h) and picks at run time.
//
// Order of K: an output has one vector of partial sums, walked in ascending K, added up lane by
// lane at the end. Neither the number of rows nor the blocking enters, so a row's bits are the same
// alone and among others. The vector width does enter.
#include "kernels/linear/host_native.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/device/host/instruction_sets.h"
#include "kernels/device/types.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/host_native.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/device/host/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

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

#define REPRISE_LINEAR_TARGET(name, ns) \
  NativeLinearTarget{name, &ns::ComputeTile<float>, &ns::ComputeTile<Bf16>, &ns::ComputeTile<F16>},
constexpr NativeLinearTarget kTargets[] = {
    REPRISE_FOR_EACH_INSTRUCTION_SET(REPRISE_LINEAR_TARGET)  //
};

}  // namespace

std::span<const NativeLinearTarget> NativeLinearTargets() {
  static const std::span<const NativeLinearTarget> targets =
      RunnableHere<NativeLinearTarget>(kTargets);
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
