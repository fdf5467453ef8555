// SPDX-License-Identifier: Apache-2.0
// The two products of the host's native attention over one tile of KV tokens: scores = q K^T, in
// two forms, and sums += weights V. Part of host_native.cc, compiled once per instruction set.
//
// Blocking is over registers alone: how many rows, tokens or dimensions are computed together
// changes no order of summation, and so no bit.
#if defined(REPRISE_KERNELS_ATTENTION_HOST_NATIVE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_PRODUCTS_INL_H_
#undef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_PRODUCTS_INL_H_
#else
#define REPRISE_KERNELS_ATTENTION_HOST_NATIVE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/host_native_rows-inl.h"
#include "kernels/attention/host_native_softmax-inl.h"
#include "kernels/device/host/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

constexpr int kTile = kNativeKvTile;
static_assert(kTile % kLanes == 0);

// Sums held in registers by one block of a product, and rows of queries in a block of dots.
#if HWY_TARGET == HWY_AVX3
constexpr int kSums = 16;  // of 32 registers
constexpr int kDotRows = 4;
#else
constexpr int kSums = 8;  // of 16
constexpr int kDotRows = 2;
#endif
constexpr int kDotTokens = 4;

// ---- q K^T ----

#if HWY_TARGET != HWY_SCALAR
// The sum of a vector's four lanes of every 128 bits.
template <class DV>
HWY_INLINE void StoreSumOfBlocks(DV d, hn::Vec<DV> v, float* to) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<DV> dh;
    StoreSumOfBlocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)), to);
  } else {
    hn::StoreU(v, d, to);
  }
}
#endif

// [4 dots] of a row with 4 tokens, each a vector of partial sums.
HWY_INLINE void StoreDots(const V* sums, float* scores) {
#if HWY_TARGET == HWY_SCALAR
  for (int t = 0; t < kDotTokens; ++t) scores[t] = hn::GetLane(sums[t]);
#else
  const D d;
  const hn::RepartitionToWide<D> dw;
  // Pairs of lanes: [a0 + a2, b0 + b2, a1 + a3, b1 + b3] of every 128 bits.
  const V ab =
      hn::Add(hn::InterleaveLower(d, sums[0], sums[1]), hn::InterleaveUpper(d, sums[0], sums[1]));
  const V cd =
      hn::Add(hn::InterleaveLower(d, sums[2], sums[3]), hn::InterleaveUpper(d, sums[2], sums[3]));
  const auto wide_ab = hn::BitCast(dw, ab), wide_cd = hn::BitCast(dw, cd);
  const V abcd = hn::Add(hn::BitCast(d, hn::InterleaveLower(dw, wide_ab, wide_cd)),
                         hn::BitCast(d, hn::InterleaveUpper(dw, wide_ab, wide_cd)));
  StoreSumOfBlocks(d, abcd, scores);
#endif
}

template <int kPart, int kRows, typename T>
HWY_INLINE void AddDots(const float* q, ptrdiff_t row_floats, const T* const* k, int offset,
                        V (&sums)[kRows][kDotTokens]) {
  V keys[kDotTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kDotTokens; ++t) keys[t] = Elements<T>::template Load<kPart>(k[t] + offset);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const V query = hn::Load(D(), q + r * row_floats + kPart * kLanes);
#pragma GCC unroll 8
    for (int t = 0; t < kDotTokens; ++t) sums[r][t] = hn::MulAdd(query, keys[t], sums[r][t]);
  }
}

// scores[r, t] = q[r] . k[t]. q: rows in scratch memory; where steps overlap, the elements of the
// last one that the one before it had are zero.
template <int kRows, typename T>
HWY_NOINLINE void DotBlock(const Steps<T>& steps, const float* q, const T* const* k,
                           float* scores) {
  V sums[kRows][kDotTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kDotTokens; ++t) sums[r][t] = hn::Zero(D());
  }
  const ptrdiff_t row_floats = steps.RowFloats();
  for (int s = 0; s < steps.count; ++s) {
    const int offset = steps.Offset(s);
    AddDots<0>(q, row_floats, k, offset, sums);
    if constexpr (Elements<T>::kParts == 2) AddDots<1>(q, row_floats, k, offset, sums);
    q += Steps<T>::kStep;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) StoreDots(sums[r], scores + r * kTile);
}

