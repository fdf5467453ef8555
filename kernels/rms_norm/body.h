// SPDX-License-Identifier: Apache-2.0
// Body of RMSNorm, block style: one block per output row; the row passes through shared memory once
// as f32.
#ifndef REPRISE_KERNELS_RMS_NORM_BODY_H_
#define REPRISE_KERNELS_RMS_NORM_BODY_H_

#include "kernels/device/block.h"
#include "kernels/rms_norm/rms_norm_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T, int kWidth>
REPRISE_FN void RmsNormRow(Block& b, const RmsNormArgs& a, int64_t in_row, int64_t out_row) {
  const T* residual = static_cast<const T*>(a.residual) + in_row * a.hidden;
  const T* branch = static_cast<const T*>(a.branch);
  T* kept = static_cast<T*>(a.residual_out);
  const T* weight = static_cast<const T*>(a.weight);
  T* out = static_cast<T*>(a.out) + out_row * a.hidden;
  float* row = b.Shared<float>();

  const int packs = a.hidden / kWidth;
  const float sum = b.Sum(packs, [&](int i) {
    Vec<T, kWidth> x = LoadVec<kWidth>(residual + i * kWidth);
    if (branch != nullptr) {
      const Vec<T, kWidth> y = LoadVec<kWidth>(branch + in_row * a.hidden + i * kWidth);
      REPRISE_UNROLL
      for (int j = 0; j < kWidth; ++j)
        x.v[j] = FromFloat<T>(ToFloat(x.v[j]) + a.branch_scale * ToFloat(y.v[j]));
    }
    if (kept != nullptr) StoreVec(kept + in_row * a.hidden + i * kWidth, x);
    float squares = 0.0f;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const float f = ToFloat(x.v[j]);
      row[i * kWidth + j] = f;
      squares += f * f;
    }
    return squares;
  });
  // The same thread reads the same packs back: no barrier is needed beyond Sum's own.
  const float scale = Rsqrt(sum / static_cast<float>(a.hidden) + a.eps);
  b.For(packs, [&](int i) {
    const Vec<T, kWidth> w = LoadVec<kWidth>(weight + i * kWidth);
    Vec<T, kWidth> y;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j)
      y.v[j] = FromFloat<T>(row[i * kWidth + j] * scale * ToFloat(w.v[j]));
    StoreVec(out + i * kWidth, y);
  });
}

template <typename T>
REPRISE_FN void RmsNormBody(Block& b, const RmsNormArgs& a) {
  const uint32_t r = static_cast<uint32_t>(b.x());
  if (r >= *a.num_rows) return;
  const int64_t in_row = a.gather != nullptr ? a.gather[r] : r;
  if (a.hidden % 8 == 0) {
    RmsNormRow<T, 8>(b, a, in_row, r);
  } else {
    RmsNormRow<T, 1>(b, a, in_row, r);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_RMS_NORM_BODY_H_
