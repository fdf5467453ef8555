// SPDX-License-Identifier: Apache-2.0
// The part of StepValidator that checks which rows run: those with chunks of tokens, and those that
// continue from their last sampled token.
#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/step/validate.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

absl::Status CheckTokenIds(const char* entry, uint32_t row, std::span<const uint32_t> tokens,
                           uint32_t vocab_size) {
  for (const uint32_t token : tokens) {
    if (token < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(entry, ": row ", row, ": token id ", token,
                                                   "; allowed: less than ", vocab_size,
                                                   ", the vocabulary"));
  }
  return absl::OkStatus();
}

}  // namespace

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
  REPRISE_RETURN_IF_ERROR(CheckTokenIds("chunk", chunk.row, chunk.tokens, limits_.vocab_size));
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

absl::Status StepValidator::StageDrafts(const StepRequest& request) {
  for (size_t i = 0; i < request.drafts.size(); ++i)
    REPRISE_RETURN_IF_ERROR(Blame(request.drafts[i].row, StageDraft(request, i)));
  return absl::OkStatus();
}

absl::Status StepValidator::StageDraft(const StepRequest& request, size_t index) {
  const RowDraft& draft = request.drafts[index];
  RowRef ref;
  REPRISE_RETURN_IF_ERROR(Resolve(request, draft.row, &ref));
  if (ref.add != kNoSlot) {
    return absl::FailedPreconditionError(absl::StrCat(
        "draft: row ", draft.row, " is added by this step; allowed: rows that continue in it"));
  }
  SlotNote& note = Note(ref.slot);
  if (note.draft != kNoSlot)
    return absl::InvalidArgumentError(absl::StrCat("draft: row ", draft.row, " is named twice"));
  note.draft = static_cast<uint32_t>(index);
  if (draft.tokens.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("draft: row ", draft.row, " has 0 tokens; allowed: at least 1"));
  if (limits_.row_state_bytes != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("draft: row ", draft.row, " has ", draft.tokens.size(),
                     " tokens; allowed: none, because rows of this model carry state, from which a "
                     "token that is "
                     "not accepted cannot be taken back"));
  }
  if (draft.tokens.size() > limits_.max_draft_tokens) {
    return absl::OutOfRangeError(absl::StrCat("draft: row ", draft.row, " has ",
                                              draft.tokens.size(), " tokens; allowed: at most ",
                                              limits_.max_draft_tokens, ", max_draft_tokens"));
  }
  return CheckTokenIds("draft", draft.row, draft.tokens, limits_.vocab_size);
}

absl::Status StepValidator::CheckDraftOf(const StepRequest& request, const StagedRun& run) const {
  if (run.drafts.empty()) return absl::OkStatus();
  if (request.num_steps > 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_steps is ", request.num_steps, " and row ",
                                                   run.row,
                                                   " has drafts; allowed: num_steps of 1"));
  }
  if ((rows_.state(run.ref.slot).features & kernels::kFeatureLogits) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("draft: row ", run.row,
                     " returns its logits; allowed: rows that do not, because the caller of one "
                     "that does chooses its next token"));
  }
  return absl::OkStatus();
}

absl::Status StepValidator::CheckSettled(const StepRequest& request, const StagedRun& run) const {
  if (request.num_steps == 1 || !run.goes_on() || run.ref.slot == kNoSlot) return absl::OkStatus();
  if (rows_.state(run.ref.slot).num_drafts_in_flight == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("num_steps is ", request.num_steps, " and row ", run.row,
                   " has drafts in a step that was not waited for; allowed: num_steps of 1 until "
                   "then, because room for later steps depends on how many are accepted"));
}

absl::Status StepValidator::CheckDrafts(const StepRequest& request) {
  for (const RowDraft& draft : request.drafts) {
    const uint32_t slot = rows_.Find(request.session, draft.row);
    const SlotNote& note = Note(slot);
    const bool left_out = request.continue_all && rows_.state(slot).stopped && !note.runs;
    if (note.continues || left_out) continue;
    const absl::Status error = absl::FailedPreconditionError(
        absl::StrCat("draft: row ", draft.row,
                     " does not continue in this step; allowed: rows that continue_rows names or "
                     "continue_all finds"));
    REPRISE_RETURN_IF_ERROR(Blame(draft.row, error));
  }
  if (staged_.num_draft_tokens <= limits_.max_draft_tokens) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("drafts: ", staged_.num_draft_tokens,
                                            " tokens in one step; allowed: at most ",
                                            limits_.max_draft_tokens, ", max_draft_tokens"));
}

bool StepValidator::StageContinueAtOnce(uint32_t row, uint32_t slot) {
  const RowState& state = rows_.state(slot);
  const auto room = static_cast<uint32_t>(std::min<uint64_t>(
      uint64_t{state.table_length} * limits_.block_size, limits_.max_context_length));
  // What drafts in flight leave open is StageContinue's, too.
  if (state.context_length >= room || state.num_drafts_in_flight != 0) return false;
  const uint32_t block = rows_.table(slot)[state.context_length / limits_.block_size];
  if (ledger_.rows_naming(block) > 1 || ledger_.is_shared(block)) return false;
  staged_.runs.push_back({.ref = {.slot = slot},
                          .row = row,
                          .sample = true,
                          .num_tokens = 1,
                          .context_before = state.context_length,
                          .room = room});
  ++staged_.num_tokens;
  return true;
}

absl::Status StepValidator::StageContinue(const StepRequest& request, uint32_t row, uint32_t slot) {
  StagedRun run{.ref = {.slot = slot}, .row = row, .sample = true};
  run.context_before = rows_.state(slot).context_length;
  run.stopped = rows_.state(slot).stopped;
  const uint32_t draft = Note(slot).draft;
  if (draft != kNoSlot && !run.stopped) run.drafts = request.drafts[draft].tokens;
  run.num_tokens = 1 + static_cast<uint32_t>(run.drafts.size());
  REPRISE_RETURN_IF_ERROR(CheckDraftOf(request, run));
  REPRISE_RETURN_IF_ERROR(CheckRoom(request, &run));
  Note(slot).runs = Note(slot).continues = true;
  staged_.num_tokens += run.num_tokens;
  staged_.num_draft_tokens += run.drafts.size();
  staged_.all_single &= run.drafts.empty();
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
    SlotNote& note = Note(slot);
    const RowState& state = rows_.state(slot);
    if (note.dropped || note.runs || !state.can_continue || IsRefused(state.row)) continue;
    if (state.stopped) {
      skips_stopped_ = true;
      continue;
    }
    if (request.num_steps == 1 && note.append == kNoSlot && note.draft == kNoSlot &&
        StageContinueAtOnce(state.row, slot)) {
      note.runs = note.continues = true;
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
