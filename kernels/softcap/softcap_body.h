// SPDX-License-Identifier: Apache-2.0
// Body of the soft cap, block style: grid x is the row, grid y the piece of it.
#ifndef REPRISE_KERNELS_SOFTCAP_SOFTCAP_BODY_H_
#define REPRISE_KERNELS_SOFTCAP_SOFTCAP_BODY_H_

#include "kernels/device/block.h"
#include "kernels/softcap/softcap_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <int kWidth>
REPRISE_FN void SoftcapPiece(Block& b, const SoftcapArgs& a) {
  float* const row = a.x + static_cast<int64_t>(b.x()) * a.columns;
  const int packs = a.columns / kWidth;
  const int piece = (packs + b.grid_y() - 1) / b.grid_y();
  const int begin = b.y() * piece;
  const int count = packs - begin < piece ? packs - begin : piece;
  b.For(count, [&](int i) {
    float* const at = row + static_cast<int64_t>(begin + i) * kWidth;
    Vec<float, kWidth> x = LoadVec<kWidth>(at);
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) x.v[j] = a.cap * Tanh(x.v[j] / a.cap);
    StoreVec(at, x);
  });
}

REPRISE_FN void SoftcapBody(Block& b, const SoftcapArgs& a) {
  if (static_cast<uint32_t>(b.x()) >= *a.num_rows) return;
  if (a.columns % kSoftcapPack == 0) {
    SoftcapPiece<kSoftcapPack>(b, a);
  } else {
    SoftcapPiece<1>(b, a);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SOFTCAP_SOFTCAP_BODY_H_
