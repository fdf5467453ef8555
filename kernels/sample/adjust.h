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

// adjusted[i], clean, from logits[i] for token begin + i. Its own reader must Sync first.
REPRISE_FN void AdjustChunk(Block& b, const SampleArgs& a, const SampledRow& row,
                            const float* logits, int begin, int n, float* adjusted) {
  const RowSampling p = a.rows.sampling[row.slot];
  const uint64_t slot = row.slot;
  const uint32_t* mask =
      (row.features & kFeatureMask) != 0 ? a.rows.mask + slot * a.rows.mask_words : nullptr;
  const uint32_t* history =
      (row.features & kFeaturePenalties) != 0 ? a.rows.history + slot * a.rows.vocab : nullptr;
  const auto adjust = [&](uint32_t token, float bias) {
    if (mask != nullptr && (mask[token / 32] >> (token % 32) & 1u) == 0) return -Infinity();
    float l = CleanLogit(logits[token - static_cast<uint32_t>(begin)]) + bias;
    if (history != nullptr) l = Penalised(l, p, history[token]);
    return CleanLogit(l);
  };
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
  if ((row.features & kFeatureMinTokens) == 0) return;
  if (a.rows.life[row.slot].generated >= p.min_tokens) return;
  b.Sync();
  b.For(static_cast<int>(p.num_stop), [&](int j) {
    const uint32_t token = a.rows.stop_token[slot * kMaxStopTokens + static_cast<uint32_t>(j)];
    if (here(token)) adjusted[token - begin] = -Infinity();
  });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_ADJUST_H_
