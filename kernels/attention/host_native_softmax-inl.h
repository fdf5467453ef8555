// SPDX-License-Identifier: Apache-2.0
// The arithmetic on scores of the host's native attention: exponential, hyperbolic tangent, what is
// done to scores besides, and one row's softmax over a tile. Part of host_native.cc, compiled once
// per instruction set.
//
// Scores are in units of log2(e): weights are powers of two, 2^(score - maximum).
#if defined(REPRISE_KERNELS_ATTENTION_HOST_NATIVE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_SOFTMAX_INL_H_
#undef REPRISE_KERNELS_ATTENTION_HOST_NATIVE_SOFTMAX_INL_H_
#else
#define REPRISE_KERNELS_ATTENTION_HOST_NATIVE_SOFTMAX_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention/attention_args.h"
#include "kernels/attention/host_native_rows-inl.h"
#include "kernels/device/host/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504f;
constexpr float kMinusInfinity = -__builtin_huge_valf();

// 2^x for x <= 0, 0 below -125. Relative error 2^-24 beyond rounding; NaN stays NaN. A polynomial
// of degree 6 through the Chebyshev nodes of [-1/2, 1/2].
HWY_INLINE V Exp2(V x) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto is_zero = hn::Lt(x, hn::Set(d, -125.0f));
  // The sum's low bits are x rounded to an integer.
  const V magic = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::Add(hn::IfThenElse(is_zero, hn::Zero(d), x), magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  V p = hn::Set(d, 0x1.444p-13f);
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.5f48cp-10f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.3b2a1cp-7f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.c6aeccp-5f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.ebfbep-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.62e43p-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const V y = hn::BitCast(d, hn::Add(hn::BitCast(du, p), exponent));
  return hn::IfThenZeroElse(is_zero, y);
}

HWY_INLINE float Exp2(float x) { return hn::GetLane(Exp2(hn::Set(D(), x))); }

// Near zero by the polynomial of Cephes' tanhf, elsewhere by one exponential.
HWY_INLINE V Tanh(V x) {
  const D d;
  const V magnitude = hn::Abs(x), z = hn::Mul(x, x);
  V p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const V small = hn::MulAdd(hn::Mul(p, z), x, x);
  const V one = hn::Set(d, 1.0f);
  const V t = Exp2(hn::Mul(magnitude, hn::Set(d, -2.0f * kLog2E)));
  const V large = hn::CopySign(hn::Div(hn::Sub(one, t), hn::Add(one, t)), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, large);
}

// What scores are made of besides the product of q and k.
struct ScoreRule {
  float q_factor;       // of q ahead of the product: scores in units of log2(e), or x of tanh
  float softcap;        // what tanh is multiplied by; 0: there is none
  const float* slopes;  // ALiBi's, of the args; nullptr: none

  static ScoreRule Of(const AttentionArgs& a) {
    return {a.softcap != 0.0f ? a.scale / a.softcap : a.scale * kLog2E, a.softcap * kLog2E,
            a.alibi_slopes};
  }
  bool is_plain() const { return softcap == 0.0f && slopes == nullptr; }
};

// The scores of one row against neighbouring positions, ready for the softmax. distance: position
// of the first of them less that of the query.
HWY_NOINLINE void AdjustScores(const ScoreRule& rule, int head, float distance, int begin, int end,
                               float* scores) {
  const D d;
  const V softcap = hn::Set(d, rule.softcap);
  const V slope = hn::Set(d, rule.slopes != nullptr ? rule.slopes[head] * kLog2E : 0.0f);
  for (int j = begin; j < end; j += kLanes) {
    V x = hn::Load(d, scores + j);
    if (rule.softcap != 0.0f) x = hn::Mul(softcap, Tanh(x));
    if (rule.slopes != nullptr)
      x = hn::MulAdd(slope, hn::Iota(d, distance + static_cast<float>(j)), x);
    hn::Store(x, d, scores + j);
  }
}

// What a query row sees, of all positions and of the tile at hand, and what its softmax keeps from
// tile to tile.
struct RowState {
  uint32_t first_seen = 0, end_seen = 0;  // positions
  int begin = 0, end = 0;                 // tokens of the tile
  float max = kMinusInfinity;
  float rescale = 1.0f;  // of what was summed before this tile
};

// Turns the scores of [row.begin, row.end) into weights; others of the same vectors become zero.
// sums: a vector of the row's partial sums of weights.
HWY_INLINE void SoftmaxRow(RowState& row, float* scores, float* sums) {
  const D d;
  const int begin = row.begin / kLanes * kLanes;
  const int whole = (row.begin + kLanes - 1) / kLanes * kLanes;
  if (begin != whole || row.end % kLanes != 0) {
    const V first = hn::Set(d, static_cast<float>(row.begin));
    const V last = hn::Set(d, static_cast<float>(row.end - 1));
    const auto mask = [&](int j) HWY_ATTR {
      const V at = hn::Iota(d, static_cast<float>(j));
      const auto seen = hn::And(hn::Ge(at, first), hn::Le(at, last));
      hn::Store(hn::IfThenElse(seen, hn::Load(d, scores + j), hn::Set(d, kMinusInfinity)), d,
                scores + j);
    };
    mask(begin);
    mask((row.end - 1) / kLanes * kLanes);
  }
  V top = hn::Load(d, scores + begin);
  for (int j = begin + kLanes; j < row.end; j += kLanes)
    top = hn::Max(top, hn::Load(d, scores + j));
  const float max = hn::GetLane(hn::MaxOfLanes(d, top));
  if (max > row.max) {
    row.rescale = Exp2(row.max - max);
    row.max = max;
  } else {
    row.rescale = 1.0f;  // as 2^0 is
  }
  // Where all scores are -inf, weights are 0, not NaN.
  const V base = hn::Set(d, row.max == kMinusInfinity ? 0.0f : row.max);
  V sum = hn::Zero(d);
  for (int j = begin; j < row.end; j += kLanes) {
    const V weight = Exp2(hn::Sub(hn::Load(d, scores + j), base));
    hn::Store(weight, d, scores + j);
    sum = hn::Add(sum, weight);
  }
  hn::Store(hn::MulAdd(hn::Load(d, sums), hn::Set(d, row.rescale), sum), d, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
