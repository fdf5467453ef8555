// SPDX-License-Identifier: Apache-2.0
#include "engine/step/validate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

StepValidator::StepValidator(const kernels::StepLimits& limits,
                             std::span<const uint32_t> eos_token_ids, RowTable& rows,
                             BlockLedger& ledger, SwapTable* states)
    : limits_(limits),
      eos_token_ids_(eos_token_ids.begin(), eos_token_ids.end()),
      rows_(rows),
      ledger_(ledger),
      states_(states),
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
  replaced_.reserve(rows.max_rows());
}

absl::Status StepValidator::Validate(const StepRequest& request, const RowList& list,
                                     uint32_t max_rows) {
  refused_.clear();
  refused_ids_.clear();
  blamed_.clear();
  isolates_ = request.isolate_bad_rows;
  if (isolates_) return ValidateIsolated(request, list, max_rows);
  return Attempt(request, list, max_rows);
}

absl::Status StepValidator::Attempt(const StepRequest& request, const RowList& list,
                                    uint32_t max_rows) {
  counts_.clear();
  replaced_.clear();
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
  staged_.request = &request;
  staged_.runs.clear();
  staged_.drop_slots.clear();
  staged_.append_targets.clear();
  staged_.mask_slots.clear();
  staged_.prefix_rows.clear();
  staged_.num_sampling_words = 0;
  staged_.num_copies = request.copies.size();
  staged_.num_draft_tokens = 0;
  skips_stopped_ = false;
  staged_.num_tokens = 0;
  staged_.num_given_tokens = 0;
  staged_.all_single = true;
  add_notes_.assign(request.add.size(), AddNote{});
  REPRISE_RETURN_IF_ERROR(CheckNumSteps(request));
  REPRISE_RETURN_IF_ERROR(StageDrops(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StageCopies(request));
  REPRISE_RETURN_IF_ERROR(StageAdds(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StageAppends(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StageMasks(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StagePrefixes(request, list));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StageChunks(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StageDrafts(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(StageContinues(request, list));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  REPRISE_RETURN_IF_ERROR(CheckDrafts(request));
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  // A continue_all that only finds rows that have stopped may have been sent before that was known.
  if (staged_.runs.empty() && !skips_stopped_ && refused_.empty() && request.drop.empty() &&
      request.add.empty() && request.append.empty() && request.masks.empty() &&
      request.prefixes.empty() && request.copies.empty()) {
    return absl::InvalidArgumentError(
        "the step names no row; allowed: at least one drop, copy, add, append, mask, prefix, chunk "
        "or continue");
  }
  if (staged_.num_tokens > limits_.max_step_tokens) {
    return absl::OutOfRangeError(absl::StrCat("the step has ", staged_.num_tokens,
                                              " query tokens; allowed: at most ",
                                              limits_.max_step_tokens, ", the largest bucket"));
  }
  staged_.num_going_on = static_cast<uint32_t>(
      std::ranges::count_if(staged_.runs, [](const StagedRun& run) { return run.goes_on(); }));
  staged_.num_replays = 1;
  for (const StagedRun& run : staged_.runs)
    staged_.num_replays = std::max(staged_.num_replays, 1 + run.num_repeats);
  for (const RowAdd& add : request.add)
    REPRISE_RETURN_IF_ERROR(Blame(add.row, CheckContextWritten(add)));
  return CheckSamplingOfStep(request);
}

absl::Status StepValidator::CheckNumSteps(const StepRequest& request) const {
  if (request.num_steps >= 1 && request.num_steps <= limits_.max_steps_per_request)
    return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("num_steps is ", request.num_steps, "; allowed: 1 to ",
                                            limits_.max_steps_per_request,
                                            ", max_steps_per_request"));
}

absl::Status StepValidator::CheckSamplingOfStep(const StepRequest& request) {
  const uint64_t sampling_bytes = staged_.num_sampling_words * sizeof(uint32_t);
  if (sampling_bytes > limits_.max_sampling_bytes) {
    return absl::OutOfRangeError(absl::StrCat(
        "sampling parameters of the step's rows take ", sampling_bytes, " bytes; allowed: at most ",
        limits_.max_sampling_bytes,
        " in one step (logit_bias, allowed_tokens and history count); spread them over several"));
  }
  uint64_t& logit_rows = staged_.num_logit_rows;
  uint64_t& prompt_logprobs = staged_.num_prompt_logprobs;
  logit_rows = prompt_logprobs = 0;
  for (const StagedRun& run : staged_.runs) {
    const bool added = run.ref.add != kNoSlot;
    const bool returns = added
                             ? request.add[run.ref.add].sampling.return_logits
                             : (rows_.state(run.ref.slot).features & kernels::kFeatureLogits) != 0;
    if (run.goes_on() && returns) {
      if (request.num_steps > 1) {
        REPRISE_RETURN_IF_ERROR(Blame(
            run.row, absl::InvalidArgumentError(absl::StrCat(
                         "num_steps is ", request.num_steps, " and row ", run.row,
                         " returns its logits; allowed: num_steps of 1, because its caller chooses "
                         "the next token"))));
      }
      ++logit_rows;
    }
    if (!run.stopped) prompt_logprobs += run.num_prompt_logprobs();
  }
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
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
  for (const Replaced& replaced : replaced_) ledger_.Restore(replaced.block, replaced.before);
  replaced_.clear();
}

absl::Status StepValidator::StageDrops(const StepRequest& request) {
  for (const uint32_t row : request.drop)
    REPRISE_RETURN_IF_ERROR(Blame(row, StageDrop(request, row)));
  return absl::OkStatus();
}

absl::Status StepValidator::StageDrop(const StepRequest& request, uint32_t row) {
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

absl::Status StepValidator::CheckFreeSlots(const StepRequest& request) const {
  const size_t available = rows_.num_free() + request.drop.size();
  if (request.add.size() <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the step adds ", request.add.size(), " rows; ",
                                                   available, " of max_rows ", rows_.max_rows(),
                                                   " are free"));
}

absl::Status StepValidator::StageAdds(const StepRequest& request) {
  // Of rows that are refused alone none needs a slot.
  if (!isolates_) REPRISE_RETURN_IF_ERROR(CheckFreeSlots(request));
  for (size_t i = 0; i < request.add.size(); ++i)
    REPRISE_RETURN_IF_ERROR(Blame(request.add[i].row, StageAdd(request, i)));
  return CheckFreeSlots(request);
}

absl::Status StepValidator::StageAdd(const StepRequest& request, size_t index) {
  const RowAdd& add = request.add[index];
  const uint32_t slot = rows_.Find(request.session, add.row);
  if (slot != kNoSlot && !Note(slot).dropped)
    return absl::AlreadyExistsError(absl::StrCat("add: row ", add.row, " is resident already"));
  for (size_t j = 0; j < index; ++j) {
    if (request.add[j].row == add.row)
      return absl::InvalidArgumentError(absl::StrCat("add: row ", add.row, " is named twice"));
  }
  REPRISE_RETURN_IF_ERROR(CheckSamplingParams(add.row, add.sampling, limits_, eos_token_ids_,
                                              ++bias_stamp_, token_stamps_));
  REPRISE_RETURN_IF_ERROR(CheckHistory(add));
  staged_.num_sampling_words += SamplingWordsOf(add, limits_.vocab_size, eos_token_ids_);
  REPRISE_RETURN_IF_ERROR(CheckNewBlocks(request, add.row, {}, add.blocks));
  REPRISE_RETURN_IF_ERROR(CheckState(request, index));
  const uint64_t room = static_cast<uint64_t>(add.blocks.size()) * limits_.block_size;
  if (add.context_length > room || add.context_length >= limits_.max_context_length) {
    return absl::OutOfRangeError(absl::StrCat(
        "row ", add.row, ": context_length is ", add.context_length, "; allowed: at most ", room,
        " (its blocks) and less than ", limits_.max_context_length, " (the limit)"));
  }
  return absl::OkStatus();
}

absl::Status StepValidator::CheckState(const StepRequest& request, size_t index) {
  const RowAdd& add = request.add[index];
  const bool named = add.fork_of.has_value() || add.swapped_state.has_value();
  const bool carries = limits_.row_state_bytes != 0;
  if (carries && add.context_length != 0) {
    if (add.fork_of.has_value() && add.swapped_state.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "row ", add.row, ": fork_of and swapped_state are both set; allowed: one of them"));
    }
    if (add.fork_of.has_value()) return CheckFork(request, add);
    if (add.swapped_state.has_value()) return CheckSwappedState(request, index);
    return absl::FailedPreconditionError(
        absl::StrCat("row ", add.row, ": context_length is ", add.context_length,
                     "; allowed: 0, or with fork_of or swapped_state, because rows of this model "
                     "carry state beside their KV"));
  }
  if (!named) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "row ", add.row, ": ", add.fork_of.has_value() ? "fork_of" : "swapped_state", " is set",
      carries ? "; allowed: with context"
              : "; allowed: not, because rows of this model carry nothing beside their KV"));
}

absl::Status StepValidator::CheckFork(const StepRequest& request, const RowAdd& add) {
  const uint32_t slot = rows_.Find(request.session, *add.fork_of);
  if (slot == kNoSlot || Note(slot).dropped) {
    return absl::NotFoundError(absl::StrCat("row ", add.row, ": fork_of is ", *add.fork_of,
                                            ", which is not resident; allowed: a row that is, "
                                            "before the step and in it"));
  }
  const RowState& state = rows_.state(slot);
  if (state.last_step > ended_) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", add.row, ": fork_of is ", *add.fork_of,
                     ", which has steps in flight; allowed: once their results were waited for"));
  }
  if (state.lost_result) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", add.row, ": fork_of is ", *add.fork_of,
                     ", of which a result was lost; allowed: a row whose length is known"));
  }
  if (state.context_length == add.context_length) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "row ", add.row, ": fork_of is ", *add.fork_of, ", which has ", state.context_length,
      " tokens of context; allowed: a row with ", add.context_length, ", context_length"));
}

