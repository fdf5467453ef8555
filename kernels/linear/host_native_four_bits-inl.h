// SPDX-License-Identifier: Apache-2.0
// A tile of the host's native linear with weights of 4 bits: as host_native_fp8-inl.h, behind which
// it is compiled, in a namespace that has Int4Products<T> and Mxfp4Products<T>, too. Either, P, has
// a Zero of a zero point, LoadX and LoadW<i> of kStep elements, i steps into a run of kInt4Run, Add
// of their products to a vector of sums, and kWorth, what scales of such sums are multiplied by.
//
// Sums are as with weights of 8 bits. A run of weights is always whole.

// sums += the products of the run of weights at w[f] + k / 2.
template <typename P, int kStepOfRun, int kRows, int kFeatures, typename T, typename Zero>
HWY_INLINE void AddFourBitRun(const T* const* x, const uint8_t* const* w, const Zero* zero,
                              ptrdiff_t k, Sums<kRows, kFeatures>& sums) {
  if constexpr (kStepOfRun * P::kStep < kInt4Run) {
    decltype(P::template LoadW<kStepOfRun>(w[0], zero[0])) weights[kFeatures];
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f)
      weights[f] = P::template LoadW<kStepOfRun>(w[f] + k / 2, zero[f]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto activation = P::LoadX(x[r] + k + kStepOfRun * P::kStep);
#pragma GCC unroll 8
      for (int f = 0; f < kFeatures; ++f) sums[r][f] = P::Add(activation, weights[f], sums[r][f]);
    }
    AddFourBitRun<P, kStepOfRun + 1, kRows, kFeatures>(x, w, zero, k, sums);
  }
}

// The same with n < kInt4Run activations left, from copies that zeros fill up.
template <typename P, int kRows, int kFeatures, typename T, typename Zero>
HWY_NOINLINE void AddFourBitTail(const T* const* x, const uint8_t* const* w, const Zero* zero,
                                 ptrdiff_t k, int n, Sums<kRows, kFeatures>& sums) {
  T x_tail[kRows][kInt4Run] = {};
  const T* xs[kRows];
  const uint8_t* ws[kFeatures];
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(x_tail[r], x[r] + k, static_cast<size_t>(n) * sizeof(T));
    xs[r] = x_tail[r];
  }
  for (int f = 0; f < kFeatures; ++f) ws[f] = w[f] + k / 2;
  AddFourBitRun<P, 0, kRows, kFeatures>(xs, ws, zero, 0, sums);
}

// all += the products of inputs [k, end), which are of scale `group`. kWhole: they are whole runs.
template <typename P, bool kWhole, int kRows, int kFeatures, typename T>
HWY_INLINE void AddFourBitGroup(const T* const* x, const uint8_t* const* w,
                                const float* const* scales, int group, int k, int end,
                                Sums<kRows, kFeatures>& all) {
  Sums<kRows, kFeatures> sums;
  decltype(P::Zero(0)) zero[kFeatures];
#pragma GCC unroll 8
  for (int f = 0; f < kFeatures; ++f) {
    zero[f] = P::Zero(ZeroPointOfWord(std::bit_cast<uint32_t>(scales[f][group])));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][f] = hn::Zero(D());
  }
  for (; k + kInt4Run <= end; k += kInt4Run)
    AddFourBitRun<P, 0, kRows, kFeatures>(x, w, zero, k, sums);
  if constexpr (!kWhole) {
    if (k < end) AddFourBitTail<P, kRows, kFeatures>(x, w, zero, k, end - k, sums);
  }
#pragma GCC unroll 8
  for (int f = 0; f < kFeatures; ++f) {
    const V scale =
        hn::Set(D(), ScaleOfWord(std::bit_cast<uint32_t>(scales[f][group])) * P::kWorth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) all[r][f] = hn::MulAdd(sums[r][f], scale, all[r][f]);
  }
}

