// SPDX-License-Identifier: Apache-2.0
// Exact selection over one row of logits by one block: the shortest prefix, in the order of tokens,
// whose weight reaches a target; and the token at which a running weight passes a target. Weights
// are integers (1 each, or probabilities in fixed point), so every sum is exact and no result
// depends on the order in which threads add.
//
// Order of tokens: larger logit first, then lower id. NaN counts as minus infinity, plus infinity
// as the largest finite float, minus zero as zero. A logit of minus infinity is no candidate.
#ifndef REPRISE_KERNELS_SAMPLE_SELECT_H_
#define REPRISE_KERNELS_SAMPLE_SELECT_H_

#include "kernels/device/block.h"
#include "kernels/sample/sample_args.h"
#include "kernels/sample/sample_geometry.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

constexpr float kLargestFloat = 3.402823466e+38f;

REPRISE_FN float CleanLogit(float x) {
  if (!(x == x)) return -Infinity();
  return x < kLargestFloat ? x : kLargestFloat;
}

// Larger logit, larger key; equal logits, equal keys. Of a clean logit.
REPRISE_FN uint32_t OrderKey(float x) {
  const uint32_t bits = BitsOf(x == 0.0f ? 0.0f : x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
REPRISE_FN float LogitOfKey(uint32_t key) {
  return FloatOf((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

REPRISE_FN bool Keeps(const SampleCut& cut, float logit, uint32_t id) {
  const uint32_t key = OrderKey(logit);
  return key > cut.key || (key == cut.key && id <= cut.last_id);
}

// What both cuts keep.
REPRISE_FN SampleCut Tighter(const SampleCut& x, const SampleCut& y) {
  if (x.key != y.key) return x.key > y.key ? x : y;
  return x.last_id < y.last_id ? x : y;
}

REPRISE_FN void ClearBins(Block& b, SelectScratch& s) {
  b.Sync();  // what was found before has been read
  b.For(kSelectBins, [&](int i) { s.bins[i] = 0; });
  b.Sync();
}

// Group sums and the total of the bins. Contains Sync before and after.
REPRISE_FN void SumBins(Block& b, SelectScratch& s) {
  b.Sync();
  b.For(kSelectGroups, [&](int g) {
    uint64_t sum = 0;
    for (int i = 0; i < kBinsOfGroup; ++i) sum += s.bins[g * kBinsOfGroup + i];
    s.groups[g] = sum;
  });
  b.Sync();
  b.Once([&] {
    uint64_t sum = 0;
    for (int g = 0; g < kSelectGroups; ++g) sum += s.groups[g];
    s.total = sum;
  });
  b.Sync();
}

// The first bin at which the running weight reaches `target` >= 1. After SumBins.
REPRISE_FN void FindBin(Block& b, SelectScratch& s, uint64_t target) {
  b.Once([&] {
    uint64_t before = 0;
    int g = 0;
    while (g < kSelectGroups && before + s.groups[g] < target) before += s.groups[g++];
    s.bin = kSelectBins;
    for (int i = g * kBinsOfGroup; g < kSelectGroups; ++i) {
      if (before + s.bins[i] >= target) {
        s.bin = static_cast<uint32_t>(i);
        s.before = before;
        s.inside = s.bins[i];
        break;
      }
      before += s.bins[i];
    }
  });
  b.Sync();
}

// How ids are cut into at most kSelectBins runs: id >> shift.
REPRISE_FN int IdShift(int n) {
  int shift = 0;
  while (((n - 1) >> shift) >= kSelectBins) ++shift;
  return shift;
}

// The id at which the running weight(id), in order of ids, reaches target(total weight), which lies
// in 1 .. total. Runs of ids are summed serially, so that neighbours do not meet in one bin. What
// FindBin found is read by every thread before the SumBins that its next use begins with: no
// barrier is needed around a selection.
template <typename Weight, typename Target>
REPRISE_FN uint32_t FindId(Block& b, SelectScratch& s, int n, Weight weight, Target target) {
  const int shift = IdShift(n);
  b.For(kSelectBins, [&](int r) {
    const int64_t begin = static_cast<int64_t>(r) << shift;
    const int64_t end = begin + (int64_t{1} << shift);
    uint64_t sum = 0;
    for (int64_t i = begin; i < (end < n ? end : n); ++i) sum += weight(static_cast<int>(i));
    s.bins[r] = sum;
  });
  SumBins(b, s);
  const uint64_t wanted = target(s.total);
  FindBin(b, s, wanted);
  const uint64_t left = wanted - s.before;
  if (s.bin >= static_cast<uint32_t>(kSelectBins)) return kNoCandidate;
  const int begin = static_cast<int>(s.bin) << shift;
  ClearBins(b, s);
  b.For(1 << shift, [&](int i) {
    if (begin + i < n) s.bins[i] = weight(begin + i);
  });
  SumBins(b, s);
  FindBin(b, s, left);
  return static_cast<uint32_t>(begin) + s.bin;
}

// Digits of a descent, best first: how far a logit lies below `max`, in 64ths, which spreads
// logits over bins as they come; then the order key, 11 + 11 + 10 bits, which separates all that
// differ.
REPRISE_FN uint32_t CoarseBin(float max, float logit) {
  const float steps = (max - logit) * 64.0f;
  return steps < static_cast<float>(kSelectBins - 1) ? static_cast<uint32_t>(steps)
                                                     : static_cast<uint32_t>(kSelectBins - 1);
}

// The cut after the shortest prefix of the order whose weight reaches target(total weight), a
// number >= 1; everything when the total is less. logit(i): clean, minus infinity where i is no
// candidate; weight(logit): the same for equal logits.
template <typename Logit, typename Weight, typename Target>
REPRISE_FN SampleCut SelectPrefix(Block& b, SelectScratch& s, int n, float max, Logit logit,
                                  Weight weight, Target target) {
  const SampleCut everything{0, 0xffffffffu};
  ClearBins(b, s);
  b.For(n, [&](int i) {
    const float l = logit(i);
    const uint64_t w = l > -Infinity() ? weight(l) : 0;
    if (w != 0) b.AtomicAdd(&s.bins[CoarseBin(max, l)], w);
  });
  SumBins(b, s);
  uint64_t left = target(s.total);
  FindBin(b, s, left);
  const uint32_t coarse = s.bin;
  if (coarse >= static_cast<uint32_t>(kSelectBins)) return everything;
  left -= s.before;

  uint32_t known = 0;  // upper bits of the key, as far as found
  for (int shift = 21, bits = 0; bits<32; shift = shift> 10 ? 10 : 0) {
    const int width = shift == 0 ? 10 : 11;
    const uint32_t last = (1u << width) - 1;
    ClearBins(b, s);
    b.For(n, [&](int i) {
      const float l = logit(i);
      if (!(l > -Infinity()) || CoarseBin(max, l) != coarse) return;
      const uint32_t key = OrderKey(l);
      if (bits != 0 && key >> (32 - bits) != known) return;
      const uint64_t w = weight(l);
      if (w != 0) b.AtomicAdd(&s.bins[last - ((key >> shift) & last)], w);
    });
    SumBins(b, s);
    FindBin(b, s, left);
    left -= s.before;
    known = known << width | (last - s.bin);
    bits += width;
  }
  // `known` is the key at which the target is reached: how many of its ties are needed?
  const uint64_t each = weight(LogitOfKey(known));
  const uint64_t ties = s.inside / each, needed = (left + each - 1) / each;
  SampleCut cut{known, 0xffffffffu};
  if (needed < ties)
    cut.last_id = FindId(
        b, s, n,
        [&](int i) {
          const float l = logit(i);
          return static_cast<uint64_t>(l > -Infinity() && OrderKey(l) == known ? 1 : 0);
        },
        [&](uint64_t) { return needed; });
  return cut;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_SAMPLE_SELECT_H_
