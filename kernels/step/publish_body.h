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

// Whether the row goes on behind the token that it has sampled at the place of draft `i`.
REPRISE_FN bool AcceptsDraft(const StepPlan& p, uint32_t e, uint32_t i, uint32_t token) {
  return p.token_id[p.query_start[e] + 1 + i] == token;
}

// The row of sampled token `s`, if that is its first, moves on: by its token, or by those that
// agree with its drafts and one more. A draft that is not what the row samples there ends the
// agreement, and what was sampled in its place is the row's token, so that the row has the tokens
// that it would have without drafts. out: by sampled token.
REPRISE_FN void AdvanceSampled(Block& b, const PublishArgs& a, SampledToken* out, int s) {
  const uint32_t e = a.plan.sampled_entry[s];
  if (s != 0 && a.plan.sampled_entry[s - 1] == e) return;
  const RowEntry entry = a.plan.entries[e];
  const uint32_t features = entry.flags >> kRowFeatureShift;
  const uint32_t num_drafts = NumDrafts(entry.flags, entry.num_tokens);
  RowLife& life = a.rows.life[entry.slot];
  uint32_t generated = life.generated;
  uint32_t accepted = 0;
  SampledToken sampled;
  FinishReason finish;
  for (;; ++accepted, ++s) {
    const uint32_t token = a.sampled_token_id[s];
    sampled = {token == kNoCandidate ? 0 : token, a.sampled_logprob[s]};
    finish = FinishOf(a.rows, entry, token, ++generated);
    if ((features & kFeaturePenalties) != 0)
      b.AtomicAdd(a.rows.history + static_cast<uint64_t>(entry.slot) * a.rows.vocab + sampled.token,
                  1u);
    if (num_drafts == 0) break;
    out[s] = sampled;
    if (accepted == num_drafts || finish != FinishReason::kNone ||
        !AcceptsDraft(a.plan, e, accepted, token))
      break;
  }
  life.generated = generated;
  life.finish = finish;
  a.rows.last_token[entry.slot] = sampled.token;
  uint32_t flags = kResultSampled | static_cast<uint32_t>(finish) << kResultFinishShift |
                   accepted << kResultAcceptedShift;
  if ((features & kFeatureLogprobs) != 0) flags |= kResultLogprobs;
  if ((features & kFeatureLogits) != 0) flags |= kResultLogits;
  RowResult& result = a.staging[e];
  result.token = sampled.token;
  result.logprob = sampled.logprob;
  result.flags = flags;
  if (num_drafts == 0) return;
  // What the drafts behind left in the KV cache lies beyond the context, and is overwritten.
  result.context_length -= num_drafts - accepted;
  a.rows.context_length[entry.slot] = result.context_length;
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
  auto* sampled = reinterpret_cast<SampledToken*>(ring_entry + a.sampled_offset);
  b.For(static_cast<int>(counts.num_sampled), [&](int s) { AdvanceSampled(b, a, sampled, s); });
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
