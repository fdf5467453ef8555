// SPDX-License-Identifier: Apache-2.0
#include "graphs/step_writer.h"

#include <algorithm>
#include <cstring>

namespace reprise::graphs {

StepWriter::StepWriter(const kernels::StepSlotLayout& layout, RowTable& rows)
    : layout_(layout), rows_(rows) {
  added_slots_.reserve(rows.max_rows());
}

void StepWriter::Write(const StepRequest& request, const StagedStep& staged, uint64_t sequence,
                       RowList& list, std::byte* slot, std::vector<uint32_t>* ran) {
  slot_ = slot;
  header_ = kernels::StepHeader{.sequence = sequence, .num_tokens = staged.num_tokens};
  num_blocks_ = 0;
  ApplyDrops(staged, list);
  ApplyAdds(request, list);
  for (size_t i = 0; i < request.append.size(); ++i) {
    const RowRef& ref = staged.append_targets[i];
    const uint32_t target = ref.add != kNoSlot ? added_slots_[ref.add] : ref.slot;
    WriteTable(target, rows_.state(target).table_length, request.append[i].blocks);
  }
  ran->clear();
  for (const StagedRun& run : staged.runs) {
    WriteRun(run, run.ref.add != kNoSlot ? added_slots_[run.ref.add] : run.ref.slot);
    ran->push_back(run.row);
  }
  std::memcpy(slot_, &header_, sizeof(header_));
}

void StepWriter::ApplyDrops(const StagedStep& staged, RowList& list) {
  for (const uint32_t slot : staged.drop_slots) rows_.Remove(slot, list);
}

void StepWriter::ApplyAdds(const StepRequest& request, RowList& list) {
  added_slots_.clear();
  for (const RowAdd& add : request.add) {
    const uint32_t slot = rows_.Add(request.session, add.row, list);
    RowState& state = rows_.state(slot);
    state.context_length = add.context_length;
    state.sampling = add.sampling;
    added_slots_.push_back(slot);
    if (!add.blocks.empty()) WriteTable(slot, 0, add.blocks);
  }
}

void StepWriter::WriteTable(uint32_t slot, uint32_t first, std::span<const uint32_t> blocks) {
  std::copy(blocks.begin(), blocks.end(), rows_.table(slot).begin() + first);
  rows_.state(slot).table_length = first + static_cast<uint32_t>(blocks.size());

  const kernels::TableUpdate update{.slot = slot,
                                    .first = first,
                                    .count = static_cast<uint32_t>(blocks.size()),
                                    .offset = num_blocks_};
  std::memcpy(slot_ + layout_.table_updates + header_.num_table_updates * sizeof(update), &update,
              sizeof(update));
  ++header_.num_table_updates;
  std::memcpy(slot_ + layout_.blocks + num_blocks_ * sizeof(uint32_t), blocks.data(),
              blocks.size_bytes());
  num_blocks_ += update.count;
}

void StepWriter::WriteRun(const StagedRun& run, uint32_t slot) {
  RowState& state = rows_.state(slot);
  kernels::RowEntry entry{.slot = slot, .num_tokens = run.num_tokens};
  if (state.needs_reset) {
    entry.flags |= kernels::kRowReset;
    entry.context_length = run.context_before;
    entry.temperature = state.sampling.temperature;
    entry.seed = state.sampling.seed;
    state.needs_reset = false;
  }
  if (!run.tokens.empty()) {
    entry.flags |= kernels::kRowTokensGiven;
    entry.given_offset = header_.num_given_tokens;
    std::memcpy(slot_ + layout_.tokens + header_.num_given_tokens * sizeof(uint32_t),
                run.tokens.data(), run.tokens.size_bytes());
    header_.num_given_tokens += run.num_tokens;
  }
  if (run.sample) entry.flags |= kernels::kRowSample;
  std::memcpy(slot_ + layout_.rows + header_.num_rows * sizeof(entry), &entry, sizeof(entry));
  ++header_.num_rows;
  state.context_length = run.context_before + run.num_tokens;
  state.can_continue = run.sample;
}

}  // namespace reprise::graphs
