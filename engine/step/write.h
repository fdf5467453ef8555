// SPDX-License-Identifier: Apache-2.0
// StepWriter: makes a checked step take effect on the host's mirror and writes it into an entry of
// the metadata ring. Step 5 of the way of a step. A slot is always a resident row's.
#ifndef REPRISE_ENGINE_STEP_WRITE_H_
#define REPRISE_ENGINE_STEP_WRITE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/state/row_table.h"
#include "engine/step/validate.h"
#include "kernels/step/ring.h"

namespace reprise::engine {

class StepWriter {
 public:
  // block_size: tokens of a KV block. min_shared_tokens: of prefixes that are read once, 0: none
  // is. `vocab_size` and `eos_token_ids`: the model's. A view of `rows`.
  StepWriter(const kernels::StepEntryLayout& layout, uint32_t block_size,
             uint32_t min_shared_tokens, uint32_t vocab_size,
             std::span<const uint32_t> eos_token_ids, RowTable& rows);

  // Applies drops, adds and appends to the mirror, advances the lengths of the rows that run, and
  // fills `ring_entry` for step `sequence`. `ran`: the caller's ids of the rows that run, in order.
  // Cannot fail: `staged` has been checked.
  void Write(const StepRequest& request, const StagedStep& staged, uint64_t sequence, RowList& list,
             std::byte* ring_entry, std::vector<uint32_t>* ran);
  // Their slots in the row table, until the next Write.
  const std::vector<uint32_t>& ran_slots() const { return ran_slots_; }

 private:
  void ApplyDrops(const StagedStep& staged, RowList& list);
  void ApplyAdds(const StepRequest& request, RowList& list);
  void WriteTable(uint32_t slot, uint32_t first, std::span<const uint32_t> blocks);
  void WriteRun(const StagedRun& run, uint32_t slot);
  void WriteSampling(const RowAdd& add, uint32_t slot);
  void WriteMasks(const StepRequest& request, const StagedStep& staged);
  void ApplyPrefixes(const StepRequest& request, const StagedStep& staged);
  // The groups of the rows that run and whose prefix is long enough, each one's members in request
  // order.
  void WritePrefixMembers(const StagedStep& staged);
  // The place of `words` words of sampling data for the row, to be filled in.
  std::byte* AddSamplingUpdate(uint32_t slot, kernels::SamplingUpdateKind kind, size_t words);

  const kernels::StepEntryLayout layout_;
  const uint32_t block_size_, min_shared_tokens_;
  const uint32_t vocab_size_;
  const std::vector<uint32_t> eos_token_ids_;
  RowTable& rows_;
  std::vector<uint32_t> added_slots_;  // by request.add index
  std::vector<uint32_t> ran_slots_;
  std::vector<uint64_t> members_;  // group, entry

  // Cursor of the ring entry being written.
  std::byte* ring_entry_ = nullptr;
  kernels::StepHeader header_;
  uint32_t num_blocks_ = 0;
  uint32_t num_sampling_words_ = 0;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_WRITE_H_
