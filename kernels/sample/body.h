// SPDX-License-Identifier: Apache-2.0
// Bodies of sampling, block style: chunks of the vocabulary first, then one block per sampled row.
#ifndef REPRISE_KERNELS_SAMPLE_BODY_H_
#define REPRISE_KERNELS_SAMPLE_BODY_H_

#include "kernels/device/block.h"
#include "kernels/device/philox.h"
#include "kernels/sample/sample_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// 1 / temperature of a sampled row; 0 for greedy.
REPRISE_FN float InverseTemperature(const SampleArgs& a, uint32_t s) {
  const float t = a.rows.temperature[a.plan.entries[a.plan.sampled_entry[s]].slot];
  if (t == 0.0f) return 0.0f;
  return 1.0f / (t > 1e-6f ? t : 1e-6f);
}

REPRISE_FN void SamplePartialBody(Block& b, const SampleArgs& a) {
  const uint32_t s = static_cast<uint32_t>(b.x());
  if (s >= a.plan.counts->num_sampled) return;
  const int begin = b.y() * kSampleChunk;
  const int n = a.vocab - begin < kSampleChunk ? a.vocab - begin : kSampleChunk;
  const float* logits = a.logits + static_cast<int64_t>(s) * a.vocab + begin;
  const float inverse = InverseTemperature(a, s);

  const ValueIndex best = b.ArgMax(n, [&](int i) { return logits[i]; });
  const float sum = b.Sum(n, [&](int i) { return Exp(logits[i] - best.value); });
  const float scaled =
      inverse == 0.0f ? 0.0f
                      : b.Sum(n, [&](int i) { return Exp((logits[i] - best.value) * inverse); });
  b.Once([&] {
    // A chunk of NaN or of minus infinity holds no candidate, and its sums are NaN: the final pass
    // leaves it out.
    const uint32_t id =
        best.value == -Infinity() ? 0xffffffffu : best.index + static_cast<uint32_t>(begin);
    a.partials[static_cast<int64_t>(s) * a.num_chunks + b.y()] =
        SamplePartial{best.value, id, sum, scaled};
  });
}

// Picks the token at `target` of the cumulative exp((l - max) * inverse) within one chunk:
// sub-chunks in order, then ids in order. The last id with a positive weight where rounding carries
// the target past the end.
REPRISE_FN uint32_t PickInChunk(Block& b, const float* logits, int begin, int n, float max,
                                float inverse, float target) {
  float* sums = b.Shared<float>();
  uint32_t* picked = reinterpret_cast<uint32_t*>(sums + kSampleChunk / kSampleSubChunk);
  const int subs = (n + kSampleSubChunk - 1) / kSampleSubChunk;
  auto weight = [&](int i) { return Exp((logits[begin + i] - max) * inverse); };
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

REPRISE_FN void SampleFinalBody(Block& b, const SampleArgs& a) {
  const uint32_t s = static_cast<uint32_t>(b.x());
  if (s >= a.plan.counts->num_sampled) return;
  const SamplePartial* partials = a.partials + static_cast<int64_t>(s) * a.num_chunks;
  const float* logits = a.logits + static_cast<int64_t>(s) * a.vocab;
  const float inverse = InverseTemperature(a, s);

  // Few chunks (32 at 128k ids): every thread walks them all, in order.
  ValueIndex best{-Infinity(), 0xffffffffu};
  for (int c = 0; c < a.num_chunks; ++c)
    best = Better(best, ValueIndex{partials[c].max, partials[c].argmax});
  uint32_t token = best.index;
  float sum = 0.0f, scaled = 0.0f;
  for (int c = 0; c < a.num_chunks; ++c) {
    if (partials[c].argmax == 0xffffffffu) continue;
    sum += partials[c].sum * Exp(partials[c].max - best.value);
    scaled += partials[c].sum_scaled * Exp((partials[c].max - best.value) * inverse);
  }
  if (inverse != 0.0f && token != 0xffffffffu) {
    const uint32_t e = a.plan.sampled_entry[s];
    const RowEntry entry = a.plan.entries[e];
    const uint64_t position = a.plan.context_before[e] + entry.num_tokens;
    const float u = UniformFloat(Philox(a.rows.seed[entry.slot], position, 0).v[0]);
    const float target = u * scaled;
    float before = 0.0f, chunk_before = 0.0f;
    int chunk = 0;
    for (int c = 0; c < a.num_chunks; ++c) {
      const float mass = partials[c].sum_scaled * Exp((partials[c].max - best.value) * inverse);
      if (!(mass > 0.0f)) continue;
      chunk = c;
      chunk_before = before;
      before += mass;
      if (before > target) break;
    }
    const int begin = chunk * kSampleChunk;
    const int n = a.vocab - begin < kSampleChunk ? a.vocab - begin : kSampleChunk;
    const uint32_t pick =
        PickInChunk(b, logits, begin, n, best.value, inverse, target - chunk_before);
    if (pick != 0xffffffffu) token = pick;
  }
  b.Once([&] {
    const bool valid = token != 0xffffffffu;
    a.token[s] = valid ? token : 0u;
    a.logprob[s] = valid ? logits[token] - best.value - Log(sum) : QuietNaN();
  });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_BODY_H_
