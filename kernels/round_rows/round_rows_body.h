// SPDX-License-Identifier: Apache-2.0
// Body of rounding rows, block style: grid x is the row. A row of up to kRoundPacksPerThread packs
// of a thread is read once, and waits for its largest element in registers.
#ifndef REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_BODY_H_
#define REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_BODY_H_

#include "kernels/device/block.h"
#include "kernels/round_rows/round_arithmetic.h"
#include "kernels/round_rows/round_rows_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T, int kWidth>
REPRISE_FN void RoundRow(Block& b, const RoundRowsArgs& a, int64_t row) {
  using Pack = Vec<T, kWidth>;
  constexpr int kKept = kRoundPacksPerThread;
  const T* const x = static_cast<const T*>(a.x) + row * a.columns;
  E4m3* const out = static_cast<E4m3*>(a.out) + row * a.columns;
  const int packs = a.columns / kWidth;
  const bool keeps = packs <= kKept * b.threads();
  Local<Pack, kKept> kept;
  float largest = 0.0f;
  if (keeps) {
    b.For<kKept>(packs, [&](LocalIndex at) { kept[at] = LoadVec<kWidth>(x + at.i * kWidth); });
    largest = b.Max<kKept>(packs, [&](LocalIndex at) { return LargestOf(kept[at]); });
  } else {
    largest = b.Max(packs, [&](int i) { return LargestOf(LoadVec<kWidth>(x + i * kWidth)); });
  }
  const float scale = RowScale(largest), inverse = 1.0f / scale;
  b.Once([&] { a.scales[row] = scale; });
  if (keeps) {
    b.For<kKept>(packs,
                 [&](LocalIndex at) { StoreRounded(kept[at], inverse, out + at.i * kWidth); });
  } else {
    b.For(packs,
          [&](int i) { StoreRounded(LoadVec<kWidth>(x + i * kWidth), inverse, out + i * kWidth); });
  }
}

template <typename T>
REPRISE_FN void RoundRowsBody(Block& b, const RoundRowsArgs& a) {
  constexpr int kPack = 16 / sizeof(T);
  const uint32_t row = static_cast<uint32_t>(b.x());
  if (row >= *a.num_rows) return;
  if (a.columns % kPack == 0) {
    RoundRow<T, kPack>(b, a, row);
  } else {
    RoundRow<T, 1>(b, a, row);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ROUND_ROWS_ROUND_ROWS_BODY_H_
