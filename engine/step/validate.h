// SPDX-License-Identifier: Apache-2.0
// StepValidator: checks a step request against rows, blocks and limits, before anything of it takes
// effect. This is step 3 of the way of a step. What it hands on (StagedStep) needs no further
// check. It allocates nothing once its scratch memory has grown to the limits.
#ifndef REPRISE_ENGINE_STEP_VALIDATE_H_
#define REPRISE_ENGINE_STEP_VALIDATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/swap_table.h"
#include "engine/step/request_filter.h"
#include "engine/step/sampling.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "kernels/step/step_limits.h"

namespace reprise::engine {

// A row of the request, wherever it is: resident before the step (slot), or added by it (add =
// index into request.add).
struct RowRef {
  uint32_t slot = kNoSlot;
  uint32_t add = kNoSlot;
};

// One row that runs. `tokens` empty: it continues from its last sampled token.
struct StagedRun {
  RowRef ref = {};
  uint32_t row = 0;  // the caller's id
  std::span<const uint32_t> tokens = {};
  bool sample = false;
  uint32_t num_tokens = 0;
  uint32_t context_before = 0;  // at most
  uint32_t room = 0;            // tokens that its table and the limits have room for; 0 if stopped
  uint32_t num_repeats = 0;     // tokens that it may run in the request's later steps
  std::span<const uint32_t> drafts = {};  // behind the last sampled token of one that continues
  bool stopped = false;                   // known to have stopped: its tokens take no room
  bool prompt_logprobs = false;           // and those of `tokens`
  std::optional<uint32_t> next_token = {};
  // Given tokens whose likelihood is reported.
  uint32_t num_prompt_logprobs() const {
    return prompt_logprobs ? num_tokens - (next_token ? 0 : 1) : 0;
  }
  // Named by the request's later steps.
  bool goes_on() const { return sample && !stopped; }
};

// A checked step. Views the request and the validator's scratch: valid until the next Validate.
struct StagedStep {
  // What takes effect: the request, or what is left of it without the rows that are refused alone.
  // The indices below are into it.
  const StepRequest* request = nullptr;
  std::vector<StagedRun> runs;         // chunks first, then continues
  std::vector<uint32_t> drop_slots;    // by request.drop index
  std::vector<RowRef> append_targets;  // by request.append index
  std::vector<uint32_t> mask_slots;    // by request.masks index
  std::vector<RowRef> prefix_rows;     // of all request.prefixes, one after the other
  uint32_t num_tokens = 0;
  uint32_t num_given_tokens = 0;
  uint32_t num_going_on = 0;  // runs
  // Of what one step may ask for.
  uint64_t num_sampling_words = 0;
  uint64_t num_logit_rows = 0;
  uint64_t num_prompt_logprobs = 0;
  uint64_t num_draft_tokens = 0;
  uint64_t num_copies = 0;  // of blocks
  // Of the request: its num_steps, or fewer where no run may bring a token in the last of them.
  uint32_t num_replays = 1;
  // A decode bucket serves: every run has one query token and no prompt_logprobs.
  bool all_single = true;
};

class StepValidator {
 public:
  // `eos_token_ids`: the model's. Views of the tables. `states`: of rows in swap space; nullptr:
  // there are none.
  StepValidator(const kernels::StepLimits& limits, std::span<const uint32_t> eos_token_ids,
                RowTable& rows, BlockLedger& ledger, SwapTable* states = nullptr);

  // On success `staged()` describes the step and the ledger counts its tables; on error nothing has
  // changed. Errors: see DecodeEngine::Submit. `list`: the rows of request.session, which may have
  // `max_rows` of them; 0: no limit of its own.
  absl::Status Validate(const StepRequest& request, const RowList& list, uint32_t max_rows = 0);
  const StagedStep& staged() const { return staged_; }
  // Of the last successful Validate: rows that were refused alone, which `staged()` says nothing
  // of. The caller may move them away.
  std::vector<RefusedRow>& refused_rows() { return refused_; }
  // Takes back what the last successful Validate did to the ledger; for a step that fails behind
  // it.
  void Abandon();
  // Steps up to this ticket have been waited for.
  void NoteEnded(uint64_t ticket) { ended_ = ticket; }

