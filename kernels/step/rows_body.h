// SPDX-License-Identifier: Apache-2.0
// The rows' part of the plan, block style: which rows run, what state they start from, and where
// each of their tokens goes. plan/plan_body.h calls it.
#ifndef REPRISE_KERNELS_STEP_ROWS_BODY_H_
#define REPRISE_KERNELS_STEP_ROWS_BODY_H_

#include "kernels/device/block.h"
#include "kernels/step/rows.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// The largest e with start[e] <= t, for ascending start[0..n] with start[0] == 0 and t < start[n].
REPRISE_FN uint32_t OwnerOf(const uint32_t* start, uint32_t n, uint32_t t) {
  uint32_t lo = 0, hi = n;
  while (hi - lo > 1) {
    const uint32_t mid = (lo + hi) / 2;
    if (start[mid] <= t) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  return lo;
}

// Rows: initial state where the host gives it, features, context before this step. A row that has
// stopped is left with no token to run.
REPRISE_FN void PlanRows(Block& b, const StepPlan& p, const ResidentRows& resident, int rows) {
  b.For(rows, [&](int e) {
    RowEntry entry = p.entries[e];
    const uint32_t given_features = entry.flags >> kRowFeatureShift;
    RowLife life{given_features, 0, FinishReason::kNone, 0};
    if ((entry.flags & kRowReset) != 0) {
      resident.context_length[entry.slot] = entry.context_length;
      resident.temperature[entry.slot] = entry.temperature;
      resident.seed[entry.slot] = entry.seed;
      resident.life[entry.slot] = life;
      p.context_before[e] = entry.context_length;
      return;
    }
    p.context_before[e] = resident.context_length[entry.slot];
    life = resident.life[entry.slot];
    if ((entry.flags & kRowFeatures) != 0) {
      life.features = given_features;
      resident.life[entry.slot] = life;
    }
    entry.flags = (entry.flags & ((1u << kRowFeatureShift) - 1)) | life.features
                                                                       << kRowFeatureShift;
    if (life.finish != FinishReason::kNone) {
      entry.flags = (entry.flags & ~(kRowSample | kRowPromptLogprobs)) | kRowStopped;
      entry.num_tokens = 0;
    }
    p.entries[e] = entry;
  });
}

// A given token of a row with penalties enters its history.
REPRISE_FN void NoteGivenToken(Block& b, const ResidentRows& resident, const RowEntry& entry,
                               uint32_t token, uint32_t position) {
  uint32_t* count = resident.history + static_cast<uint64_t>(entry.slot) * resident.vocab + token;
  const uint32_t prompt_length = resident.sampling[entry.slot].prompt_length;
  if (prompt_length == 0 || position < prompt_length) {
    b.AtomicOr(count, kHistoryPrompt);
  } else {
    b.AtomicAdd(count, 1u);
  }
}

// Tokens: id, position, KV slot.
REPRISE_FN void PlanTokens(Block& b, const StepPlan& p, const ResidentRows& resident,
                           uint32_t block_size, uint32_t num_rows, uint32_t num_tokens) {
  b.For(static_cast<int>(num_tokens), [&](int t) {
    const uint32_t e = OwnerOf(p.query_start, num_rows, static_cast<uint32_t>(t));
    const RowEntry entry = p.entries[e];
    const uint32_t within = static_cast<uint32_t>(t) - p.query_start[e];
    const uint32_t position = p.context_before[e] + within;
    const bool given = (entry.flags & kRowTokensGiven) != 0;
    const uint32_t token =
        given ? p.given_tokens[entry.given_offset + within] : resident.last_token[entry.slot];
    p.token_id[t] = token;
    p.token_position[t] = position;
    const uint32_t index = position / block_size;
    p.token_block[t] =
        resident
            .block_table[static_cast<uint64_t>(entry.slot) * resident.max_blocks_per_row + index];
    p.token_offset[t] = position - index * block_size;
    if (given && (entry.flags & (kFeaturePenalties << kRowFeatureShift)) != 0)
      NoteGivenToken(b, resident, entry, token, position);
  });
}

// Rows that sample, in request order, and which of them report their logits.
REPRISE_FN uint32_t PlanSampled(Block& b, const StepPlan& p, int rows) {
  const uint32_t num_sampled = b.ExclusiveScan(
      rows, [&](int e) { return (p.entries[e].flags & kRowSample) != 0 ? 1u : 0u; },
      [&](int e, uint32_t s) {
        if ((p.entries[e].flags & kRowSample) == 0) return;
        p.sampled_entry[s] = static_cast<uint32_t>(e);
        p.sampled_token[s] = p.query_start[e] + p.entries[e].num_tokens - 1;
      });
  if (p.logits_place == nullptr) return num_sampled;
  constexpr uint32_t kLogits = kFeatureLogits << kRowFeatureShift;
  b.ExclusiveScan(
      static_cast<int>(num_sampled),
      [&](int s) { return (p.entries[p.sampled_entry[s]].flags & kLogits) != 0 ? 1u : 0u; },
      [&](int s, uint32_t place) { p.logits_place[s] = place; });
  return num_sampled;
}

// Given tokens of `entry` whose likelihood is asked for: all that are followed by a known one.
REPRISE_FN uint32_t NumPromptLogprobs(const RowEntry& entry) {
  if ((entry.flags & kRowPromptLogprobs) == 0) return 0;
  return entry.num_tokens - ((entry.flags & kRowNextGiven) != 0 ? 0u : 1u);
}

// Their logits come behind those of the sampled rows.
REPRISE_FN uint32_t PlanPromptLogprobs(Block& b, const StepPlan& p, int rows,
                                       uint32_t num_sampled) {
  return b.ExclusiveScan(
      rows, [&](int e) { return NumPromptLogprobs(p.entries[e]); },
      [&](int e, uint32_t first) {
        const RowEntry entry = p.entries[e];
        for (uint32_t i = 0; i < NumPromptLogprobs(entry); ++i) {
          p.sampled_token[num_sampled + first + i] = p.query_start[e] + i;
          p.prompt_entry[first + i] = static_cast<uint32_t>(e);
          p.prompt_target[first + i] = p.given_tokens[entry.given_offset + i + 1];
        }
      });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_ROWS_BODY_H_
