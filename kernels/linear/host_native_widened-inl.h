// SPDX-License-Identifier: Apache-2.0
// A tile of the host's native linear with weights of 8 or 4 bits and many rows: compiled behind
// host_native_tile-inl.h, in a namespace that has Fp8Products<T> and those of 4 bits, too, P.
// Weights of a few features and some inputs are widened once, and multiplied with all rows. Sums
// are added up in the order of host_native_fp8-inl.h and host_native_four_bits-inl.h, and lie in
// memory from one piece of K to the next, so a row's bits are those of few rows.

// Inputs of a piece, whole groups of them, and rows that it is multiplied with: their weights and
// sums take 10 to 40 KiB, by vector and type, and the rows' inputs fit the second cache.
constexpr int kWidenedInputs = 1024;
constexpr int kWidenedRows = 96;
static_assert(kWidenedRows % kWidenedBlockRows == 0 && kWidenedInputs % kScaleInputs == 0);

// Of P, whether it is of weights of 4 bits; else it is Fp8Products.
template <typename P>
inline constexpr bool kIsFourBits = requires {
  P::kWorth;
};

template <typename T>
using Wide = typename Fp8Products<T>::Wide;

template <typename T>
struct WidenedPiece {
  alignas(64) Wide<T> weights[kWidenedFeatures][kWidenedInputs];
  float scales[kWidenedFeatures][kWidenedInputs / kInt4Run];
  int num_inputs = 0;
  int scale_inputs = 0;
};

// Of some rows and the features of a piece.
struct WidenedSums {
  static constexpr size_t kLanes = hn::MaxLanes(D());
  alignas(64) float lanes[kWidenedRows][kWidenedFeatures][kLanes];
};

// out[0, n) = the weights at w, and zeros up to a whole step.
template <typename T>
HWY_INLINE void WidenFp8(const E4m3* w, int n, Wide<T>* out) {
  using P = Fp8Products<T>;
  int i = 0;
  for (; i + P::kStep <= n; i += P::kStep) P::StoreWide(P::LoadW(w + i), out + i);
  if (i == n) return;
  E4m3 tail[P::kStep] = {};
  std::memcpy(tail, w + i, static_cast<size_t>(n - i));
  P::StoreWide(P::LoadW(tail), out + i);
}

template <typename P, int kStepOfRun, typename T, typename Zero>
HWY_INLINE void WidenFourBitRun(const uint8_t* run, Zero zero, Wide<T>* out) {
  if constexpr (kStepOfRun * P::kStep < kInt4Run) {
    Fp8Products<T>::StoreWide(P::template LoadW<kStepOfRun>(run, zero),
                              out + kStepOfRun * P::kStep);
    WidenFourBitRun<P, kStepOfRun + 1, T>(run, zero, out);
  }
}

// Whole runs, as they are stored.
template <typename T, typename P>
HWY_INLINE void WidenFourBits(const uint8_t* w, int n, uint32_t zero_point, Wide<T>* out) {
  const auto zero = P::Zero(zero_point);
  for (int i = 0; i < n; i += kInt4Run) WidenFourBitRun<P, 0, T>(w + i / 2, zero, out + i);
}

// Inputs [first, first + piece->num_inputs) of features [feature, feature + kWidenedFeatures);
// where there are fewer, the last one again.
template <typename T, typename P>
HWY_NOINLINE void Widen(const LinearArgs& a, int feature, int first, WidenedPiece<T>* piece) {
  const PackedLayout layout{a.out_features, a.in_features, piece->scale_inputs};
  const auto* weights = static_cast<const uint8_t*>(a.weight);
  for (int f = 0; f < kWidenedFeatures; ++f) {
    const int64_t output = std::min(feature + f, a.out_features - 1);
    const float* scales = a.scales + output * layout.ScaleGroups() + first / piece->scale_inputs;
    int group = 0;
    for (int i = 0; i < piece->num_inputs; i += piece->scale_inputs, ++group) {
      const int n = std::min(piece->scale_inputs, piece->num_inputs - i);
      Wide<T>* out = piece->weights[f] + i;
      if constexpr (kIsFourBits<P>) {
        const auto word = std::bit_cast<uint32_t>(scales[group]);
        piece->scales[f][group] = ScaleOfWord(word) * P::kWorth;
        const int64_t at = (output * layout.Int4RowElements() + first + i) / 2;
        WidenFourBits<T, P>(weights + at, n, ZeroPointOfWord(word), out);
      } else {
        piece->scales[f][group] = scales[group];
        WidenFp8<T>(reinterpret_cast<const E4m3*>(weights) + output * a.in_features + first + i, n,
                    out);
      }
    }
  }
}

