// SPDX-License-Identifier: Apache-2.0
#include "engine/step/validate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

StepValidator::StepValidator(const kernels::StepLimits& limits,
                             std::span<const uint32_t> eos_token_ids, RowTable& rows,
                             BlockLedger& ledger)
    : limits_(limits),
      eos_token_ids_(eos_token_ids.begin(), eos_token_ids.end()),
      rows_(rows),
      ledger_(ledger),
      slot_notes_(rows.max_rows()),
      block_stamps_(ledger.num_blocks(), 0),
      token_stamps_(limits.vocab_size, 0) {
  staged_.runs.reserve(rows.max_rows());
  staged_.drop_slots.reserve(rows.max_rows());
  staged_.append_targets.reserve(rows.max_rows());
  staged_.mask_slots.reserve(rows.max_rows());
  staged_.prefix_rows.reserve(rows.max_rows());
  add_notes_.reserve(rows.max_rows());
  groups_.reserve(rows.max_rows());
  staying_.reserve(rows.max_rows());
  counts_.reserve(4096);
}

absl::Status StepValidator::Validate(const StepRequest& request, const RowList& list,
                                     uint32_t max_rows) {
  counts_.clear();
  absl::Status status;
  try {
    status = Stage(request, list);
    if (status.ok()) status = CheckRowsOfSession(request, list, max_rows);
  } catch (...) {  // out of memory: a refusal like any other leaves nothing behind
    UndoCounts();
    throw;
  }
  if (!status.ok()) UndoCounts();
  return status;
}

absl::Status StepValidator::CheckRowsOfSession(const StepRequest& request, const RowList& list,
                                               uint32_t max_rows) const {
  const size_t rows = list.count - request.drop.size() + request.add.size();
  if (max_rows == 0 || request.add.empty() || rows <= max_rows) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the step adds ", request.add.size(), " rows; this session would have ", rows,
                   " of the ", max_rows, " that a session may have"));
}

void StepValidator::Abandon() { UndoCounts(); }

absl::Status StepValidator::Stage(const StepRequest& request, const RowList& list) {
  ++stamp_;
  staged_.runs.clear();
  staged_.drop_slots.clear();
  staged_.append_targets.clear();
  staged_.mask_slots.clear();
  staged_.prefix_rows.clear();
  sampling_words_ = 0;
  skips_stopped_ = false;
  staged_.num_tokens = 0;
  staged_.num_given_tokens = 0;
  staged_.all_single = true;
  add_notes_.assign(request.add.size(), AddNote{});
  REPRISE_RETURN_IF_ERROR(StageDrops(request));
  REPRISE_RETURN_IF_ERROR(StageAdds(request));
  REPRISE_RETURN_IF_ERROR(StageAppends(request));
  REPRISE_RETURN_IF_ERROR(StageMasks(request));
  REPRISE_RETURN_IF_ERROR(StagePrefixes(request, list));
  REPRISE_RETURN_IF_ERROR(StageChunks(request));
  REPRISE_RETURN_IF_ERROR(StageContinues(request, list));
  // A continue_all that only finds rows that have stopped may have been sent before that was known.
  if (staged_.runs.empty() && !skips_stopped_ && request.drop.empty() && request.add.empty() &&
      request.append.empty() && request.masks.empty() && request.prefixes.empty()) {
    return absl::InvalidArgumentError(
        "the step names no row; allowed: at least one drop, add, append, mask, prefix, chunk or "
        "continue");
  }
  if (staged_.num_tokens > limits_.max_step_tokens) {
    return absl::OutOfRangeError(absl::StrCat("the step has ", staged_.num_tokens,
                                              " query tokens; allowed: at most ",
                                              limits_.max_step_tokens, ", the largest bucket"));
  }
  for (const RowAdd& add : request.add) REPRISE_RETURN_IF_ERROR(CheckContextWritten(add));
  return CheckSamplingOfStep(request);
}

absl::Status StepValidator::CheckSamplingOfStep(const StepRequest& request) const {
  const uint64_t sampling_bytes = sampling_words_ * sizeof(uint32_t);
  if (sampling_bytes > limits_.max_sampling_bytes) {
    return absl::OutOfRangeError(absl::StrCat(
        "sampling parameters of the step's rows take ", sampling_bytes, " bytes; allowed: at most ",
        limits_.max_sampling_bytes,
        " in one step (logit_bias, allowed_tokens and history count); spread them over several"));
  }
  uint64_t logit_rows = 0, prompt_logprobs = 0;
  for (const StagedRun& run : staged_.runs) {
    const bool added = run.ref.add != kNoSlot;
    const bool returns = added
                             ? request.add[run.ref.add].sampling.return_logits
                             : (rows_.state(run.ref.slot).features & kernels::kFeatureLogits) != 0;
    if (run.sample && !run.stopped && returns) ++logit_rows;
    if (!run.stopped) prompt_logprobs += run.num_prompt_logprobs();
  }
  if (logit_rows > limits_.max_logit_rows) {
    return absl::OutOfRangeError(absl::StrCat("return_logits: ", logit_rows,
                                              " rows of the step return their logits; allowed: at "
                                              "most ",
                                              limits_.max_logit_rows, ", max_logit_rows"));
  }
  if (prompt_logprobs > limits_.max_prompt_logprobs) {
    return absl::OutOfRangeError(absl::StrCat(
        "prompt_logprobs: asked for ", prompt_logprobs, " tokens in one step; allowed: at most ",
        limits_.max_prompt_logprobs, ", max_prompt_logprobs"));
  }
  return absl::OkStatus();
}

