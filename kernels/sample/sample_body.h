// SPDX-License-Identifier: Apache-2.0
// Bodies of sampling, block style: chunks of the vocabulary first, then one block per sampled row.
#ifndef REPRISE_KERNELS_SAMPLE_SAMPLE_BODY_H_
#define REPRISE_KERNELS_SAMPLE_SAMPLE_BODY_H_

#include "kernels/device/block.h"
#include "kernels/sample/adjust.h"
#include "kernels/sample/report.h"
#include "kernels/sample/row_logits.h"
#include "kernels/sample/sample_args.h"
#include "kernels/sample/select.h"
#include "kernels/sample/truncate.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// One chunk of clean logits, reduced.
template <typename Logit>
REPRISE_FN void ReduceChunk(Block& b, int begin, int n, float inverse, Logit logit,
                            SamplePartial* out) {
  const ValueIndex best = b.ArgMax(n, logit);
  const float sum = b.Sum(n, [&](int i) { return Exp(logit(i) - best.value); });
  const float scaled =
      inverse == 0.0f ? 0.0f
                      : b.Sum(n, [&](int i) { return Exp((logit(i) - best.value) * inverse); });
  b.Once([&] {
    // A chunk of NaN or of minus infinity holds no candidate, and its sums are NaN: the final pass
    // leaves it out.
    const uint32_t id =
        best.value == -Infinity() ? kNoCandidate : best.index + static_cast<uint32_t>(begin);
    *out = SamplePartial{best.value, id, sum, scaled};
  });
}

// The entry of the result ring that this step's results go to.
REPRISE_FN unsigned char* ResultEntry(const SampleArgs& a) {
  const uint64_t step = a.plan.counts->sequence - 1;
  return a.results + (step % a.result_depth) * a.result_layout.bytes;
}

// Grid: rows whose logits are wanted x chunks. Sampled rows come first.
REPRISE_FN void SamplePartialBody(Block& b, const SampleArgs& a) {
  const uint32_t s = static_cast<uint32_t>(b.x());
  const uint32_t num_sampled = a.plan.counts->num_sampled;
  if (s >= num_sampled + a.plan.counts->num_prompt_logprobs) return;
  const int begin = b.y() * kSampleChunk;
  const int n = a.vocab - begin < kSampleChunk ? a.vocab - begin : kSampleChunk;
  const float* logits = a.logits + static_cast<int64_t>(s) * a.vocab + begin;
  const auto clean = [&](int i) { return CleanLogit(logits[i]); };
  SamplePartial* partial = a.partials + static_cast<int64_t>(s) * a.num_chunks + b.y();
  if (s >= num_sampled) return ReduceChunk(b, begin, n, 0.0f, clean, partial);

  const SampledRow row = SampledRowOf(a, s);
  ReduceChunk(b, begin, n, row.inverse, clean, partial);
  if ((row.features & kFeaturesThatAdjust) != 0) {
    float* adjusted = a.adjusted + static_cast<int64_t>(s) * a.vocab + begin;
    AdjustChunk(b, a, s, row, logits, begin, n, adjusted);
    b.Sync();
    ReduceChunk(
        b, begin, n, row.inverse, [&](int i) { return adjusted[i]; },
        a.adjusted_partials + static_cast<int64_t>(s) * a.num_chunks + b.y());
  }
  if ((row.features & kFeatureLogits) != 0) {
    const uint64_t at = static_cast<uint64_t>(a.plan.logits_place[s]) * a.vocab + begin;
    float* out = reinterpret_cast<float*>(ResultEntry(a) + a.result_layout.logits) + at;
    b.For(n, [&](int i) { out[i] = logits[i]; });
  }
}

// Picks the token at `target` of the cumulative exp((l - max) * inverse) within one chunk:
// sub-chunks in order, then ids in order. The last id with a positive weight where rounding carries
// the target past the end.
REPRISE_FN uint32_t PickInChunk(Block& b, const float* logits, int begin, int n, float max,
                                float inverse, float target) {
  float* sums = b.Shared<float>();
  uint32_t* picked = reinterpret_cast<uint32_t*>(sums + kSampleChunk / kSampleSubChunk);
  const int subs = (n + kSampleSubChunk - 1) / kSampleSubChunk;
  auto weight = [&](int i) { return Exp((CleanLogit(logits[begin + i]) - max) * inverse); };
  b.For(subs, [&](int c) {
    const int end = (c + 1) * kSampleSubChunk < n ? (c + 1) * kSampleSubChunk : n;
    float sum = 0.0f;
    for (int i = c * kSampleSubChunk; i < end; ++i) sum += weight(i);
    sums[c] = sum;
  });
  b.Sync();
  b.Once([&] {
    float before = 0.0f;
    int c = 0;
    while (c + 1 < subs && before + sums[c] <= target) before += sums[c++];
    const int end = (c + 1) * kSampleSubChunk < n ? (c + 1) * kSampleSubChunk : n;
    uint32_t pick = 0xffffffffu;
    for (int i = c * kSampleSubChunk; i < end; ++i) {
      const float w = weight(i);
      if (!(w > 0.0f)) continue;
      pick = static_cast<uint32_t>(begin + i);
      before += w;
      if (before > target) break;
    }
    *picked = pick;
  });
  b.Sync();
  return *picked;
}