// As ComputeBlock.
template <typename T, typename P, int kRows, int kFeatures>
HWY_NOINLINE void ComputeFourBitBlock(const LinearArgs& a, int64_t row, int64_t row_end,
                                      int feature, const uint32_t* x_rows,
                                      const WeightsAhead* ahead) {
  const int k = a.in_features, scale_inputs = a.scale_inputs;
  const PackedLayout layout{a.out_features, k, scale_inputs};
  const T* x[kRows];
  const uint8_t* w[kFeatures];
  const float* scales[kFeatures];
  for (int r = 0; r < kRows; ++r) {
    const int64_t own = std::min<int64_t>(row + r, row_end - 1);
    x[r] = static_cast<const T*>(a.x) + (x_rows == nullptr ? own : int64_t{x_rows[own]}) * k;
  }
  for (int f = 0; f < kFeatures; ++f) {
    const int64_t output = std::min(feature + f, a.out_features - 1);
    w[f] = static_cast<const uint8_t*>(a.weight) + output * (layout.Int4RowElements() / 2);
    scales[f] = a.scales + output * layout.ScaleGroups();
  }
  Sums<kRows, kFeatures> all;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) all[r][f] = hn::Zero(D());
  }
  int i = 0, group = 0;
  for (; i + scale_inputs <= k; i += scale_inputs, ++group) {
    if (ahead != nullptr) {  // of the lines that begin in this group
      const int line = (i / 2 + kLineBytes - 1) / kLineBytes * kLineBytes;
      for (int byte = line; byte < (i + scale_inputs) / 2; byte += kLineBytes)
        Ask<kFeatures>(w, byte, *ahead);
    }
    AddFourBitGroup<P, true, kRows, kFeatures>(x, w, scales, group, i, i + scale_inputs, all);
  }
  if (i < k) AddFourBitGroup<P, false, kRows, kFeatures>(x, w, scales, group, i, k, all);
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
template <typename T, typename P>
HWY_NOINLINE void ComputeFourBitTileOfRows(const LinearArgs& a, int tile, int64_t num_rows,
                                           const uint32_t* x_rows) {
  const int begin = tile * kNativeTileFeatures;
  const int end = std::min(begin + kNativeTileFeatures, a.out_features);
  if (num_rows >= kWidenedFromRows)
    return ComputeWidenedTile<T, P>(a, begin, end, num_rows, x_rows);
  const int64_t row_bytes = PackedLayout{a.out_features, a.in_features}.Int4RowElements() / 2;
  if (num_rows == 1) {
    for (int f = begin; f < end; f += kOneRowFeatures) {
      const WeightsAhead ahead = AheadOf(f, kOneRowFeatures, end, row_bytes);
      ComputeFourBitBlock<T, P, 1, kOneRowFeatures>(a, 0, 1, f, x_rows, &ahead);
    }
    return;
  }
  for (int f = begin; f < end; f += kScaledBlockFeatures) {
    const WeightsAhead ahead = AheadOf(f, kScaledBlockFeatures, end, row_bytes);
    for (int64_t row = 0; row < num_rows; row += kScaledBlockRows)
      ComputeFourBitBlock<T, P, kScaledBlockRows, kScaledBlockFeatures>(
          a, row, num_rows, f, x_rows, row == 0 ? &ahead : nullptr);
  }
}

template <typename T>
HWY_NOINLINE void ComputeInt4TileOfRows(const LinearArgs& a, int tile, int64_t num_rows,
                                        const uint32_t* x_rows) {
  ComputeFourBitTileOfRows<T, Int4Products<T>>(a, tile, num_rows, x_rows);
}

template <typename T>
HWY_NOINLINE void ComputeMxfp4TileOfRows(const LinearArgs& a, int tile, int64_t num_rows,
                                         const uint32_t* x_rows) {
  ComputeFourBitTileOfRows<T, Mxfp4Products<T>>(a, tile, num_rows, x_rows);
}

template <typename T>
HWY_NOINLINE void ComputeInt4Tile(const runtime::HostBlockContext& context, const void* args) {
  const LinearArgs& a = *static_cast<const LinearArgs*>(args);
  ComputeInt4TileOfRows<T>(a, static_cast<int>(context.block_x), *a.num_rows, nullptr);
}
