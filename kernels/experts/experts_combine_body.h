// SPDX-License-Identifier: Apache-2.0
// Body of the sum over a token's experts, block style: grid x is the token, grid y the piece of its
// row.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_COMBINE_BODY_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_COMBINE_BODY_H_

#include "kernels/device/block.h"
#include "kernels/experts/experts_args.h"
#include "kernels/experts/experts_geometry.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T, int kWidth>
REPRISE_FN void CombinePiece(Block& b, const ExpertsCombineArgs& a, int64_t t) {
  const T* const x = static_cast<const T*>(a.x);
  T* const out = static_cast<T*>(a.out) + t * a.hidden;
  const uint32_t* const place = a.place + t * a.top_k;
  const float* const share = a.share + t * a.top_k;
  const int packs = a.hidden / kWidth;
  const int piece = (packs + b.grid_y() - 1) / b.grid_y();
  const int begin = b.y() * piece;
  const int count = packs - begin < piece ? packs - begin : piece;
  b.For(count, [&](int i) {
    const int64_t at = static_cast<int64_t>(begin + i) * kWidth;
    float sum[kWidth] = {};
    if (a.plus != nullptr) {
      const Vec<T, kWidth> more =
          LoadVec<kWidth>(static_cast<const T*>(a.plus) + t * a.hidden + at);
      REPRISE_UNROLL
      for (int j = 0; j < kWidth; ++j) sum[j] = ToFloat(more.v[j]);
    }
    for (int rank = 0; rank < a.top_k; ++rank) {
      const Vec<T, kWidth> y =
          LoadVec<kWidth>(x + static_cast<int64_t>(place[rank]) * a.hidden + at);
      REPRISE_UNROLL
      for (int j = 0; j < kWidth; ++j) sum[j] += share[rank] * ToFloat(y.v[j]);
    }
    Vec<T, kWidth> y;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) y.v[j] = FromFloat<T>(sum[j]);
    StoreVec(out + at, y);
  });
}

template <typename T>
REPRISE_FN void ExpertsCombineBody(Block& b, const ExpertsCombineArgs& a) {
  const uint32_t t = static_cast<uint32_t>(b.x());
  if (t >= *a.num_tokens) return;
  if (a.hidden % kExpertsCombinePack == 0) {
    CombinePiece<T, kExpertsCombinePack>(b, a, t);
  } else {
    CombinePiece<T, 1>(b, a, t);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_COMBINE_BODY_H_