// The inverse CDF of softmax(logits / temperature) in order of ids. REQUIRES: `best` is a
// candidate.
REPRISE_FN uint32_t DrawToken(Block& b, const SampleArgs& a, uint32_t s, const SampledRow& row,
                              ValueIndex best) {
  const auto mass_of = [&](int c) {
    return row.partials[c].sum_scaled * Exp((row.partials[c].max - best.value) * row.inverse);
  };
  float scaled = 0.0f;
  for (int c = 0; c < a.num_chunks; ++c)
    if (row.partials[c].argmax != kNoCandidate) scaled += mass_of(c);
  const float target = UniformOf(a, s) * scaled;
  float before = 0.0f, chunk_before = 0.0f;
  int chunk = 0;
  for (int c = 0; c < a.num_chunks; ++c) {
    const float mass = mass_of(c);
    if (!(mass > 0.0f)) continue;
    chunk = c;
    chunk_before = before;
    before += mass;
    if (before > target) break;
  }
  const int begin = chunk * kSampleChunk;
  const int n = a.vocab - begin < kSampleChunk ? a.vocab - begin : kSampleChunk;
  const uint32_t pick =
      PickInChunk(b, row.logits, begin, n, best.value, row.inverse, target - chunk_before);
  return pick != kNoCandidate ? pick : best.index;
}

// The row's token, in every thread; kNoCandidate when no logit is above minus infinity.
REPRISE_FN uint32_t ChooseToken(Block& b, const SampleArgs& a, uint32_t s, const SampledRow& row) {
  const ValueIndex best = BestOf(row.partials, a.num_chunks);
  if (row.inverse == 0.0f || best.index == kNoCandidate) return best.index;
  if ((row.features & kFeatureTruncate) == 0) return DrawToken(b, a, s, row, best);
  SampleCut cut;
  const uint32_t token = DrawTruncated(b, *b.Shared<SelectScratch>(), a, s, row, best.value, &cut);
  b.Once([&] { a.cut[s] = cut; });
  return token;
}

// One block per row whose logits are wanted, sampled rows first. Dynamic shared memory:
// ReportScratch, which opens with SelectScratch.
REPRISE_FN void SampleFinalBody(Block& b, const SampleArgs& a) {
  const uint32_t s = static_cast<uint32_t>(b.x());
  const uint32_t num_sampled = a.plan.counts->num_sampled;
  // The log-probability is the model's own, whatever was adjusted.
  const SamplePartial* partials = a.partials + static_cast<int64_t>(s) * a.num_chunks;
  const float* logits = a.logits + static_cast<int64_t>(s) * a.vocab;
  uint32_t token = 0, entry = 0;
  bool reports = false;
  if (s < num_sampled) {
    const SampledRow row = SampledRowOf(a, s);
    token = ChooseToken(b, a, s, row);
    const float max = BestOf(partials, a.num_chunks).value;
    const float sum = SumOf(partials, a.num_chunks, max);
    b.Once([&] {
      a.token[s] = token;
      a.logprob[s] =
          token != kNoCandidate ? CleanLogit(logits[token]) - max - Log(sum) : QuietNaN();
    });
    entry = a.plan.sampled_entry[s];
    reports = (row.features & kFeatureLogprobs) != 0;
  } else if (s - num_sampled < a.plan.counts->num_prompt_logprobs) {
    token = a.plan.prompt_target[s - num_sampled];
    entry = a.plan.prompt_entry[s - num_sampled];
    reports = true;
  }
  if (!reports) return;
  const RowEntry row = a.plan.entries[entry];
  // The parameters of a row without features were never written.
  const bool top = (row.flags & (kFeatureLogprobs << kRowFeatureShift)) != 0;
  WriteReport(b, *b.Shared<ReportScratch>(), logits, partials, a.vocab, a.num_chunks, token,
              top ? a.rows.sampling[row.slot].num_logprobs : 0,
              reinterpret_cast<LogprobReport*>(ResultEntry(a) + a.result_layout.reports) + s);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_SAMPLE_BODY_H_