StepValidator::SlotNote& StepValidator::Note(uint32_t slot) {
  SlotNote& note = slot_notes_[slot];
  if (note.stamp != stamp_) {
    note = SlotNote{};
    note.stamp = stamp_;
  }
  return note;
}

void StepValidator::CountTable(uint32_t block, int delta) {
  counts_.push_back({block, delta});  // first: it may throw
  delta > 0 ? ledger_.AddRow(block) : ledger_.RemoveRow(block);
}

void StepValidator::UndoCounts() {
  for (auto it = counts_.rbegin(); it != counts_.rend(); ++it)
    it->delta > 0 ? ledger_.RemoveRow(it->block) : ledger_.AddRow(it->block);
  counts_.clear();
}

absl::Status StepValidator::StageDrops(const StepRequest& request) {
  for (const uint32_t row : request.drop) {
    const uint32_t slot = rows_.Find(request.session, row);
    if (slot == kNoSlot)
      return absl::NotFoundError(absl::StrCat("drop: row ", row, " is not resident"));
    SlotNote& note = Note(slot);
    if (note.dropped)
      return absl::InvalidArgumentError(absl::StrCat("drop: row ", row, " is named twice"));
    note.dropped = true;
    for (const uint32_t block : rows_.table(slot).first(rows_.state(slot).table_length))
      CountTable(block, -1);
    staged_.drop_slots.push_back(slot);
  }
  return absl::OkStatus();
}

