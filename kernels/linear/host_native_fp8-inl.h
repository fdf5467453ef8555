// SPDX-License-Identifier: Apache-2.0
// A tile of the host's native linear with weights of 8 bits: as host_native_tile-inl.h, behind
// which it is compiled, in a namespace that has Fp8Products<T>, too: LoadX and LoadW of kStep
// elements, and Add of their products to a vector of sums.
//
// An output's sums are those of a scale, and those of all: the first are walked in ascending K, and
// their products with the scale are added in that order.

// sums += the products of one step.
template <int kRows, int kFeatures, typename T>
HWY_INLINE void AddFp8Step(const T* const* x, const E4m3* const* w, ptrdiff_t k,
                           Sums<kRows, kFeatures>& sums) {
  using P = Fp8Products<T>;
  decltype(P::LoadW(w[0])) weights[kFeatures];
#pragma GCC unroll 8
  for (int f = 0; f < kFeatures; ++f) weights[f] = P::LoadW(w[f] + k);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto activation = P::LoadX(x[r] + k);
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) sums[r][f] = P::Add(activation, weights[f], sums[r][f]);
  }
}

// The same of n < kStep elements, from copies that zeros fill up.
template <int kRows, int kFeatures, typename T>
HWY_NOINLINE void AddFp8Tail(const T* const* x, const E4m3* const* w, ptrdiff_t k, int n,
                             Sums<kRows, kFeatures>& sums) {
  constexpr int kStep = Fp8Products<T>::kStep;
  T x_tail[kRows][kStep] = {};
  E4m3 w_tail[kFeatures][kStep] = {};
  const T* xs[kRows];
  const E4m3* ws[kFeatures];
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(x_tail[r], x[r] + k, static_cast<size_t>(n) * sizeof(T));
    xs[r] = x_tail[r];
  }
  for (int f = 0; f < kFeatures; ++f) {
    std::memcpy(w_tail[f], w[f] + k, static_cast<size_t>(n));
    ws[f] = w_tail[f];
  }
  AddFp8Step<kRows, kFeatures>(xs, ws, 0, sums);
}

// The same of elements [k, k + n), n <= kScaleInputs.
template <int kRows, int kFeatures, typename T>
HWY_INLINE void AddGroup(const T* const* x, const E4m3* const* w, ptrdiff_t k, int n,
                         Sums<kRows, kFeatures>& sums) {
  constexpr int kStep = Fp8Products<T>::kStep;
  int i = 0;
  for (; i + kStep <= n; i += kStep) AddFp8Step<kRows, kFeatures>(x, w, k + i, sums);
  if (i < n) AddFp8Tail<kRows, kFeatures>(x, w, k + i, n - i, sums);
}

// As ComputeBlock.
template <typename T, int kRows, int kFeatures>
HWY_NOINLINE void ComputeFp8Block(const LinearArgs& a, int64_t row, int64_t row_end, int feature,
                                  const uint32_t* x_rows, const WeightsAhead* ahead) {
  const int k = a.in_features;
  const int64_t groups = PackedLayout{a.out_features, k}.ScaleGroups();
  const T* x[kRows];
  const E4m3* w[kFeatures];
  const float* scales[kFeatures];
  for (int r = 0; r < kRows; ++r) {
    const int64_t own = std::min<int64_t>(row + r, row_end - 1);
    x[r] = static_cast<const T*>(a.x) + (x_rows == nullptr ? own : int64_t{x_rows[own]}) * k;
  }
  for (int f = 0; f < kFeatures; ++f) {
    const int64_t output = std::min(feature + f, a.out_features - 1);
    w[f] = static_cast<const E4m3*>(a.weight) + output * k;
    scales[f] = a.scales + output * groups;
  }
  Sums<kRows, kFeatures> all;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) all[r][f] = hn::Zero(D());
  }
  for (int64_t g = 0; g < groups; ++g) {
    Sums<kRows, kFeatures> sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int f = 0; f < kFeatures; ++f) sums[r][f] = hn::Zero(D());
    }
    const int first = static_cast<int>(g) * kScaleInputs;
    const int last = std::min(first + kScaleInputs, k);
    if (ahead != nullptr) {
      for (int byte = first; byte < last; byte += kLineBytes) Ask<kFeatures>(w, byte, *ahead);
    }
    AddGroup<kRows, kFeatures>(x, w, first, last - first, sums);
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) {
      const V scale = hn::Set(D(), scales[f][g]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) all[r][f] = hn::MulAdd(sums[r][f], scale, all[r][f]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) {
      if (row + r < row_end && feature + f < a.out_features)
        StoreOutput<T>(a, row + r, feature + f, hn::GetLane(hn::SumOfLanes(D(), all[r][f])));
    }
  }
}

// As ComputeTileOfRows.
template <typename T>
HWY_NOINLINE void ComputeFp8TileOfRows(const LinearArgs& a, int tile, int64_t num_rows,
                                       const uint32_t* x_rows) {
  const int begin = tile * kNativeTileFeatures;
  const int end = std::min(begin + kNativeTileFeatures, a.out_features);
  if (num_rows >= kWidenedFromRows)
    return ComputeWidenedTile<T, Fp8Products<T>>(a, begin, end, num_rows, x_rows);
  const int64_t row_bytes = a.in_features;
  if (num_rows == 1) {
    for (int f = begin; f < end; f += kOneRowFeatures) {
      const WeightsAhead ahead = AheadOf(f, kOneRowFeatures, end, row_bytes);
      ComputeFp8Block<T, 1, kOneRowFeatures>(a, 0, 1, f, x_rows, &ahead);
    }
    return;
  }
  for (int f = begin; f < end; f += kScaledBlockFeatures) {
    const WeightsAhead ahead = AheadOf(f, kScaledBlockFeatures, end, row_bytes);
    for (int64_t row = 0; row < num_rows; row += kScaledBlockRows)
      ComputeFp8Block<T, kScaledBlockRows, kScaledBlockFeatures>(a, row, num_rows, f, x_rows,
                                                                 row == 0 ? &ahead : nullptr);
  }
}

template <typename T>
HWY_NOINLINE void ComputeFp8Tile(const runtime::HostBlockContext& context, const void* args) {
  const LinearArgs& a = *static_cast<const LinearArgs*>(args);
  ComputeFp8TileOfRows<T>(a, static_cast<int>(context.block_x), *a.num_rows, nullptr);
}
