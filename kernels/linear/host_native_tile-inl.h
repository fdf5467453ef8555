// SPDX-License-Identifier: Apache-2.0
// A tile of the host's native linear: the part of host_native.cc that is compiled for each way to
// multiply, in a namespace that has Products<T> and what this page uses of Highway. So it has no
// guard, and includes nothing.
//
// Products<T> takes kStep elements of K at a time, in kParts parts: Load<part>(p) reads a part, and
// Add(x, w, sum) adds the products of two to a vector of sums.

template <int kRows, int kFeatures>
using Sums = V[kRows][kFeatures];

// Which weights a pass over some features asks for while it reads those at a byte of their rows:
// `distance` bytes further on, and behind a row's end in the next features. A CPU by itself
// foresees reads up to the end of a page, and a row may be no longer than one.
struct WeightsAhead {
  int64_t row_bytes = 0;
  int64_t distance = 0;
  int64_t wrap = 0;  // bytes from a row to that of the next features, less row_bytes
};

// Of features [feature, feature + num_features) of a tile that ends before tile_end. Where not all
// of the next ones are in the tile, the row's own beginning stands for them, which is cached.
HWY_INLINE WeightsAhead AheadOf(int feature, int num_features, int tile_end, int64_t row_bytes) {
  const bool has_next = feature + 2 * num_features <= tile_end;
  return {row_bytes, std::min(kAheadBytes, row_bytes),
          has_next ? (num_features - 1) * row_bytes : -row_bytes};
}

template <int kFeatures, typename W>
HWY_INLINE void Ask(const W* const* w, int64_t byte, const WeightsAhead& ahead) {
  int64_t at = byte + ahead.distance;
  if (at >= ahead.row_bytes) at += ahead.wrap;
#pragma GCC unroll 8
  for (int f = 0; f < kFeatures; ++f) hwy::Prefetch(reinterpret_cast<const std::byte*>(w[f]) + at);
}

// sums += products of the elements at x[r] + k and w[f] + k, one part of a step.
template <int kPart, int kRows, int kFeatures, typename T>
HWY_INLINE void AddPart(const T* const* x, const T* const* w, ptrdiff_t k,
                        Sums<kRows, kFeatures>& sums) {
  using P = Products<T>;
  decltype(P::template Load<kPart>(w[0])) weights[kFeatures];
#pragma GCC unroll 8
  for (int f = 0; f < kFeatures; ++f) weights[f] = P::template Load<kPart>(w[f] + k);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto activation = P::template Load<kPart>(x[r] + k);
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) sums[r][f] = P::Add(activation, weights[f], sums[r][f]);
  }
}

template <int kRows, int kFeatures, typename T>
HWY_INLINE void AddStep(const T* const* x, const T* const* w, ptrdiff_t k,
                        Sums<kRows, kFeatures>& sums) {
  AddPart<0, kRows, kFeatures>(x, w, k, sums);
  if constexpr (Products<T>::kParts == 2) AddPart<1, kRows, kFeatures>(x, w, k, sums);
}

