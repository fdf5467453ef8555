// SPDX-License-Identifier: Apache-2.0
// Body of the gather of columns, block style: grid x is the row, grid y the piece of it.
#ifndef REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_BODY_H_
#define REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_BODY_H_

#include "kernels/device/block.h"
#include "kernels/gather_columns/gather_columns_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T, int kWidth>
REPRISE_FN void GatherPiece(Block& b, const GatherColumnsArgs& a, int64_t row) {
  const T* const x = static_cast<const T*>(a.x) + row * a.columns;
  T* const out = static_cast<T*>(a.out) + row * a.columns;
  const int packs = a.columns / kWidth;
  const int piece = (packs + b.grid_y() - 1) / b.grid_y();
  const int begin = b.y() * piece;
  const int count = packs - begin < piece ? packs - begin : piece;
  b.For(count, [&](int i) {
    const int at = (begin + i) * kWidth;
    const Vec<uint32_t, kWidth> from = LoadVec<kWidth>(a.order + at);
    Vec<T, kWidth> y;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) y.v[j] = x[from.v[j]];
    StoreVec(out + at, y);
  });
}

template <typename T>
REPRISE_FN void GatherColumnsBody(Block& b, const GatherColumnsArgs& a) {
  const uint32_t row = static_cast<uint32_t>(b.x());
  if (row >= *a.num_rows) return;
  if (a.columns % kGatherPack == 0) {
    GatherPiece<T, kGatherPack>(b, a, row);
  } else {
    GatherPiece<T, 1>(b, a, row);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_GATHER_COLUMNS_GATHER_COLUMNS_BODY_H_
