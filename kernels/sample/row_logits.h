// SPDX-License-Identifier: Apache-2.0
// What every pass of sampling asks about a sampled row: its features, its logits as the model gave
// them or as adjusted, its temperature and random number.
#ifndef REPRISE_KERNELS_SAMPLE_ROW_LOGITS_H_
#define REPRISE_KERNELS_SAMPLE_ROW_LOGITS_H_

#include "kernels/device/block.h"
#include "kernels/device/philox.h"
#include "kernels/sample/sample_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

struct SampledRow {
  uint32_t slot;
  uint32_t features;  // RowFeatures
  float inverse;      // 1 / temperature; 0 for greedy
  // What a token is drawn from: adjusted where the row adjusts.
  const float* logits;
  const SamplePartial* partials;
};

// The row's drafts that sampled token `s` stands behind, which count as sampled before it.
struct DraftsBefore {
  uint32_t count;
  uint32_t first;  // of their ids in StepPlan::token_id
};

REPRISE_FN DraftsBefore DraftsBeforeToken(const SampleArgs& a, uint32_t s) {
  const uint32_t e = a.plan.sampled_entry[s];
  const RowEntry entry = a.plan.entries[e];
  if (NumDrafts(entry.flags, entry.num_tokens) == 0) return {0, 0};
  const uint32_t first = a.plan.query_start[e];
  return {a.plan.sampled_token[s] - first, first + 1};
}

REPRISE_FN SampledRow SampledRowOf(const SampleArgs& a, uint32_t s) {
  const RowEntry entry = a.plan.entries[a.plan.sampled_entry[s]];
  const float t = a.rows.temperature[entry.slot];
  const uint32_t features = entry.flags >> kRowFeatureShift;
  const bool adjusts = (features & kFeaturesThatAdjust) != 0;
  return SampledRow{
      entry.slot, features, t == 0.0f ? 0.0f : 1.0f / (t > 1e-6f ? t : 1e-6f),
      (adjusts ? a.adjusted : a.logits) + static_cast<int64_t>(s) * a.vocab,
      (adjusts ? a.adjusted_partials : a.partials) + static_cast<int64_t>(s) * a.num_chunks};
}

// In (0, 1): a function of the row's seed and the position of the new token.
REPRISE_FN float UniformOf(const SampleArgs& a, uint32_t s) {
  const uint32_t e = a.plan.sampled_entry[s];
  const RowEntry entry = a.plan.entries[e];
  const uint32_t drafts = NumDrafts(entry.flags, entry.num_tokens);
  const uint64_t position = a.plan.context_before[e] + entry.num_tokens - drafts +
                            (drafts == 0 ? 0 : DraftsBeforeToken(a, s).count);
  return UniformFloat(Philox(a.rows.seed[entry.slot], position, 0).v[0]);
}

// The largest logit, lowest id among equals; kNoCandidate when none is above minus infinity. Few
// chunks (32 at 128k ids): every thread walks them all, in order.
REPRISE_FN ValueIndex BestOf(const SamplePartial* partials, int num_chunks) {
  ValueIndex best{-Infinity(), kNoCandidate};
  for (int c = 0; c < num_chunks; ++c)
    best = Better(best, ValueIndex{partials[c].max, partials[c].argmax});
  return best;
}

// Sum of exp(l - best) over the vocabulary.
REPRISE_FN float SumOf(const SamplePartial* partials, int num_chunks, float best) {
  float sum = 0.0f;
  for (int c = 0; c < num_chunks; ++c)
    if (partials[c].argmax != kNoCandidate) sum += partials[c].sum * Exp(partials[c].max - best);
  return sum;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_ROW_LOGITS_H_