absl::Status StepValidator::CheckHistory(const RowAdd& add) const {
  if (!HasPenalties(add.sampling)) return absl::OkStatus();
  if (add.history.size() != add.context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "row ", add.row, ": history has ", add.history.size(), " token ids; allowed: ",
        add.context_length, ", one per token of context_length, for a row with penalties"));
  }
  for (const uint32_t token : add.history) {
    if (token >= limits_.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("row ", add.row, ": history: token id ", token,
                                                     "; allowed: less than ", limits_.vocab_size,
                                                     ", the vocabulary"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepValidator::CheckContextWritten(const RowAdd& add) const {
  for (uint32_t begin = 0; begin < add.context_length; begin += limits_.block_size) {
    const uint32_t block = add.blocks[begin / limits_.block_size];
    const uint32_t claimed = std::min(limits_.block_size, add.context_length - begin);
    if (claimed > ledger_.num_written(block)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "row ", add.row, ": context_length is ", add.context_length, ", which counts on ",
          claimed, " tokens in block ", block, "; this session has written ",
          ledger_.num_written(block), " there since it was given the block"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepValidator::CheckNewBlocks(const StepRequest& request, uint32_t row,
                                           std::span<const uint32_t> before,
                                           std::span<const uint32_t> added) {
  if (before.size() + added.size() > rows_.max_blocks_per_row()) {
    return absl::OutOfRangeError(
        absl::StrCat("row ", row, ": block table of ", before.size() + added.size(),
                     " blocks; allowed: at most ", rows_.max_blocks_per_row()));
  }
  bool shared = false;
  for (const uint32_t block : added) {
    const absl::Status held = ledger_.CheckHeld(request.session, block);
    if (!held.ok())
      return absl::Status(held.code(), absl::StrCat("row ", row, ": ", held.message()));
    shared |= ledger_.rows_naming(block) > 0;
  }
  ++table_stamp_;
  // A block that no table names cannot be in this row's own; the walk over `before` is for shared
  // ones only.
  if (shared)
    for (const uint32_t block : before) block_stamps_[block] = table_stamp_;
  for (const uint32_t block : added) {
    if (block_stamps_[block] == table_stamp_) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, ": block ", block, " is twice in its table"));
    }
    block_stamps_[block] = table_stamp_;
  }
  for (const uint32_t block : added) CountTable(block, +1);
  return absl::OkStatus();
}

absl::Status StepValidator::StageAdds(const StepRequest& request) {
  const size_t available = rows_.num_free() + request.drop.size();
  if (request.add.size() > available) {
    return absl::ResourceExhaustedError(absl::StrCat("the step adds ", request.add.size(),
                                                     " rows; ", available, " of max_rows ",
                                                     rows_.max_rows(), " are free"));
  }
  for (size_t i = 0; i < request.add.size(); ++i) {
    const RowAdd& add = request.add[i];
    const uint32_t slot = rows_.Find(request.session, add.row);
    if (slot != kNoSlot && !Note(slot).dropped)
      return absl::AlreadyExistsError(absl::StrCat("add: row ", add.row, " is resident already"));
    for (size_t j = 0; j < i; ++j) {
      if (request.add[j].row == add.row)
        return absl::InvalidArgumentError(absl::StrCat("add: row ", add.row, " is named twice"));
    }
    REPRISE_RETURN_IF_ERROR(CheckSamplingParams(add.row, add.sampling, limits_, eos_token_ids_,
                                                ++bias_stamp_, token_stamps_));
    REPRISE_RETURN_IF_ERROR(CheckHistory(add));
    sampling_words_ += SamplingWordsOf(add, limits_.vocab_size, eos_token_ids_);
    REPRISE_RETURN_IF_ERROR(CheckNewBlocks(request, add.row, {}, add.blocks));
    const uint64_t room = static_cast<uint64_t>(add.blocks.size()) * limits_.block_size;
    if (add.context_length > room || add.context_length >= limits_.max_context_length) {
      return absl::OutOfRangeError(absl::StrCat(
          "row ", add.row, ": context_length is ", add.context_length, "; allowed: at most ", room,
          " (its blocks) and less than ", limits_.max_context_length, " (the limit)"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepValidator::Resolve(const StepRequest& request, uint32_t row, RowRef* ref) {
  *ref = RowRef{};
  for (size_t i = 0; i < request.add.size(); ++i) {
    if (request.add[i].row == row) {
      ref->add = static_cast<uint32_t>(i);
      return absl::OkStatus();
    }
  }
  ref->slot = rows_.Find(request.session, row);
  if (ref->slot == kNoSlot || Note(ref->slot).dropped)
    return absl::NotFoundError(absl::StrCat("row ", row, " is not resident; add it first"));
  return absl::OkStatus();
}

absl::Status StepValidator::StageAppends(const StepRequest& request) {
  for (size_t i = 0; i < request.append.size(); ++i) {
    const RowAppend& append = request.append[i];
    RowRef ref;
    REPRISE_RETURN_IF_ERROR(Resolve(request, append.row, &ref));
    uint32_t& noted = ref.add != kNoSlot ? add_notes_[ref.add].append : Note(ref.slot).append;
    if (noted != kNoSlot)
      return absl::InvalidArgumentError(
          absl::StrCat("append: row ", append.row, " is named twice"));
    if (append.blocks.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("append: row ", append.row, " gets 0 blocks; allowed: at least 1"));
    const std::span<const uint32_t> before =
        ref.add != kNoSlot ? request.add[ref.add].blocks
                           : rows_.table(ref.slot).first(rows_.state(ref.slot).table_length);
    REPRISE_RETURN_IF_ERROR(CheckNewBlocks(request, append.row, before, append.blocks));
    noted = static_cast<uint32_t>(i);
    staged_.append_targets.push_back(ref);
  }
  return absl::OkStatus();
}

uint32_t StepValidator::TableLength(const StepRequest& request, const RowRef& ref) {
  const bool added = ref.add != kNoSlot;
  const size_t before =
      added ? request.add[ref.add].blocks.size() : rows_.state(ref.slot).table_length;
  const uint32_t append = added ? add_notes_[ref.add].append : Note(ref.slot).append;
  return static_cast<uint32_t>(before +
                               (append == kNoSlot ? 0 : request.append[append].blocks.size()));
}

uint32_t StepValidator::BlockAt(const StepRequest& request, const RowRef& ref, uint32_t index) {
  const bool added = ref.add != kNoSlot;
  const std::span<const uint32_t> before =
      added ? request.add[ref.add].blocks
            : rows_.table(ref.slot).first(rows_.state(ref.slot).table_length);
  if (index < before.size()) return before[index];
  const uint32_t append = added ? add_notes_[ref.add].append : Note(ref.slot).append;
  return request.append[append].blocks[index - before.size()];
}

absl::Status StepValidator::CheckRoom(const StepRequest& request, const StagedRun& run) {
  if (run.stopped) return absl::OkStatus();
  const uint64_t end = static_cast<uint64_t>(run.context_before) + run.num_tokens;
  if (end > limits_.max_context_length) {
    return absl::OutOfRangeError(absl::StrCat("row ", run.row, ": context of ", end,
                                              " tokens; allowed: at most ",
                                              limits_.max_context_length));
  }
  const uint64_t room = static_cast<uint64_t>(TableLength(request, run.ref)) * limits_.block_size;
  if (end > room) {
    return absl::OutOfRangeError(absl::StrCat("row ", run.row, ": context of ", end,
                                              " tokens; its block table has room for ", room));
  }
  const uint32_t first = run.context_before / limits_.block_size;
  const auto last = static_cast<uint32_t>((end - 1) / limits_.block_size);
  for (uint32_t i = first; i <= last; ++i) {
    const uint32_t block = BlockAt(request, run.ref, i);
    if (ledger_.rows_naming(block) > 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("row ", run.row, ": appends to block ", block, ", which ",
                       ledger_.rows_naming(block), " rows share; allowed: blocks of one row"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageMasks(const StepRequest& request) {
  for (const RowMask& mask : request.masks) {
    RowRef ref;
    REPRISE_RETURN_IF_ERROR(Resolve(request, mask.row, &ref));
    if (ref.add != kNoSlot) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mask: row ", mask.row, " is added by this step; allowed: allowed_tokens of its add"));
    }
    SlotNote& note = Note(ref.slot);
    if (note.masked)
      return absl::InvalidArgumentError(absl::StrCat("mask: row ", mask.row, " is named twice"));
    note.masked = true;
    REPRISE_RETURN_IF_ERROR(CheckAllowedTokens(mask.row, mask.allowed_tokens, limits_));
    if (!mask.allowed_tokens.empty())
      sampling_words_ += SamplingWords(MaskWords(limits_.vocab_size));
    staged_.mask_slots.push_back(ref.slot);
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageChunks(const StepRequest& request) {
  for (const RowChunk& chunk : request.chunks) {
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
        return absl::InvalidArgumentError(absl::StrCat("chunk: row ", chunk.row, ": token id ",
                                                       token, "; allowed: less than ",
                                                       limits_.vocab_size, ", the vocabulary"));
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
    run.num_tokens = static_cast<uint32_t>(chunk.tokens.size());
    run.context_before =
        added ? request.add[run.ref.add].context_length : rows_.state(run.ref.slot).context_length;
    REPRISE_RETURN_IF_ERROR(CheckRoom(request, run));
    staged_.num_tokens += run.num_tokens;
    staged_.num_given_tokens += run.num_tokens;
    // Decode graphs have no room for the logits of prompt tokens.
    staged_.all_single &= run.num_tokens == 1 && run.num_prompt_logprobs() == 0;
    staged_.runs.push_back(run);
    if (staged_.num_tokens > limits_.max_step_tokens) break;  // Stage reports it
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageContinue(const StepRequest& request, uint32_t row, uint32_t slot) {
  StagedRun run{.ref = {.slot = slot}, .row = row, .sample = true, .num_tokens = 1};
  run.context_before = rows_.state(slot).context_length;
  run.stopped = rows_.state(slot).stopped;
  REPRISE_RETURN_IF_ERROR(CheckRoom(request, run));
  Note(slot).runs = true;
  ++staged_.num_tokens;
  staged_.runs.push_back(run);
  return absl::OkStatus();
}

absl::Status StepValidator::StageContinues(const StepRequest& request, const RowList& list) {
  if (request.continue_all) {
    if (!request.continue_rows.empty())
      return absl::InvalidArgumentError(absl::StrCat("continue_all is set and continue_rows names ",
                                                     request.continue_rows.size(),
                                                     " rows; allowed: one of the two"));
    for (uint32_t slot = list.first; slot != kNoSlot; slot = rows_.state(slot).next) {
      const SlotNote& note = Note(slot);
      const RowState& state = rows_.state(slot);
      if (note.dropped || note.runs || !state.can_continue) continue;
      if (state.stopped) {
        skips_stopped_ = true;
        continue;
      }
      REPRISE_RETURN_IF_ERROR(StageContinue(request, rows_.state(slot).row, slot));
    }
    return absl::OkStatus();
  }
  for (const uint32_t row : request.continue_rows) {
    RowRef ref;
    REPRISE_RETURN_IF_ERROR(Resolve(request, row, &ref));
    const bool runs = ref.add != kNoSlot ? add_notes_[ref.add].runs : Note(ref.slot).runs;
    if (runs)
      return absl::InvalidArgumentError(
          absl::StrCat("continue: row ", row, " is named twice, or by a chunk too"));
    const bool can =
        ref.add == kNoSlot && (rows_.state(ref.slot).can_continue || rows_.state(ref.slot).stopped);
    if (!can) {
      return absl::FailedPreconditionError(absl::StrCat(
          "continue: row ", row,
          " has no sampled token to go on from; allowed: rows whose last run sampled"));
    }
    REPRISE_RETURN_IF_ERROR(StageContinue(request, row, ref.slot));
  }
  return absl::OkStatus();
}

}  // namespace reprise::engine
