// SPDX-License-Identifier: Apache-2.0
// What AttentionArgs may ask of scores besides scaling: a soft cap, ALiBi, sinks. For the kernels
// in thread style; the portable body has its own. They are switches of a launch at run time:
// branches that all threads take alike, over arguments in constant memory. Nothing that a switch
// needs lives in a register outside its branch, so that a launch without them pays for the branches
// alone.
#ifndef REPRISE_KERNELS_ATTENTION_SCORE_SWITCHES_H_
#define REPRISE_KERNELS_ATTENTION_SCORE_SWITCHES_H_

#include "kernels/attention/attention_args.h"
#include "kernels/device/fp8_halves.h"
#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

inline constexpr float kLog2E = 1.4426950408889634f;

// Whether a score is more than a product.
REPRISE_FN bool HasScoreSwitches(const AttentionArgs& a) {
  return a.softcap != 0.0f || a.alibi_slopes != nullptr;
}

// What q . k is multiplied by: it becomes a score in units of log2 or, under a cap, the argument of
// the cap's tanh, whose factor is of units of log2 then.
REPRISE_FN float ScoreFactor(const AttentionArgs& a) {
  return a.softcap == 0.0f ? a.scale * kLog2E : a.scale * Reciprocal(a.softcap);
}

// The same over K of a KV head's elements as they are stored.
template <typename K>
REPRISE_FN float ScoreFactorOf(const AttentionArgs& a, float factor, uint32_t kv_head) {
  if constexpr (kIsFp8<K>)
    return factor * (a.scales.Of(kKeys, static_cast<int>(kv_head)) * kHalvesWorth);
  return factor;
}

template <int kCount>
REPRISE_FN void CapScores(const AttentionArgs& a, float (&s)[kCount]) {
  const float cap = a.softcap * kLog2E;
  REPRISE_UNROLL
  for (float& x : s) x = cap * Tanh(x);
}

// ALiBi's part of a score, in units of log2; slope: as AlibiSlope gives it.
REPRISE_FN float AlibiSlope(const AttentionArgs& a, int head) {
  return a.alibi_slopes[head] * kLog2E;
}
REPRISE_FN float AlibiBias(float slope, uint32_t key, uint32_t query) {
  return slope * static_cast<float>(static_cast<int32_t>(key - query));
}

// What a row's weighted sum of V is multiplied by in the end, when all its tokens are in: one over
// the sum of its weights, which are relative to `max`. A sink joins that sum here and nowhere else.
// Rebased to the larger of the two, so that neither a sink far above all scores nor one far below
// overflows.
REPRISE_FN float Normalizer(const AttentionArgs& args, int head, float max, float sum) {
  const AttentionArgs& a = ReadAgain(args);
  if (a.sinks == nullptr) return 1.0f / sum;
  const float sink = a.sinks[head] * kLog2E;
  const float base = Max(max, sink);
  const float weight = Exp2(max - base);
  return weight / (sum * weight + Exp2(sink - base));
}

// The same over V as it is stored.
template <typename K>
REPRISE_FN float NormalizerOf(const AttentionArgs& args, int head, float max, float sum) {
  const float normalizer = Normalizer(args, head, max, sum);
  if constexpr (kIsFp8<K>) {
    const AttentionArgs& a = ReadAgain(args);
    const int kv_head = head / (a.num_heads / a.kv.num_kv_heads);
    return normalizer * (a.scales.Of(kValues, kv_head) * kHalvesWorth);
  }
  return normalizer;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_SCORE_SWITCHES_H_
