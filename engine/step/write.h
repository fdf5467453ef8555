// SPDX-License-Identifier: Apache-2.0
// StepWriter: makes checked requests take effect on the host's mirror and writes them into an entry
// of the metadata ring: one request, or several of different sessions that share a launch. Step 5
// of the way of a step. A slot is always a resident row's.
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

  // Begins the entry of a launch whose first replay is `sequence`.
  void Begin(uint64_t sequence, std::byte* ring_entry);
  // Applies drops, adds and appends to the mirror, advances the lengths of the rows that run by
  // what they run at most, and adds them to the entry. Cannot fail: `staged` has been checked, and
  // LaunchTotals too where there are several requests.
  void Add(const StepRequest& request, const StagedStep& staged, RowList& list);
  // The slots in the row table of the last request's rows, in the order of StagedStep::runs.
  const std::vector<uint32_t>& ran_slots() const { return ran_slots_; }
  // Completes the entry.
  void Finish();

 private:
  void ApplyDrops(const StagedStep& staged, RowList& list);
  void ApplyAdds(const StepRequest& request, RowList& list);
  void WriteTable(uint32_t slot, uint32_t first, std::span<const uint32_t> blocks);
  void WriteRun(const StagedRun& run, uint32_t slot);
  void WriteSampling(const RowAdd& add, uint32_t slot);
  void WriteMasks(const StepRequest& request, const StagedStep& staged);
  void ApplyPrefixes(const StepRequest& request, const StagedStep& staged);
  // What later replays run of the request.
  void WriteRepeat(const StagedStep& staged);
  // The groups of a request's rows whose prefix is long enough, each one's members in request
  // order. The rows begin at entry `first`; `runs_one` says of an index among them whether the row
  // runs one token. Adds the members to the part that `header` opens, in `to`.
  template <typename RunsOne>
  void WritePrefixMembers(std::span<const uint32_t> slots, RunsOne runs_one, uint32_t first,
                          kernels::StepHeader* header, std::byte* to);
  // The place of `words` words of sampling data for the row, to be filled in.
  std::byte* AddSamplingUpdate(uint32_t slot, kernels::SamplingUpdateKind kind, size_t words);

  const kernels::StepEntryLayout layout_;
  const uint32_t block_size_, min_shared_tokens_;
  const uint32_t vocab_size_;
  const std::vector<uint32_t> eos_token_ids_;
  RowTable& rows_;
  std::vector<uint32_t> added_slots_;  // by request.add index
  std::vector<uint32_t> ran_slots_;
  std::vector<uint32_t> repeat_slots_;  // of the rows that go on
  std::vector<uint64_t> members_;       // group, index of the row

  // Cursor of the ring entry being written.
  std::byte* ring_entry_ = nullptr;
  kernels::StepHeader header_;
  kernels::StepHeader repeat_header_;
  uint32_t num_blocks_ = 0;
  uint32_t num_sampling_words_ = 0;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_WRITE_H_
