// SPDX-License-Identifier: Apache-2.0
// Body of publish, block style: rows move on by what was sampled, and results go to the ring.
#ifndef REPRISE_KERNELS_STEP_PUBLISH_BODY_H_
#define REPRISE_KERNELS_STEP_PUBLISH_BODY_H_

#include "kernels/device/block.h"
#include "kernels/step/publish_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN bool IsStopToken(const ResidentRows& rows, uint32_t slot, uint32_t num_stop,
                            uint32_t token) {
  const uint32_t* stop = rows.stop_token + static_cast<uint64_t>(slot) * kMaxStopTokens;
  for (uint32_t i = 0; i < num_stop; ++i)
    if (stop[i] == token) return true;
  return false;
}

// Why the row ends with `token`, its `generated`-th; FinishReason::kNone when it goes on.
REPRISE_FN FinishReason FinishOf(const ResidentRows& rows, const RowEntry& entry, uint32_t token,
                                 uint32_t generated) {
  if (token == kNoCandidate) return FinishReason::kNoCandidate;
  if ((entry.flags & (kFeatureStop << kRowFeatureShift)) == 0) return FinishReason::kNone;
  const RowSampling sampling = rows.sampling[entry.slot];
  if (generated > sampling.min_tokens && IsStopToken(rows, entry.slot, sampling.num_stop, token))
    return FinishReason::kStopToken;
  return sampling.max_new_tokens != 0 && generated >= sampling.max_new_tokens
             ? FinishReason::kLength
             : FinishReason::kNone;
}

// Row `s` of the sampled ones moves on by its token.
REPRISE_FN void AdvanceSampled(Block& b, const PublishArgs& a, int s) {
  const uint32_t e = a.plan.sampled_entry[s];
  const RowEntry entry = a.plan.entries[e];
  const uint32_t features = entry.flags >> kRowFeatureShift;
  const uint32_t token = a.sampled_token_id[s];
  RowLife life = a.rows.life[entry.slot];
  ++life.generated;
  life.finish = FinishOf(a.rows, entry, token, life.generated);
  a.rows.life[entry.slot] = life;
  const uint32_t reported = token == kNoCandidate ? 0 : token;
  a.rows.last_token[entry.slot] = reported;
  if ((features & kFeaturePenalties) != 0)
    b.AtomicAdd(a.rows.history + static_cast<uint64_t>(entry.slot) * a.rows.vocab + reported, 1u);
  uint32_t flags = kResultSampled | static_cast<uint32_t>(life.finish) << kResultFinishShift;
  if ((features & kFeatureLogprobs) != 0) flags |= kResultLogprobs;
  if ((features & kFeatureLogits) != 0) flags |= kResultLogits;
  a.staging[e].token = reported;
  a.staging[e].logprob = a.sampled_logprob[s];
  a.staging[e].flags = flags;
}

REPRISE_FN void PublishBody(Block& b, const PublishArgs& a) {
  const StepPlan& p = a.plan;
  const PlanCounts counts = *p.counts;
  if (counts.sequence == 0) return;  // idle replay
  const int rows = static_cast<int>(counts.num_rows);
  unsigned char* ring_entry = a.ring + ((counts.sequence - 1) % a.depth) * a.entry_bytes;
  auto* header = reinterpret_cast<ResultHeader*>(ring_entry);
  auto* results = reinterpret_cast<RowResult*>(ring_entry + sizeof(ResultHeader));

  b.For(rows, [&](int e) {
    const RowEntry entry = p.entries[e];
    const uint32_t length = p.context_before[e] + entry.num_tokens;
    a.rows.context_length[entry.slot] = length;
    const uint32_t flags = (entry.flags & kRowStopped) != 0  ? kResultStopped
                           : (entry.flags & kRowPauses) != 0 ? kResultPaused
                                                             : 0u;
    a.staging[e] = RowResult{0, 0.0f, length, flags};
  });
  b.Sync();
  b.For(static_cast<int>(counts.num_sampled), [&](int s) { AdvanceSampled(b, a, s); });
  b.Sync();
  constexpr int kWords = sizeof(RowResult) / sizeof(uint64_t);
  const auto* words = reinterpret_cast<const uint64_t*>(a.staging);
  auto* out = reinterpret_cast<uint64_t*>(results);
  b.For(rows * kWords, [&](int i) { out[i] = words[i]; });
  b.Once([&] {
    header->begin_ns = counts.begin_ns;
    header->end_ns = b.ClockNs();
    header->num_rows = counts.num_rows;
    header->attention_leaf = counts.attention_leaf;
    const bool last = counts.replay + 1 >= counts.num_replays;
    a.progress->published = counts.sequence;
    if (last) ++a.progress->requests;
    a.progress->replay = last ? 0 : counts.replay + 1;
  });
  b.PublishToHost(&header->sequence, counts.sequence);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_PUBLISH_BODY_H_
