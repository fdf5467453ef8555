// SPDX-License-Identifier: Apache-2.0
// The part of StepValidator that checks which rows run: those with chunks of tokens, and those that
// continue from their last sampled token.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/step/validate.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

absl::Status StepValidator::StageChunks(const StepRequest& request) {
  for (const RowChunk& chunk : request.chunks) {
    REPRISE_RETURN_IF_ERROR(Blame(chunk.row, StageChunk(request, chunk)));
    if (staged_.num_tokens > limits_.max_step_tokens) break;  // Stage reports it
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageChunk(const StepRequest& request, const RowChunk& chunk) {
  StagedRun run{.row = chunk.row,
                .tokens = chunk.tokens,
                .sample = chunk.sample,
                .prompt_logprobs = chunk.prompt_logprobs,
                .next_token = chunk.next_token};
  REPRISE_RETURN_IF_ERROR(Resolve(request, chunk.row, &run.ref));
  const bool added = run.ref.add != kNoSlot;
  run.stopped = !added && rows_.state(run.ref.slot).stopped;
  bool& runs = added ? add_notes_[run.ref.add].runs : Note(run.ref.slot).runs;
  if (runs)
    return absl::InvalidArgumentError(absl::StrCat("chunk: row ", chunk.row, " is named twice"));
  runs = true;
  REPRISE_RETURN_IF_ERROR(CheckTokens(chunk));
  run.num_tokens = static_cast<uint32_t>(chunk.tokens.size());
  run.context_before =
      added ? request.add[run.ref.add].context_length : rows_.state(run.ref.slot).context_length;
  REPRISE_RETURN_IF_ERROR(CheckRoom(request, &run));
  staged_.num_tokens += run.num_tokens;
  staged_.num_given_tokens += run.num_tokens;
  // Decode graphs have no room for the logits of prompt tokens.
  staged_.all_single &= run.num_tokens == 1 && run.num_prompt_logprobs() == 0;
  staged_.runs.push_back(run);
  return absl::OkStatus();
}

absl::Status StepValidator::CheckTokens(const RowChunk& chunk) const {
  if (chunk.tokens.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("chunk: row ", chunk.row, " has 0 tokens; allowed: at least 1"));
  if (chunk.tokens.size() > limits_.max_step_tokens) {
    return absl::OutOfRangeError(absl::StrCat("chunk: row ", chunk.row, " has ",
                                              chunk.tokens.size(), " tokens; allowed: at most ",
                                              limits_.max_step_tokens));
  }
  for (const uint32_t token : chunk.tokens) {
    if (token >= limits_.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("chunk: row ", chunk.row, ": token id ", token,
                                                     "; allowed: less than ", limits_.vocab_size,
                                                     ", the vocabulary"));
    }
  }
  if (chunk.next_token && !chunk.prompt_logprobs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunk: row ", chunk.row,
        ": next_token is set without prompt_logprobs; allowed: with it alone, which it is for"));
  }
  if (chunk.next_token && *chunk.next_token >= limits_.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("chunk: row ", chunk.row, ": next_token is ",
                                                   *chunk.next_token, "; allowed: less than ",
                                                   limits_.vocab_size, ", the vocabulary"));
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageContinue(const StepRequest& request, uint32_t row, uint32_t slot) {
  StagedRun run{.ref = {.slot = slot}, .row = row, .sample = true, .num_tokens = 1};
  run.context_before = rows_.state(slot).context_length;
  run.stopped = rows_.state(slot).stopped;
  REPRISE_RETURN_IF_ERROR(CheckRoom(request, &run));
  Note(slot).runs = true;
  ++staged_.num_tokens;
  staged_.runs.push_back(run);
  return absl::OkStatus();
}

absl::Status StepValidator::StageContinues(const StepRequest& request, const RowList& list) {
  if (request.continue_all) return StageContinueAll(request, list);
  for (const uint32_t row : request.continue_rows)
    REPRISE_RETURN_IF_ERROR(Blame(row, StageContinueRow(request, row)));
  return absl::OkStatus();
}

absl::Status StepValidator::StageContinueAll(const StepRequest& request, const RowList& list) {
  if (!request.continue_rows.empty())
    return absl::InvalidArgumentError(absl::StrCat("continue_all is set and continue_rows names ",
                                                   request.continue_rows.size(),
                                                   " rows; allowed: one of the two"));
  for (uint32_t slot = list.first; slot != kNoSlot; slot = rows_.state(slot).next) {
    const SlotNote& note = Note(slot);
    const RowState& state = rows_.state(slot);
    if (note.dropped || note.runs || !state.can_continue || IsRefused(state.row)) continue;
    if (state.stopped) {
      skips_stopped_ = true;
      continue;
    }
    REPRISE_RETURN_IF_ERROR(Blame(state.row, StageContinue(request, state.row, slot)));
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageContinueRow(const StepRequest& request, uint32_t row) {
  RowRef ref;
  REPRISE_RETURN_IF_ERROR(Resolve(request, row, &ref));
  const bool runs = ref.add != kNoSlot ? add_notes_[ref.add].runs : Note(ref.slot).runs;
  if (runs)
    return absl::InvalidArgumentError(
        absl::StrCat("continue: row ", row, " is named twice, or by a chunk too"));
  const bool can =
      ref.add == kNoSlot && (rows_.state(ref.slot).can_continue || rows_.state(ref.slot).stopped);
  if (!can) {
    return absl::FailedPreconditionError(
        absl::StrCat("continue: row ", row,
                     " has no sampled token to go on from; allowed: rows whose last run sampled"));
  }
  return StageContinue(request, row, ref.slot);
}

}  // namespace reprise::engine