// The last n < kStep elements, from copies that zeros fill up.
template <int kRows, int kFeatures, typename T>
HWY_INLINE void AddTail(const T* const* x, const T* const* w, ptrdiff_t k, int n,
                        Sums<kRows, kFeatures>& sums) {
  constexpr int kStep = Products<T>::kStep;
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

// Rows [row, row + kRows) x features [feature, feature + kFeatures). Rows at or beyond row_end and
// features that there are not repeat the last one and are not stored. x_rows: which rows of x they
// are of; nullptr: the same. ahead: nullptr: the weights have been read before.
template <typename T, int kRows, int kFeatures>
HWY_NOINLINE void ComputeBlock(const LinearArgs& a, int64_t row, int64_t row_end, int feature,
                               const uint32_t* x_rows, const WeightsAhead* ahead) {
  const int k = a.in_features;
  const T* x[kRows];
  const T* w[kFeatures];
  for (int r = 0; r < kRows; ++r) {
    const int64_t own = std::min<int64_t>(row + r, row_end - 1);
    x[r] = static_cast<const T*>(a.x) + (x_rows == nullptr ? own : int64_t{x_rows[own]}) * k;
  }
  for (int f = 0; f < kFeatures; ++f)
    w[f] = static_cast<const T*>(a.weight) +
           static_cast<int64_t>(std::min(feature + f, a.out_features - 1)) * k;

  Sums<kRows, kFeatures> sums;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) sums[r][f] = hn::Zero(D());
  }
  constexpr int kStep = Products<T>::kStep;
  ptrdiff_t i = 0;
  for (; i + kStep <= k; i += kStep) {
    if constexpr (kRows == 1 || kBlocksAsk) {
      if (ahead != nullptr) Ask<kFeatures>(w, i * ptrdiff_t{sizeof(T)}, *ahead);
    }
    AddStep<kRows, kFeatures>(x, w, i, sums);
  }
  if (i < k) AddTail<kRows, kFeatures>(x, w, i, k - static_cast<int>(i), sums);

#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) {
      if (row + r < row_end && feature + f < a.out_features)
        StoreOutput<T>(a, row + r, feature + f, hn::GetLane(hn::SumOfLanes(D(), sums[r][f])));
    }
  }
}

// kFeatures features, rows [row, end). The first rows read the weights from memory.
template <typename T, int kFeatures>
HWY_INLINE void ComputeRows(const LinearArgs& a, int64_t row, int64_t end, int feature,
                            const uint32_t* x_rows, const WeightsAhead* ahead) {
  for (; end - row > 2; row += kBlockRows, ahead = nullptr)
    ComputeBlock<T, kBlockRows, kFeatures>(a, row, end, feature, x_rows, ahead);
  if (end - row == 2) {
    ComputeBlock<T, 2, kFeatures>(a, row, end, feature, x_rows, ahead);
  } else if (end - row == 1) {
    ComputeBlock<T, 1, kFeatures>(a, row, end, feature, x_rows, ahead);
  }
}

// Tile `tile` of kNativeTileFeatures features, all rows.
template <typename T>
HWY_NOINLINE void ComputeTileOfRows(const LinearArgs& a, int tile, int64_t num_rows,
                                    const uint32_t* x_rows) {
  const int begin = tile * kNativeTileFeatures;
  const int end = std::min(begin + kNativeTileFeatures, a.out_features);
  const int64_t row_bytes = int64_t{a.in_features} * int64_t{sizeof(T)};
  if (num_rows == 1) {
    for (int f = begin; f < end; f += kOneRowFeatures) {
      const WeightsAhead ahead = AheadOf(f, kOneRowFeatures, end, row_bytes);
      ComputeBlock<T, 1, kOneRowFeatures>(a, 0, 1, f, x_rows, &ahead);
    }
    return;
  }
  // So many rows at a time that the second cache can hold them while the tile's features pass by.
  const int64_t fit = kRowBytesAtOnce / row_bytes;
  const int64_t step = std::max<int64_t>(fit / kBlockRows, 1) * kBlockRows;
  for (int64_t row = 0; row < num_rows; row += step) {
    for (int f = begin; f < end; f += kBlockFeatures) {
      const WeightsAhead ahead = AheadOf(f, kBlockFeatures, end, row_bytes);
      ComputeRows<T, kBlockFeatures>(a, row, std::min(row + step, num_rows), f, x_rows, &ahead);
    }
  }
}

template <typename T>
HWY_NOINLINE void ComputeTile(const runtime::HostBlockContext& context, const void* args) {
  const LinearArgs& a = *static_cast<const LinearArgs*>(args);
  ComputeTileOfRows<T>(a, static_cast<int>(context.block_x), *a.num_rows, nullptr);
}