 private:
  // What this request says of a resident row; valid where `stamp` is the current one.
  struct SlotNote {
    uint64_t stamp = 0;
    bool dropped = false;
    bool runs = false;
    bool continues = false;
    uint32_t append = kNoSlot;
    uint32_t draft = kNoSlot;  // request.drafts index
    bool masked = false;
    bool grouped = false;  // named by a prefix group
  };
  struct AddNote {
    bool runs = false;
    uint32_t append = kNoSlot;
    bool grouped = false;
  };

  SlotNote& Note(uint32_t slot);
  // Validate, without looking whose fault an error is.
  absl::Status Attempt(const StepRequest& request, const RowList& list, uint32_t max_rows);
  absl::Status ValidateIsolated(const StepRequest& request, const RowList& list, uint32_t max_rows);
  // What would take long to look through where nothing ends at the first error.
  absl::Status CheckNumEntries(const StepRequest& request) const;
  // `error` is this row's: passed on, or noted, where bad rows are refused alone.
  absl::Status Blame(uint32_t row, absl::Status error);
  // An error where rows have been blamed: what follows may count on what they said.
  absl::Status StopIfBlamed() const;
  // Errors: OutOfRange, too many.
  absl::Status RefuseAlone(std::vector<RefusedRow>* rows);
  bool IsRefused(uint32_t row) const;

  absl::Status Stage(const StepRequest& request, const RowList& list);
  // Errors: ResourceExhausted.
  absl::Status CheckRowsOfSession(const StepRequest& request, const RowList& list,
                                  uint32_t max_rows) const;
  absl::Status CheckFreeSlots(const StepRequest& request) const;
  absl::Status StageDrops(const StepRequest& request);
  absl::Status StageDrop(const StepRequest& request, uint32_t row);
  absl::Status StageCopies(const StepRequest& request);
  // One copy by itself. Destinations carry the present table_stamp_.
  absl::Status StageCopy(const BlockCopy& copy);
  absl::Status StageAdds(const StepRequest& request);
  absl::Status StageAdd(const StepRequest& request, size_t index);
  // Where the state of a row with context comes from, in models whose rows carry some.
  absl::Status CheckState(const StepRequest& request, size_t index);
  absl::Status CheckFork(const StepRequest& request, const RowAdd& add);
  absl::Status CheckSwappedState(const StepRequest& request, size_t index);
  absl::Status StageAppends(const StepRequest& request);
  absl::Status StageAppend(const StepRequest& request, size_t index);
  absl::Status StageMasks(const StepRequest& request);
  absl::Status StageMask(const StepRequest& request, const RowMask& mask);
  absl::Status StagePrefixes(const StepRequest& request, const RowList& list);
  absl::Status StageMember(const StepRequest& request, uint32_t row);
  // Of every group that the request names, a row that stays in it. It is known who leaves.
  void FindMembersWhoStay(const StepRequest& request, const RowList& list);
  // The rows of request.prefixes[index], of which `refs` says where they are, against one another
  // and the group's other rows.
  absl::Status CheckPrefix(const StepRequest& request, size_t index, std::span<const RowRef> refs);
  // One row of a group. `shared`: the blocks of `model`, with which it is compared.
  absl::Status CheckMember(const StepRequest& request, const PrefixGroup& prefix, size_t index,
                           const RowRef& ref, uint32_t model, std::span<const uint32_t> shared);
  std::span<const uint32_t> FirstBlocks(const StepRequest& request, const RowRef& ref,
                                        uint32_t count);
  absl::Status StageChunks(const StepRequest& request);
  absl::Status StageChunk(const StepRequest& request, const RowChunk& chunk);
  absl::Status CheckTokens(const RowChunk& chunk) const;
  absl::Status CheckHistory(const RowAdd& add) const;
  // The blocks hold what the row counts on: tokens that the session itself has written.
  absl::Status CheckContextWritten(const RowAdd& add) const;
  // What all rows of the step together may ask of sampling.
  absl::Status CheckSamplingOfStep(const StepRequest& request);
  absl::Status StageDrafts(const StepRequest& request);
  absl::Status StageDraft(const StepRequest& request, size_t index);
  // Behind StageContinues: all drafts are of rows that continue, and they fit together.
  absl::Status CheckDrafts(const StepRequest& request);
  absl::Status CheckDraftOf(const StepRequest& request, const StagedRun& run) const;
  // The host knows how far the row has come, where later steps follow.
  absl::Status CheckSettled(const StepRequest& request, const StagedRun& run) const;
  absl::Status StageContinues(const StepRequest& request, const RowList& list);
  absl::Status StageContinueAll(const StepRequest& request, const RowList& list);
  absl::Status StageContinueRow(const StepRequest& request, uint32_t row);
  absl::Status StageContinue(const StepRequest& request, uint32_t row, uint32_t slot);
  // The same for a row without drafts whose table the step leaves as it is, in a request of one
  // step: what nearly all rows of a server are that decodes. False, and nothing staged, where
  // something is wrong with it or open, which StageContinue tells.
  bool StageContinueAtOnce(uint32_t row, uint32_t slot);

