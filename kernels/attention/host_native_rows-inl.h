// SPDX-License-Identifier: Apache-2.0
// How rows of q, K, V and of the output lie in the memory of the host's native attention, and how
// they come and go. Part of host_native.cc, compiled once per instruction set.
#if defined(REPRISE_KERNELS_ATTENTION_HOST_NATIVE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_ROWS_INL_H_
#undef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_ROWS_INL_H_
#else
#define REPRISE_KERNELS_ATTENTION_HOST_NATIVE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/device/host/elements-inl.h"
#include "kernels/device/types.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

// How a row of head_dim elements is taken in steps of Elements<T>::kStep. The last step ends where
// the row does: it begins within the one before it where head_dim is no multiple.
template <typename T>
struct Steps {
  static constexpr int kStep = Elements<T>::kStep;
  int count, last;

  explicit Steps(int head_dim) : count((head_dim + kStep - 1) / kStep), last(head_dim - kStep) {}
  int Offset(int step) const { return std::min(step * kStep, last); }
  // Floats of a row in scratch memory: step after step, part after part.
  int RowFloats() const { return count * kStep; }
};

// Asks the caches for a row of K or V.
template <typename T>
HWY_INLINE void PrefetchRow(const Steps<T>& steps, const T* row) {
  const auto* const bytes = reinterpret_cast<const char*>(row);
  const int end = (steps.last + Steps<T>::kStep) * static_cast<int>(sizeof(T));
  for (int i = 0; i < end; i += 64) __builtin_prefetch(bytes + i);
}

// The first `count` elements of a row of T, times `factor`, in natural order.
template <typename T>
HWY_INLINE void LoadNatural(const T* from, int count, float factor, float* to) {
  constexpr int kStep = Elements<T>::kStep;
  const D d;
  const V by = hn::Set(d, factor);
  int i = 0;
  for (; i + kStep <= count; i += kStep) {
    const V even = hn::Mul(Elements<T>::template Load<0>(from + i), by);
    if constexpr (Elements<T>::kParts == 2) {
      const V odd = hn::Mul(Elements<T>::template Load<1>(from + i), by);
      hn::StoreInterleaved2(even, odd, d, to + i);
    } else {
      hn::StoreU(even, d, to + i);
    }
  }
  for (; i < count; ++i) to[i] = ToFloat(from[i]) * factor;
}

// A row of T, times `factor`, in steps and parts as dots with K take it: zero where the last step
// repeats elements of the one before it.
template <typename K, typename T>
HWY_INLINE void LoadStepped(const Steps<K>& steps, const T* from, int head_dim, float factor,
                            float* to) {
  constexpr int kStep = Elements<K>::kStep, kParts = Elements<K>::kParts;
  int s = 0;
  if constexpr (!std::is_same_v<K, T>) {
    static_assert(kParts == 1);
    s = head_dim / kStep;
    LoadNatural(from, s * kStep, factor, to);
  } else {
    const D d;
    const V by = hn::Set(d, factor);
    for (; (s + 1) * kStep <= head_dim; ++s) {
      hn::Store(hn::Mul(Elements<T>::template Load<0>(from + s * kStep), by), d, to + s * kStep);
      if constexpr (kParts == 2)
        hn::Store(hn::Mul(Elements<T>::template Load<1>(from + s * kStep), by), d,
                  to + s * kStep + kLanes);
    }
  }
  if (s == steps.count) return;
  float* const last = to + s * kStep;
  std::fill(last, last + kStep, 0.0f);
  for (int dim = s * kStep; dim < head_dim; ++dim) {
    const int e = dim - steps.Offset(s);
    last[e % kParts * kLanes + e / kParts] = ToFloat(from[dim]) * factor;
  }
}

// A row in steps and parts, divided by `divisor`, in natural order. to: of RowFloats.
template <typename T>
HWY_INLINE void UnstepRow(const Steps<T>& steps, const float* from, float divisor, float* to) {
  const D d;
  const V by = hn::Set(d, divisor);
  for (int s = 0; s < steps.count; ++s, from += Steps<T>::kStep) {
    const V even = hn::Div(hn::Load(d, from), by);
    if constexpr (Elements<T>::kParts == 2) {
      const V odd = hn::Div(hn::Load(d, from + kLanes), by);
      hn::StoreInterleaved2(even, odd, d, to + steps.Offset(s));
    } else {
      hn::StoreU(even, d, to + steps.Offset(s));
    }
  }
}

template <typename T>
HWY_INLINE void RoundRow(const float* from, int head_dim, T* to) {
  int i = 0;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(T) == 2 && Elements<T>::kParts == 1) {  // F16; in other sets by hand
    const hn::Rebind<hwy::float16_t, D> half;
    for (; i + kLanes <= head_dim; i += kLanes)
      hn::StoreU(hn::DemoteTo(half, hn::LoadU(D(), from + i)), half,
                 reinterpret_cast<hwy::float16_t*>(to + i));
  }
#endif
  for (; i < head_dim; ++i) to[i] = FromFloat<T>(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