absl::Status StepValidator::CheckSwappedState(const StepRequest& request, size_t index) {
  const RowAdd& add = request.add[index];
  const uint32_t place = *add.swapped_state;
  if (states_ == nullptr || states_->num_places() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", add.row, ": swapped_state is ", place,
                     ", and there is no swap space; allowed: none"));
  }
  REPRISE_RETURN_IF_ERROR(states_->CheckHeld(request.session, {&place, 1}));
  if (states_->num_tokens(place) != add.context_length) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", add.row, ": swapped_state is ", place, ", of a row with ",
                     states_->num_tokens(place), " tokens of context; allowed: of one with ",
                     add.context_length, ", context_length"));
  }
  for (size_t j = 0; j < index; ++j) {
    if (request.add[j].swapped_state != place) continue;
    is_conflict_ = true;
    return absl::InvalidArgumentError(
        absl::StrCat("swapped_state: ", place, " is named twice, by rows ", request.add[j].row,
                     " and ", add.row, "; allowed: once, since it moves"));
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
  for (size_t i = 0; i < request.append.size(); ++i)
    REPRISE_RETURN_IF_ERROR(Blame(request.append[i].row, StageAppend(request, i)));
  return absl::OkStatus();
}

absl::Status StepValidator::StageAppend(const StepRequest& request, size_t index) {
  const RowAppend& append = request.append[index];
  RowRef ref;
  REPRISE_RETURN_IF_ERROR(Resolve(request, append.row, &ref));
  uint32_t& noted = ref.add != kNoSlot ? add_notes_[ref.add].append : Note(ref.slot).append;
  if (noted != kNoSlot)
    return absl::InvalidArgumentError(absl::StrCat("append: row ", append.row, " is named twice"));
  if (append.blocks.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("append: row ", append.row, " gets 0 blocks; allowed: at least 1"));
  const std::span<const uint32_t> before =
      ref.add != kNoSlot ? request.add[ref.add].blocks
                         : rows_.table(ref.slot).first(rows_.state(ref.slot).table_length);
  REPRISE_RETURN_IF_ERROR(CheckNewBlocks(request, append.row, before, append.blocks));
  noted = static_cast<uint32_t>(index);
  staged_.append_targets.push_back(ref);
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

absl::Status StepValidator::CheckRoom(const StepRequest& request, StagedRun* run) {
  if (run->stopped) return absl::OkStatus();
  const uint64_t end = static_cast<uint64_t>(run->context_before) + run->num_tokens;
  if (end > limits_.max_context_length) {
    return absl::OutOfRangeError(absl::StrCat("row ", run->row, ": context of ", end,
                                              " tokens; allowed: at most ",
                                              limits_.max_context_length));
  }
  const uint64_t room = static_cast<uint64_t>(TableLength(request, run->ref)) * limits_.block_size;
  if (end > room) {
    return absl::OutOfRangeError(absl::StrCat("row ", run->row, ": context of ", end,
                                              " tokens; its block table has room for ", room));
  }
  REPRISE_RETURN_IF_ERROR(CheckSettled(request, *run));
  run->room = static_cast<uint32_t>(std::min<uint64_t>(room, limits_.max_context_length));
  run->num_repeats = NumRepeats(request, *run);
  const uint32_t begin =
      run->ref.add != kNoSlot ? run->context_before : rows_.state(run->ref.slot).settled_length();
  return CheckOwnBlocks(request, *run, begin, static_cast<uint32_t>(end) + run->num_repeats);
}

uint32_t StepValidator::NumRepeats(const StepRequest& request, const StagedRun& run) const {
  if (!run.goes_on()) return 0;
  const uint32_t left = run.room - run.context_before - run.num_tokens;
  const uint32_t most = std::min(request.num_steps - 1, left);
  const bool added = run.ref.add != kNoSlot;
  const uint32_t budget = added ? request.add[run.ref.add].sampling.max_new_tokens
                                : rows_.state(run.ref.slot).sampling.max_new_tokens;
  if (budget == 0) return most;
  const uint32_t sampled = 1 + (added ? 0 : rows_.state(run.ref.slot).num_samples);
  return std::min(most, budget - std::min(budget, sampled));
}

absl::Status StepValidator::CheckOwnBlocks(const StepRequest& request, const StagedRun& run,
                                           uint32_t begin, uint32_t end) {
  for (uint32_t i = begin / limits_.block_size; i <= (end - 1) / limits_.block_size; ++i) {
    const uint32_t block = BlockAt(request, run.ref, i);
    if (ledger_.is_shared(block)) {
      return absl::FailedPreconditionError(
          absl::StrCat("row ", run.row, ": appends to block ", block,
                       ", which sessions share; allowed: blocks of this session alone"));
    }
    if (ledger_.rows_naming(block) > 1) {
      is_conflict_ = true;
      return absl::FailedPreconditionError(
          absl::StrCat("row ", run.row, ": appends to block ", block, ", which ",
                       ledger_.rows_naming(block), " rows share; allowed: blocks of one row"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageMasks(const StepRequest& request) {
  for (const RowMask& mask : request.masks)
    REPRISE_RETURN_IF_ERROR(Blame(mask.row, StageMask(request, mask)));
  return absl::OkStatus();
}

absl::Status StepValidator::StageMask(const StepRequest& request, const RowMask& mask) {
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
    staged_.num_sampling_words += SamplingWords(MaskWords(limits_.vocab_size));
  staged_.mask_slots.push_back(ref.slot);
  return absl::OkStatus();
}

}  // namespace reprise::engine