  // The row as the step's earlier operations leave it. Errors: NotFound.
  absl::Status Resolve(const StepRequest& request, uint32_t row, RowRef* ref);
  // New table entries of a row whose table starts with `before`: held by the session, no repeats.
  absl::Status CheckNewBlocks(const StepRequest& request, uint32_t row,
                              std::span<const uint32_t> before, std::span<const uint32_t> added);
  // `num_tokens` fit behind the row's context: table, limit, and no block that another row reads
  // too. Says what else may follow: room and num_repeats.
  absl::Status CheckRoom(const StepRequest& request, StagedRun* run);
  // The blocks of positions [begin, end) are the row's alone.
  absl::Status CheckOwnBlocks(const StepRequest& request, const StagedRun& run, uint32_t begin,
                              uint32_t end);
  // Tokens that the run may bring beside its own, by its room and its budget.
  uint32_t NumRepeats(const StepRequest& request, const StagedRun& run) const;
  absl::Status CheckNumSteps(const StepRequest& request) const;
  uint32_t TableLength(const StepRequest& request, const RowRef& ref);
  uint32_t BlockAt(const StepRequest& request, const RowRef& ref, uint32_t index);
  void CountTable(uint32_t block, int delta);
  void UndoCounts();

  uint64_t ended_ = 0;
  const kernels::StepLimits limits_;
  const std::vector<uint32_t> eos_token_ids_;
  RowTable& rows_;
  BlockLedger& ledger_;
  SwapTable* const states_;
  StagedStep staged_;
  uint64_t stamp_ = 0;
  std::vector<SlotNote> slot_notes_;    // by slot
  std::vector<AddNote> add_notes_;      // by request.add index
  std::vector<uint64_t> groups_;        // group << 32 | request.prefixes index, ascending
  std::vector<uint32_t> staying_;       // by request.prefixes index: a slot, or kNoSlot
  std::vector<uint64_t> block_stamps_;  // by block id: table_stamp_ of the table that last named it
  uint64_t table_stamp_ = 0;
  std::vector<uint64_t> token_stamps_;  // by token id: bias_stamp_ of the list that last named it
  uint64_t bias_stamp_ = 0;
  bool skips_stopped_ = false;  // its continue_all left out a row that has stopped

  // Of requests whose bad rows are refused alone.
  RequestFilter filter_;
  std::vector<RefusedRow> refused_;
  std::vector<uint32_t> refused_ids_;  // the same rows, ascending
  bool isolates_ = false;
  // Found while staging: rows that are wrong in themselves, and rows that are only beside others,
  // which may be refused themselves.
  std::vector<RefusedRow> blamed_;
  std::vector<RefusedRow> conflicts_;
  bool is_conflict_ = false;  // the error that is on its way to Blame is such a one
  struct Count {
    uint32_t block;
    int delta;
  };
  std::vector<Count> counts_;  // journal of this request's changes to the ledger
  struct Replaced {
    uint32_t block;
    BlockLedger::Written before;
  };
  std::vector<Replaced> replaced_;  // the same of blocks that it copies to
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_VALIDATE_H_
