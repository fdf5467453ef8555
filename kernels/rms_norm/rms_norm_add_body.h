// SPDX-License-Identifier: Apache-2.0
// Body of RMSNorm with the add behind it, block style: one block per row. The branch is what is
// normed, and waits for its sum as a row of rms_norm_body.h does.
#ifndef REPRISE_KERNELS_RMS_NORM_RMS_NORM_ADD_BODY_H_
#define REPRISE_KERNELS_RMS_NORM_RMS_NORM_ADD_BODY_H_

#include "kernels/rms_norm/rms_norm_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename Row>
REPRISE_FN void AddNormed(const Row& row, int i, const typename Row::Pack& branch, float scale) {
  row.Keep(i, row.Add(row.Residual(i), row.Normed(branch, scale, row.Weight(i))));
}

template <typename Row>
REPRISE_FN void NormAddRow(Block& b, const Row& row) {
  using Pack = typename Row::Pack;
  const int n = row.packs();
  if (n <= kNormPacksPerThread * b.threads()) {
    Local<Pack, kNormPacksPerThread> x;
    b.For<kNormPacksPerThread>(n, [&](LocalIndex at) { x[at] = row.Branch(at.i); });
    const float squares =
        b.Sum<kNormPacksPerThread>(n, [&](LocalIndex at) { return NormSquares(x[at]); });
    const float scale = row.Scale(squares);
    b.For<kNormPacksPerThread>(n, [&](LocalIndex at) { AddNormed(row, at.i, x[at], scale); });
  } else {
    const float squares = b.Sum(n, [&](int i) { return NormSquares(row.Branch(i)); });
    const float scale = row.Scale(squares);
    b.For(n, [&](int i) { AddNormed(row, i, row.Branch(i), scale); });
  }
}

template <typename T>
REPRISE_FN void RmsNormAddBody(Block& b, const RmsNormArgs& a) {
  constexpr int kPack = 16 / sizeof(T);
  const uint32_t r = static_cast<uint32_t>(b.x());
  if (r >= *a.num_rows) return;
  if (a.hidden % kPack == 0) {
    NormAddRow(b, NormRow<T, kPack>(a, r, r));
  } else {
    NormAddRow(b, NormRow<T, 1>(a, r, r));
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_RMS_NORM_RMS_NORM_ADD_BODY_H_
