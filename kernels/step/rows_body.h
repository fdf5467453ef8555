// SPDX-License-Identifier: Apache-2.0
// The rows' part of the plan, block style: which rows run, what state they start from, and where
// each of their tokens goes. plan/plan_body.h calls it, row by row.
#ifndef REPRISE_KERNELS_STEP_ROWS_BODY_H_
#define REPRISE_KERNELS_STEP_ROWS_BODY_H_

#include "kernels/device/block.h"
#include "kernels/step/rows.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Entry e: initial state where the host gives it, features, context before this step. A row that
// has stopped, or that has no room for its tokens and may pause, is left with no token to run.
// keeps: of the blocks that load a row at the same time, the one that writes down what it finds.
// The others read nothing that it writes, and leave out features.
REPRISE_FN RunningRow LoadRow(const StepPlan& p, const ResidentRows& resident, int e, bool keeps) {
  RowEntry entry = p.given_rows[e];
  const uint32_t given_features = entry.flags >> kRowFeatureShift;
  uint32_t context = entry.context_length;
  if ((entry.flags & kRowReset) != 0) {
    if (keeps) {
      resident.context_length[entry.slot] = context;
      resident.temperature[entry.slot] = entry.temperature;
      resident.seed[entry.slot] = entry.seed;
      resident.life[entry.slot] = RowLife{given_features, 0, FinishReason::kNone, 0};
    }
  } else {
    context = resident.context_length[entry.slot];
    const FinishReason finish = resident.life[entry.slot].finish;
    uint32_t features = keeps ? resident.life[entry.slot].features : 0;
    if (keeps && (entry.flags & kRowFeatures) != 0)
      resident.life[entry.slot].features = features = given_features;
    entry.flags = (entry.flags & ((1u << kRowFeatureShift) - 1)) | features << kRowFeatureShift;
    const bool stopped = finish != FinishReason::kNone;
    const bool fits = context + entry.num_tokens <= entry.context_length;
    if (stopped || fits) entry.flags &= ~kRowPauses;
    if (stopped) entry.flags |= kRowStopped;
    if ((entry.flags & (kRowStopped | kRowPauses)) != 0) {
      entry.flags &= ~(kRowSample | kRowPromptLogprobs);
      entry.num_tokens = 0;
    }
  }
  if (keeps) {
    p.entries[e] = entry;
    p.context_before[e] = context;
  }
  return {entry.slot, entry.flags, entry.given_offset, entry.num_tokens, context};
}

// ---- tokens ----

// A given token of a row with penalties enters its history.
REPRISE_FN void NoteGivenToken(Block& b, const ResidentRows& resident, uint32_t slot,
                               uint32_t token, uint32_t position) {
  uint32_t* count = resident.history + static_cast<uint64_t>(slot) * resident.vocab + token;
  const uint32_t prompt_length = resident.sampling[slot].prompt_length;
  if (prompt_length == 0 || position < prompt_length) {
    b.AtomicOr(count, kHistoryPrompt);
  } else {
    b.AtomicAdd(count, 1u);
  }
}

// A query token: what it is, and where it goes.
struct PlannedToken {
  uint32_t id, position, block, offset;
};

// The row's token number `within` of this step.
REPRISE_FN PlannedToken LoadToken(const StepPlan& p, const ResidentRows& resident,
                                  uint32_t block_size, const RunningRow& row, uint32_t within) {
  PlannedToken token;
  const bool given = (row.flags & kRowTokensGiven) != 0;
  if (given || within != 0) {
    token.id = p.given_tokens[row.given_offset + within - (given ? 0u : 1u)];
  } else {
    token.id = resident.last_token[row.slot];
  }
  token.position = row.context_before + within;
  const uint32_t index = token.position / block_size;
  token.block =
      resident.block_table[static_cast<uint64_t>(row.slot) * resident.max_blocks_per_row + index];
  token.offset = token.position - index * block_size;
  return token;
}

// It is token t of the step.
REPRISE_FN void StoreToken(Block& b, const StepPlan& p, const ResidentRows& resident,
                           const RunningRow& row, uint32_t t, const PlannedToken& token) {
  p.token_id[t] = token.id;
  p.token_position[t] = token.position;
  p.token_block[t] = token.block;
  p.token_offset[t] = token.offset;
  constexpr uint32_t kPenalties = kFeaturePenalties << kRowFeatureShift;
  if ((row.flags & kRowTokensGiven) != 0 && (row.flags & kPenalties) != 0)
    NoteGivenToken(b, resident, row.slot, token.id, token.position);
}

// ---- rows that sample, in request order, and which of them report their logits ----

// Tokens: one, or one behind each token of a row with drafts.
REPRISE_FN uint32_t NumSampled(const RunningRow& row) {
  return (row.flags & kRowSample) != 0 ? 1 + NumDrafts(row.flags, row.num_tokens) : 0;
}
REPRISE_FN uint32_t NumReported(const RunningRow& row) {
  constexpr uint32_t kLogits = kFeatureLogits << kRowFeatureShift;
  return NumSampled(row) != 0 && (row.flags & kLogits) != 0 ? 1u : 0u;
}

// place: of its first among all sampled tokens; reported: rows before it that report.
REPRISE_FN void PlanSampled(const StepPlan& p, const RunningRow& row, int e, uint32_t query_start,
                            uint32_t place, uint32_t reported) {
  const uint32_t count = NumSampled(row);
  const uint32_t first = query_start + row.num_tokens - count;
  for (uint32_t i = 0; i < count; ++i) {
    p.sampled_entry[place + i] = static_cast<uint32_t>(e);
    p.sampled_token[place + i] = first + i;
    if (p.logits_place != nullptr) p.logits_place[place + i] = reported;
  }
}

// Given tokens whose likelihood is asked for: all that are followed by a known one.
REPRISE_FN uint32_t NumPromptLogprobs(const RunningRow& row) {
  if ((row.flags & kRowPromptLogprobs) == 0) return 0;
  return row.num_tokens - ((row.flags & kRowNextGiven) != 0 ? 0u : 1u);
}

// Their logits come behind those of the sampled tokens. running: [rows].
REPRISE_FN void PlanPromptLogprobs(Block& b, const StepPlan& p, const RunningRow* running, int rows,
                                   uint32_t num_sampled) {
  b.ExclusiveScan(
      rows, [&](int e) { return NumPromptLogprobs(running[e]); },
      [&](int e, uint32_t first) {
        const RunningRow row = running[e];
        for (uint32_t i = 0; i < NumPromptLogprobs(row); ++i) {
          p.sampled_token[num_sampled + first + i] = p.query_start[e] + i;
          p.prompt_entry[first + i] = static_cast<uint32_t>(e);
          p.prompt_target[first + i] = p.given_tokens[row.given_offset + i + 1];
        }
      });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_ROWS_BODY_H_