// Scores of `rows` rows with the tokens [begin, end) of a tile, and with others up to multiples of
// kDotTokens. v: asked for meanwhile.
template <typename T>
HWY_INLINE void Dots(const Steps<T>& steps, const float* q, int rows, const T* const* k,
                     const T* const* v, int begin, int end, float* scores) {
  const ptrdiff_t row_floats = steps.RowFloats();
  for (int t = begin / kDotTokens * kDotTokens; t < end; t += kDotTokens) {
    for (int i = t; i < t + kDotTokens; ++i) PrefetchRow(steps, v[i]);
    int r = 0;
    for (; r + kDotRows <= rows; r += kDotRows)
      DotBlock<kDotRows>(steps, q + r * row_floats, k + t, scores + r * kTile + t);
    for (; r + 2 <= rows; r += 2)
      DotBlock<2>(steps, q + r * row_floats, k + t, scores + r * kTile + t);
    if (r < rows) DotBlock<1>(steps, q + r * row_floats, k + t, scores + r * kTile + t);
  }
}

// ---- weights V ----

// sums[r] = sums[r] * rescale[r] + the sum over tokens t in [begin, end) of weights[r, t] * v[t],
// for kSteps steps from `step` on. ahead: rows to ask for meanwhile; nullptr: none.
template <int kRows, int kSteps, typename T>
HWY_NOINLINE void AddValuesBlock(const Steps<T>& steps, int step, const T* const* v, int begin,
                                 int end, const float* weights, const RowState* rows, float* sums,
                                 const T* const* ahead) {
  constexpr int kParts = Elements<T>::kParts;
  const D d;
  const ptrdiff_t row_floats = steps.RowFloats();
  sums += step * Steps<T>::kStep;
  int offset[kSteps];
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) offset[s] = steps.Offset(step + s);
  V acc[kRows][kSteps * kParts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const V rescale = hn::Set(d, rows[r].rescale);
#pragma GCC unroll 8
    for (int c = 0; c < kSteps * kParts; ++c)
      acc[r][c] = hn::Mul(hn::Load(d, sums + r * row_floats + c * kLanes), rescale);
  }
  for (int t = begin; t < end; ++t) {
    if (ahead != nullptr) PrefetchRow(steps, ahead[t]);
    const T* const value = v[t];
    V values[kSteps * kParts];
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; ++s) {
      values[s * kParts] = Elements<T>::template Load<0>(value + offset[s]);
      if constexpr (kParts == 2)
        values[s * kParts + 1] = Elements<T>::template Load<1>(value + offset[s]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, weights[r * kTile + t]);
#pragma GCC unroll 8
      for (int c = 0; c < kSteps * kParts; ++c)
        acc[r][c] = hn::MulAdd(weight, values[c], acc[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kSteps * kParts; ++c)
      hn::Store(acc[r][c], d, sums + r * row_floats + c * kLanes);
  }
}

// The same for all steps.
template <int kRows, typename T>
HWY_INLINE void AddValuesRows(const Steps<T>& steps, const T* const* v, int begin, int end,
                              const float* weights, const RowState* rows, float* sums,
                              const T* const* ahead) {
  constexpr int kVectors = kSums / kRows < 8 ? kSums / kRows : 8;
  constexpr int kSteps = kVectors / Elements<T>::kParts > 1 ? kVectors / Elements<T>::kParts : 1;
  int s = 0;
  for (; s + kSteps <= steps.count; s += kSteps, ahead = nullptr)
    AddValuesBlock<kRows, kSteps>(steps, s, v, begin, end, weights, rows, sums, ahead);
  for (; s < steps.count; ++s, ahead = nullptr)
    AddValuesBlock<kRows, 1>(steps, s, v, begin, end, weights, rows, sums, ahead);
}

// Of kRows rows, each over the tokens that it sees: none other, as a weight of zero does not undo a
// NaN. Rescales once.
template <int kRows, typename T>
HWY_INLINE void AddValuesSeen(const Steps<T>& steps, const T* const* v, const float* weights,
                              RowState* rows, float* sums, const T* const* ahead) {
  int begin = 0, end = kTile;  // what all of them see
  for (int r = 0; r < kRows; ++r) {
    begin = std::max(begin, rows[r].begin);
    end = std::min(end, rows[r].end);
  }
  const auto add_own = [&](int r, int from, int to) HWY_ATTR {
    if (from >= to) return;
    AddValuesRows<1>(steps, v, from, to, weights + r * kTile, rows + r,
                     sums + r * static_cast<ptrdiff_t>(steps.RowFloats()),
                     static_cast<const T* const*>(nullptr));
    rows[r].rescale = 1.0f;
  };
  if (begin >= end) {
    for (int r = 0; r < kRows; ++r) add_own(r, rows[r].begin, rows[r].end);
    return;
  }
  for (int r = 0; r < kRows; ++r) add_own(r, rows[r].begin, begin);
  AddValuesRows<kRows>(steps, v, begin, end, weights, rows, sums, ahead);
  for (int r = 0; r < kRows; ++r) {
    rows[r].rescale = 1.0f;
    add_own(r, end, rows[r].end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
