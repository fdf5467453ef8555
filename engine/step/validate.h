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
#include "engine/step/sampling.h"
#include "engine/step_request.h"
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
  uint32_t context_before = 0;
  bool stopped = false;          // known to have stopped: its tokens take no room
  bool prompt_logprobs = false;  // and those of `tokens`
  std::optional<uint32_t> next_token = {};
  // Given tokens whose likelihood is reported.
  uint32_t num_prompt_logprobs() const {
    return prompt_logprobs ? num_tokens - (next_token ? 0 : 1) : 0;
  }
};

// A checked step. Views into the request and the validator's scratch: valid until the next
// Validate.
struct StagedStep {
  std::vector<StagedRun> runs;         // chunks first, then continues
  std::vector<uint32_t> drop_slots;    // by request.drop index
  std::vector<RowRef> append_targets;  // by request.append index
  std::vector<uint32_t> mask_slots;    // by request.masks index
  std::vector<RowRef> prefix_rows;     // of all request.prefixes, one after the other
  uint32_t num_tokens = 0;
  uint32_t num_given_tokens = 0;
  // A decode bucket serves: every run has one query token and no prompt_logprobs.
  bool all_single = true;
};

class StepValidator {
 public:
  // `eos_token_ids`: the model's. Views of both tables.
  StepValidator(const kernels::StepLimits& limits, std::span<const uint32_t> eos_token_ids,
                RowTable& rows, BlockLedger& ledger);

  // On success `staged()` describes the step and the ledger counts its tables; on error nothing has
  // changed. Errors: see DecodeEngine::Submit. `list`: the rows of request.session, which may have
  // `max_rows` of them; 0: no limit of its own.
  absl::Status Validate(const StepRequest& request, const RowList& list, uint32_t max_rows = 0);
  const StagedStep& staged() const { return staged_; }
  // Takes back what the last successful Validate did to the ledger; for a step that fails behind
  // it.
  void Abandon();

 private:
  // What this request says of a resident row; valid where `stamp` is the current one.
  struct SlotNote {
    uint64_t stamp = 0;
    bool dropped = false;
    bool runs = false;
    uint32_t append = kNoSlot;
    bool masked = false;
    bool grouped = false;  // named by a prefix group
  };
  struct AddNote {
    bool runs = false;
    uint32_t append = kNoSlot;
    bool grouped = false;
  };

  SlotNote& Note(uint32_t slot);
  absl::Status Stage(const StepRequest& request, const RowList& list);
  // Errors: ResourceExhausted.
  absl::Status CheckRowsOfSession(const StepRequest& request, const RowList& list,
                                  uint32_t max_rows) const;
  absl::Status StageDrops(const StepRequest& request);
  absl::Status StageAdds(const StepRequest& request);
  absl::Status StageAppends(const StepRequest& request);
  absl::Status StageMasks(const StepRequest& request);
  absl::Status StagePrefixes(const StepRequest& request, const RowList& list);
  // Of every group that the request names, a row that stays in it. It is known who leaves.
  void FindMembersWhoStay(const StepRequest& request, const RowList& list);
  // The rows of request.prefixes[index], of which `refs` says where they are, against one another
  // and the group's other rows.
  absl::Status CheckPrefix(const StepRequest& request, size_t index, std::span<const RowRef> refs);
  absl::Status StageChunks(const StepRequest& request);
  absl::Status CheckHistory(const RowAdd& add) const;
  // The blocks hold what the row counts on: tokens that the session itself has written.
  absl::Status CheckContextWritten(const RowAdd& add) const;
  // What all rows of the step together may ask of sampling.
  absl::Status CheckSamplingOfStep(const StepRequest& request) const;
  absl::Status StageContinues(const StepRequest& request, const RowList& list);
  absl::Status StageContinue(const StepRequest& request, uint32_t row, uint32_t slot);

  // The row as the step's earlier operations leave it. Errors: NotFound.
  absl::Status Resolve(const StepRequest& request, uint32_t row, RowRef* ref);
  // New table entries of a row whose table starts with `before`: held by the session, no repeats.
  absl::Status CheckNewBlocks(const StepRequest& request, uint32_t row,
                              std::span<const uint32_t> before, std::span<const uint32_t> added);
  // `num_tokens` fit behind the row's context: table, limit, and no block that another row reads
  // too.
  absl::Status CheckRoom(const StepRequest& request, const StagedRun& run);
  uint32_t TableLength(const StepRequest& request, const RowRef& ref);
  uint32_t BlockAt(const StepRequest& request, const RowRef& ref, uint32_t index);
  void CountTable(uint32_t block, int delta);
  void UndoCounts();

  const kernels::StepLimits limits_;
  const std::vector<uint32_t> eos_token_ids_;
  RowTable& rows_;
  BlockLedger& ledger_;
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
  uint64_t sampling_words_ = 0;  // of this request
  bool skips_stopped_ = false;   // its continue_all left out a row that has stopped
  struct Count {
    uint32_t block;
    int delta;
  };
  std::vector<Count> counts_;  // journal of this request's changes to the ledger
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_VALIDATE_H_
