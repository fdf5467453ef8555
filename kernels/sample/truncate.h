// SPDX-License-Identifier: Apache-2.0
// Rows with top-k, top-p or min-p, block style: one block cuts the vocabulary of its row and draws
// from what is left. Part of the final pass of sampling.
#ifndef REPRISE_KERNELS_SAMPLE_TRUNCATE_H_
#define REPRISE_KERNELS_SAMPLE_TRUNCATE_H_

#include "kernels/device/block.h"
#include "kernels/device/philox.h"
#include "kernels/sample/row_logits.h"
#include "kernels/sample/select.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Probabilities relative to the likeliest token's, in units of 2^-40: with 2^22 tokens the sum
// stays below 2^63.
REPRISE_FN uint64_t FixedPoint(float probability) {
  return static_cast<uint64_t>(probability * 1099511627776.0f);
}

// A share of a total, at least 1.
REPRISE_FN uint64_t ShareOf(uint64_t total, float share) {
  const uint64_t part =
      static_cast<uint64_t>(static_cast<double>(share) * static_cast<double>(total));
  return part == 0 ? 1 : part;
}

// A token drawn from what top-k, top-p and min-p leave; `cut` says what that is. REQUIRES: the row
// truncates, is not greedy, and `best` is a candidate.
REPRISE_FN uint32_t DrawTruncated(Block& b, SelectScratch& scratch, const SampleArgs& a, uint32_t s,
                                  const SampledRow& row, float max, SampleCut* cut) {
  const RowSampling sampling = a.rows.sampling[row.slot];
  const float* logits = row.logits;
  const float inverse = row.inverse;
  // What is left after min-p; then after top-k; then after top-p.
  const auto likely = [&](int i) {
    const float l = CleanLogit(logits[i]);
    return (l - max) * inverse >= sampling.log_min_p ? l : -Infinity();
  };
  SampleCut kept{0, 0xffffffffu};
  if (sampling.top_k != 0)
    kept = SelectPrefix(
        b, scratch, a.vocab, max, likely, [](float) { return uint64_t{1}; },
        [&](uint64_t) { return static_cast<uint64_t>(sampling.top_k); });
  const auto logit = [&](int i) {
    const float l = likely(i);
    return l > -Infinity() && Keeps(kept, l, static_cast<uint32_t>(i)) ? l : -Infinity();
  };
  const auto weight = [&](float l) { return FixedPoint(Exp((l - max) * inverse)); };
  if (sampling.top_p < 1.0f)
    kept = Tighter(kept, SelectPrefix(b, scratch, a.vocab, max, logit, weight, [&](uint64_t total) {
                     return ShareOf(total, sampling.top_p);
                   }));
  *cut = kept;
  // The running mass in order of ids, as without truncation.
  const float u = UniformOf(a, s);
  return FindId(
      b, scratch, a.vocab,
      [&](int i) {
        const float l = logit(i);
        return l > -Infinity() ? weight(l) : uint64_t{0};
      },
      [&](uint64_t total) {
        return 1 + static_cast<uint64_t>(static_cast<double>(u) * static_cast<double>(total));
      });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_TRUNCATE_H_
