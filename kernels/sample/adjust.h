// SPDX-License-Identifier: Apache-2.0
// Logits of a row that adjusts them, block style, a chunk at a time: allowed tokens, bias, stop
// tokens kept out at first, then penalties. Runs inside the chunk pass of sampling.
#ifndef REPRISE_KERNELS_SAMPLE_ADJUST_H_
#define REPRISE_KERNELS_SAMPLE_ADJUST_H_

#include "kernels/device/block.h"
#include "kernels/sample/row_logits.h"
#include "kernels/sample/select.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// `word` of the row's history: repetition for tokens of prompt and output, presence and frequency
// for those of the output.
REPRISE_FN float Penalised(float logit, const RowSampling& p, uint32_t word) {
  if (word == 0) return logit;
  const uint32_t count = word & kHistoryCount;
  logit = logit > 0.0f ? logit / p.repetition : logit * p.repetition;
  logit -= p.frequency * static_cast<float>(count);
  return count != 0 ? logit - p.presence : logit;
}

// How often the `i`-th of `count` drafts is among them; 0 where one before it is the same token.
REPRISE_FN uint32_t TimesDrafted(const uint32_t* drafts, uint32_t count, uint32_t i) {
  uint32_t times = 0;
  for (uint32_t j = 0; j < count; ++j) {
    if (drafts[j] != drafts[i]) continue;
    if (j < i) return 0;
    ++times;
  }
  return times;
}

REPRISE_FN float BiasOf(const LogitBias* bias, uint32_t count, uint32_t token) {
  for (uint32_t j = 0; j < count; ++j)
    if (bias[j].token == token) return bias[j].bias;
  return 0.0f;
}

// adjusted[i], clean, from logits[i] for token begin + i. Its own reader must Sync first.
REPRISE_FN void AdjustChunk(Block& b, const SampleArgs& a, uint32_t s, const SampledRow& row,
                            const float* logits, int begin, int n, float* adjusted) {
  const RowSampling p = a.rows.sampling[row.slot];
  const uint64_t slot = row.slot;
  const uint32_t* mask =
      (row.features & kFeatureMask) != 0 ? a.rows.mask + slot * a.rows.mask_words : nullptr;
  const uint32_t* history =
      (row.features & kFeaturePenalties) != 0 ? a.rows.history + slot * a.rows.vocab : nullptr;
  const auto adjust_drafted = [&](uint32_t token, float bias, uint32_t drafted) {
    if (mask != nullptr && (mask[token / 32] >> (token % 32) & 1u) == 0) return -Infinity();
    float l = CleanLogit(logits[token - static_cast<uint32_t>(begin)]) + bias;
    if (history != nullptr) l = Penalised(l, p, history[token] + drafted);
    return CleanLogit(l);
  };
  const auto adjust = [&](uint32_t token, float bias) { return adjust_drafted(token, bias, 0); };
  b.For(n, [&](int i) { adjusted[i] = adjust(static_cast<uint32_t>(begin + i), 0.0f); });
  const auto here = [&](uint32_t token) {
    return token >= static_cast<uint32_t>(begin) && token < static_cast<uint32_t>(begin + n);
  };
  if ((row.features & kFeatureBias) != 0) {
    b.Sync();
    b.For(static_cast<int>(p.num_bias), [&](int j) {
      const LogitBias bias = a.rows.bias[slot * kMaxLogitBias + static_cast<uint32_t>(j)];
      if (here(bias.token)) adjusted[bias.token - begin] = adjust(bias.token, bias.bias);
    });
  }
  const DraftsBefore before = DraftsBeforeToken(a, s);
  if (history != nullptr && before.count != 0) {
    b.Sync();
    const uint32_t* drafts = a.plan.token_id + before.first;
    b.For(static_cast<int>(before.count), [&](int i) {
      const uint32_t token = drafts[i];
      if (!here(token)) return;
      const uint32_t drafted = TimesDrafted(drafts, before.count, static_cast<uint32_t>(i));
      if (drafted == 0) return;
      const float bias = BiasOf(a.rows.bias + slot * kMaxLogitBias,
                                (row.features & kFeatureBias) != 0 ? p.num_bias : 0, token);
      adjusted[token - begin] = adjust_drafted(token, bias, drafted);
    });
  }
  if ((row.features & kFeatureMinTokens) == 0) return;
  if (a.rows.life[row.slot].generated + before.count >= p.min_tokens) return;
  b.Sync();
  b.For(static_cast<int>(p.num_stop), [&](int j) {
    const uint32_t token = a.rows.stop_token[slot * kMaxStopTokens + static_cast<uint32_t>(j)];
    if (here(token)) adjusted[token - begin] = -Infinity();
  });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_ADJUST_H_