template <int kRows, typename T>
HWY_INLINE void AddWidenedStep(const T* const* x, const WidenedPiece<T>& piece, int k,
                               Sums<kRows, kWidenedFeatures>& sums) {
  using P = Fp8Products<T>;
  decltype(P::LoadWide(piece.weights[0])) weights[kWidenedFeatures];
#pragma GCC unroll 8
  for (int f = 0; f < kWidenedFeatures; ++f) weights[f] = P::LoadWide(piece.weights[f] + k);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto activation = P::LoadX(x[r]);
#pragma GCC unroll 8
    for (int f = 0; f < kWidenedFeatures; ++f)
      sums[r][f] = P::Add(activation, weights[f], sums[r][f]);
  }
}

// all[r] += the products of the inputs at x[r] with the piece.
template <int kRows, typename T>
HWY_NOINLINE void AddWidened(const T* const* x, const WidenedPiece<T>& piece,
                             float (*all)[kWidenedFeatures][WidenedSums::kLanes]) {
  constexpr int kStep = Fp8Products<T>::kStep;
  constexpr int kFeatures = kWidenedFeatures;
  Sums<kRows, kFeatures> totals;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) totals[r][f] = hn::LoadU(D(), all[r][f]);
  }
  const T* at[kRows];
  int group = 0;
  for (int first = 0; first < piece.num_inputs; first += piece.scale_inputs, ++group) {
    const int end = std::min(first + piece.scale_inputs, piece.num_inputs);
    Sums<kRows, kFeatures> sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int f = 0; f < kFeatures; ++f) sums[r][f] = hn::Zero(D());
    }
    int i = first;
    for (; i + kStep <= end; i += kStep) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) at[r] = x[r] + i;
      AddWidenedStep<kRows>(at, piece, i, sums);
    }
    if (i < end) {
      T tail[kRows][kStep] = {};
      for (int r = 0; r < kRows; ++r) {
        std::memcpy(tail[r], x[r] + i, static_cast<size_t>(end - i) * sizeof(T));
        at[r] = tail[r];
      }
      AddWidenedStep<kRows>(at, piece, i, sums);
    }
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) {
      const V scale = hn::Set(D(), piece.scales[f][group]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) totals[r][f] = hn::MulAdd(sums[r][f], scale, totals[r][f]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int f = 0; f < kFeatures; ++f) hn::StoreU(totals[r][f], D(), all[r][f]);
  }
}

// Rows [row, row_end), at most kWidenedRows, and features [feature, feature + kWidenedFeatures)
// that there are.
template <typename T, typename P>
HWY_NOINLINE void ComputeWidened(const LinearArgs& a, int64_t row, int64_t row_end, int feature,
                                 const uint32_t* x_rows) {
  WidenedPiece<T> piece;
  WidenedSums sums;
  piece.scale_inputs = kIsFourBits<P> ? a.scale_inputs : kScaleInputs;
  const int step = kWidenedInputs / piece.scale_inputs * piece.scale_inputs;
  const int num_rows = static_cast<int>(row_end - row);
  const auto whole_blocks = static_cast<size_t>((num_rows + kWidenedBlockRows - 1) /
                                                kWidenedBlockRows * kWidenedBlockRows);
  std::memset(sums.lanes, 0, whole_blocks * sizeof(sums.lanes[0]));
  for (int first = 0; first < a.in_features; first += step) {
    piece.num_inputs = std::min(step, a.in_features - first);
    Widen<T, P>(a, feature, first, &piece);
    for (int r = 0; r < num_rows; r += kWidenedBlockRows) {
      const T* x[kWidenedBlockRows];
      for (int b = 0; b < kWidenedBlockRows; ++b) {
        const int64_t own = row + std::min(r + b, num_rows - 1);
        x[b] = static_cast<const T*>(a.x) +
               (x_rows == nullptr ? own : int64_t{x_rows[own]}) * a.in_features + first;
      }
      AddWidened<kWidenedBlockRows>(x, piece, sums.lanes + r);
    }
  }
  const int num_features = std::min(kWidenedFeatures, a.out_features - feature);
  for (int r = 0; r < num_rows; ++r) {
    for (int f = 0; f < num_features; ++f) {
      const V lanes = hn::LoadU(D(), sums.lanes[r][f]);
      StoreOutput<T>(a, row + r, feature + f, hn::GetLane(hn::SumOfLanes(D(), lanes)));
    }
  }
}

// Features [begin, end), all rows.
template <typename T, typename P>
HWY_INLINE void ComputeWidenedTile(const LinearArgs& a, int begin, int end, int64_t num_rows,
                                   const uint32_t* x_rows) {
  for (int64_t row = 0; row < num_rows; row += kWidenedRows) {
    for (int f = begin; f < end; f += kWidenedFeatures)
      ComputeWidened<T, P>(a, row, std::min(row + kWidenedRows, num_rows), f, x_rows);
  }
}
