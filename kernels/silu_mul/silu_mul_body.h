// SPDX-License-Identifier: Apache-2.0
// Body of SiLU*up and its kin, block style: grid x is the token, grid y the piece of its row.
#ifndef REPRISE_KERNELS_SILU_MUL_SILU_MUL_BODY_H_
#define REPRISE_KERNELS_SILU_MUL_SILU_MUL_BODY_H_

#include "kernels/device/block.h"
#include "kernels/silu_mul/silu_mul_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// What the gate's sigmoid is taken of.
REPRISE_FN float GateSlope(const SiluMulArgs& a, float gate) {
  constexpr float kTwoRoots = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  return a.gelu != 0 ? kTwoRoots * (gate + 0.044715f * gate * gate * gate) : gate;
}

// NaN stays NaN.
REPRISE_FN float LimitedProduct(const SiluMulArgs& a, float gate, float up) {
  const float g = gate > a.limit ? a.limit : gate;
  const float u = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
  return g / (1.0f + Exp(-a.sigmoid_slope * g)) * (u + 1.0f);
}

template <typename T, int kWidth>
REPRISE_FN void SiluMulPiece(Block& b, const SiluMulArgs& a, int64_t t) {
  const T* gate = static_cast<const T*>(a.gate_up) + t * 2 * a.intermediate;
  const T* up = gate + a.intermediate;
  T* out = static_cast<T*>(a.out) + t * a.intermediate;
  const int packs = a.intermediate / kWidth;
  const int piece = (packs + b.grid_y() - 1) / b.grid_y();
  const int begin = b.y() * piece;
  const int count = packs - begin < piece ? packs - begin : piece;
  b.For(count, [&](int i) {
    const int64_t at = static_cast<int64_t>(begin + i) * kWidth;
    const Vec<T, kWidth> g = LoadVec<kWidth>(gate + at), u = LoadVec<kWidth>(up + at);
    Vec<T, kWidth> y;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const float x = ToFloat(g.v[j]), factor = ToFloat(u.v[j]);
      y.v[j] = FromFloat<T>(a.limit != 0.0f ? LimitedProduct(a, x, factor)
                                            : x / (1.0f + Exp(-GateSlope(a, x))) * factor);
    }
    StoreVec(out + at, y);
  });
}

template <typename T>
REPRISE_FN void SiluMulBody(Block& b, const SiluMulArgs& a) {
  const uint32_t t = static_cast<uint32_t>(b.x());
  if (t >= *a.num_tokens) return;
  if (a.intermediate % kSiluMulPack == 0) {
    SiluMulPiece<T, kSiluMulPack>(b, a, t);
  } else {
    SiluMulPiece<T, 1>(b, a, t);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SILU_MUL_SILU_MUL_BODY_H_
