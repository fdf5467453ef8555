// SPDX-License-Identifier: Apache-2.0
// Reports of how likely a token was and which are the likeliest, block style: one block per row of
// logits, into the result ring. Part of the final pass of sampling; publish follows it.
#ifndef REPRISE_KERNELS_SAMPLE_REPORT_H_
#define REPRISE_KERNELS_SAMPLE_REPORT_H_

#include "kernels/device/block.h"
#include "kernels/sample/row_logits.h"
#include "kernels/sample/select.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN bool Before(TopToken x, TopToken y) {
  return x.logit > y.logit || (x.logit == y.logit && x.id < y.id);
}

// The tokens that `cut` keeps, in any order.
REPRISE_FN void GatherTop(Block& b, ReportScratch& scratch, const float* logits, int vocab,
                          SampleCut cut) {
  b.Once([&] { scratch.num_found = 0; });
  b.Sync();
  b.For(vocab, [&](int i) {
    const float l = CleanLogit(logits[i]);
    if (!(l > -Infinity()) || !Keeps(cut, l, static_cast<uint32_t>(i))) return;
    scratch.found[b.AtomicAdd(&scratch.num_found, 1u)] = TopToken{static_cast<uint32_t>(i), l};
  });
  b.Sync();
}

// Writes the report of `token` (kNoCandidate: none was) with its `wanted` likeliest rivals.
// `logits`, `partials`: the model's own.
REPRISE_FN void WriteReport(Block& b, ReportScratch& scratch, const float* logits,
                            const SamplePartial* partials, int vocab, int num_chunks,
                            uint32_t token, uint32_t wanted, LogprobReport* out) {
  const ValueIndex best = BestOf(partials, num_chunks);
  const bool candidate = token != kNoCandidate && best.index != kNoCandidate;
  const float own = candidate ? CleanLogit(logits[token]) : -Infinity();
  const float log_sum = candidate ? Log(SumOf(partials, num_chunks, best.value)) : 0.0f;
  uint32_t num_top = 0;
  if (wanted != 0 && candidate) {
    const SampleCut cut = SelectPrefix(
        b, scratch.select, vocab, best.value, [&](int i) { return CleanLogit(logits[i]); },
        [](float) { return uint64_t{1}; }, [&](uint64_t) { return uint64_t{wanted}; });
    GatherTop(b, scratch, logits, vocab, cut);
    num_top = scratch.num_found;
  }
  // Whole numbers below 2^24: exact in any order.
  const float ahead = b.Sum(vocab, [&](int i) {
    const TopToken other{static_cast<uint32_t>(i), CleanLogit(logits[i])};
    return Before(other, TopToken{token, own}) ? 1.0f : 0.0f;
  });
  b.For(static_cast<int>(num_top), [&](int i) {
    const TopToken mine = scratch.found[i];
    uint32_t place = 0;
    for (uint32_t j = 0; j < num_top; ++j) place += Before(scratch.found[j], mine) ? 1u : 0u;
    out->top_token[place] = mine.id;
    out->top_logprob[place] = mine.logit - best.value - log_sum;
  });
  b.Once([&] {
    out->logprob = candidate ? own - best.value - log_sum : QuietNaN();
    out->rank = candidate ? static_cast<uint32_t>(ahead) + 1 : 0;
    out->num_top = num_top;
  });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_REPORT_H_
