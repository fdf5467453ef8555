// SPDX-License-Identifier: Apache-2.0
// Body of RMSNorm, block style: one block per output row. A row of up to kNormPacksPerThread packs
// per thread is read once and waits for its sum in registers; a longer one is read twice, or where
// the norm is rounded three times.
#ifndef REPRISE_KERNELS_RMS_NORM_RMS_NORM_BODY_H_
#define REPRISE_KERNELS_RMS_NORM_RMS_NORM_BODY_H_

#include "kernels/device/block.h"
#include "kernels/rms_norm/norm_arithmetic.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "kernels/round_rows/round_arithmetic.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// One row of the op, in packs of kWidth elements. kRounds: row_scales is there.
template <typename T, int kWidth, bool kRounds = false>
class NormRow {
 public:
  using Pack = Vec<T, kWidth>;
  static constexpr bool kIsRounded = kRounds;

  REPRISE_FN NormRow(const RmsNormArgs& a, int64_t in_row, int64_t out_row)
      : a_(a), in_(in_row * a.hidden), out_(out_row * a.hidden) {}

  REPRISE_FN int packs() const { return a_.hidden / kWidth; }
  REPRISE_FN bool has_branch() const { return a_.branch != nullptr; }
  REPRISE_FN Pack Residual(int i) const { return Load(a_.residual, in_ + i * kWidth); }
  REPRISE_FN Pack Branch(int i) const { return Load(a_.branch, in_ + i * kWidth); }
  REPRISE_FN Pack Weight(int i) const { return Load(a_.weight, i * kWidth); }

  REPRISE_FN Pack Add(const Pack& x, const Pack& branch) const {
    Pack sum;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) sum.v[j] = AddBranch(x.v[j], branch.v[j], a_.branch_scale);
    return sum;
  }
  REPRISE_FN void Keep(int i, const Pack& x) const {
    if (a_.residual_out != nullptr)
      StoreVec(static_cast<T*>(a_.residual_out) + in_ + i * kWidth, x);
  }
  REPRISE_FN float Scale(float squares) const { return NormScale(squares, a_.share, a_.eps); }
  REPRISE_FN Pack Normed(const Pack& x, float scale, const Pack& weight) const {
    return REPRISE_DEVICE_NS::Normed(x, scale, weight, a_.weight_offset);
  }
  REPRISE_FN void Store(int i, const Pack& x, float scale, const Pack& weight) const {
    StoreVec(static_cast<T*>(a_.out) + out_ + i * kWidth, Normed(x, scale, weight));
  }
  // Of a rounded norm; row: of the output.
  REPRISE_FN void StoreRowScale(float scale) const { a_.row_scales[out_ / a_.hidden] = scale; }
  REPRISE_FN void StoreAsE4m3(int i, const Pack& normed, float inverse) const {
    StoreRounded(normed, inverse, static_cast<E4m3*>(a_.out) + out_ + i * kWidth);
  }

 private:
  REPRISE_FN static Pack Load(const void* base, int64_t at) {
    return LoadVec<kWidth>(static_cast<const T*>(base) + at);
  }

  const RmsNormArgs& a_;
  int64_t in_, out_;  // elements
};

// The weight is read only after the sum: asking for it before takes registers, and blocks that they
// leave no room for hide more.
template <typename Row>
REPRISE_FN void NormShortRow(Block& b, const Row& row) {
  using Pack = typename Row::Pack;
  const int n = row.packs();
  Local<Pack, kNormPacksPerThread> x;
  b.For<kNormPacksPerThread>(n, [&](LocalIndex at) { x[at] = row.Residual(at.i); });
  if (row.has_branch()) {
    Local<Pack, kNormPacksPerThread> branch;
    b.For<kNormPacksPerThread>(n, [&](LocalIndex at) { branch[at] = row.Branch(at.i); });
    b.For<kNormPacksPerThread>(n, [&](LocalIndex at) { x[at] = row.Add(x[at], branch[at]); });
  }
  const float squares = b.Sum<kNormPacksPerThread>(n, [&](LocalIndex at) {
    row.Keep(at.i, x[at]);
    return NormSquares(x[at]);
  });
  const float scale = row.Scale(squares);
  if constexpr (Row::kIsRounded) {
    const float largest = b.Max<kNormPacksPerThread>(n, [&](LocalIndex at) {
      x[at] = row.Normed(x[at], scale, row.Weight(at.i));
      return LargestOf(x[at]);
    });
    const float row_scale = RowScale(largest), inverse = 1.0f / row_scale;
    b.Once([&] { row.StoreRowScale(row_scale); });
    b.For<kNormPacksPerThread>(n, [&](LocalIndex at) { row.StoreAsE4m3(at.i, x[at], inverse); });
  } else {
    b.For<kNormPacksPerThread>(
        n, [&](LocalIndex at) { row.Store(at.i, x[at], scale, row.Weight(at.i)); });
  }
}

// Read twice or three times, but for the first from the caches.
template <typename Row>
REPRISE_FN void NormLongRow(Block& b, const Row& row) {
  const auto load = [&](int i) {
    const auto x = row.Residual(i);
    return row.has_branch() ? row.Add(x, row.Branch(i)) : x;
  };
  const float squares = b.Sum(row.packs(), [&](int i) { return NormSquares(load(i)); });
  const float scale = row.Scale(squares);
  if constexpr (Row::kIsRounded) {
    const auto normed = [&](int i) { return row.Normed(load(i), scale, row.Weight(i)); };
    const float largest = b.Max(row.packs(), [&](int i) { return LargestOf(normed(i)); });
    const float row_scale = RowScale(largest), inverse = 1.0f / row_scale;
    b.Once([&] { row.StoreRowScale(row_scale); });
    b.For(row.packs(), [&](int i) {
      const auto x = load(i);
      row.Keep(i, x);
      row.StoreAsE4m3(i, row.Normed(x, scale, row.Weight(i)), inverse);
    });
  } else {
    b.For(row.packs(), [&](int i) {
      const auto x = load(i);
      row.Keep(i, x);
      row.Store(i, x, scale, row.Weight(i));
    });
  }
}

template <typename T, int kWidth, bool kRounds>
REPRISE_FN void NormAnyRow(Block& b, const NormRow<T, kWidth, kRounds>& row) {
  if (row.packs() <= kNormPacksPerThread * b.threads()) {
    NormShortRow(b, row);
  } else {
    NormLongRow(b, row);
  }
}

template <typename T, bool kRounds = false>
REPRISE_FN void RmsNormBody(Block& b, const RmsNormArgs& a) {
  constexpr int kPack = 16 / sizeof(T);
  const uint32_t r = static_cast<uint32_t>(b.x());
  if (r >= *a.num_rows) return;
  const int64_t in_row = a.gather != nullptr ? a.gather[r] : r;
  if (a.hidden % kPack == 0) {
    NormAnyRow(b, NormRow<T, kPack, kRounds>(a, in_row, r));
  } else {
    NormAnyRow(b, NormRow<T, 1, kRounds>(a, in_row, r));
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_RMS_NORM_RMS_NORM_BODY_H_
