// SPDX-License-Identifier: Apache-2.0
#include "engine/step/write.h"

#include <algorithm>
#include <cstring>

#include "engine/step/sampling.h"

namespace reprise::engine {
namespace {

// Returns the place behind what it wrote.
template <typename T>
std::byte* Put(std::byte* to, std::span<const T> values) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
  return to + values.size_bytes();
}

}  // namespace

StepWriter::StepWriter(const kernels::StepEntryLayout& layout, uint32_t block_size,
                       uint32_t min_shared_tokens, uint32_t vocab_size,
                       std::span<const uint32_t> eos_token_ids, RowTable& rows)
    : layout_(layout),
      block_size_(block_size),
      min_shared_tokens_(min_shared_tokens),
      vocab_size_(vocab_size),
      eos_token_ids_(eos_token_ids.begin(), eos_token_ids.end()),
      rows_(rows) {
  added_slots_.reserve(rows.max_rows());
  ran_slots_.reserve(rows.max_rows());
  repeat_slots_.reserve(rows.max_rows());
  members_.reserve(rows.max_rows());
}

void StepWriter::Begin(uint64_t sequence, std::byte* ring_entry) {
  ring_entry_ = ring_entry;
  header_ = repeat_header_ = kernels::StepHeader{.sequence = sequence};
  num_blocks_ = 0;
  num_sampling_words_ = 0;
}

void StepWriter::Add(const StepRequest& request, const StagedStep& staged, RowList& list) {
  header_.num_tokens += staged.num_tokens;
  header_.num_replays = std::max(header_.num_replays, staged.num_replays);
  ApplyDrops(staged, list);
  ApplyAdds(request, list);
  for (size_t i = 0; i < request.append.size(); ++i) {
    const RowRef& ref = staged.append_targets[i];
    const uint32_t target = ref.add != kNoSlot ? added_slots_[ref.add] : ref.slot;
    WriteTable(target, rows_.state(target).table_length, request.append[i].blocks);
  }
  WriteMasks(request, staged);
  ApplyPrefixes(request, staged);
  ran_slots_.clear();
  const uint32_t first = header_.num_rows;
  for (const StagedRun& run : staged.runs) {
    const uint32_t target = run.ref.add != kNoSlot ? added_slots_[run.ref.add] : run.ref.slot;
    WriteRun(run, target);
    ran_slots_.push_back(target);
  }
  const auto runs_one = [&](size_t i) {
    return staged.runs[i].num_tokens == 1 && !staged.runs[i].stopped;
  };
  WritePrefixMembers(ran_slots_, runs_one, first, &header_, ring_entry_ + layout_.prefix_members);
  if (staged.num_replays > 1) WriteRepeat(staged);
}

void StepWriter::Finish() {
  for (uint32_t block = 0; block < kernels::kFetchBlocks; ++block)
    std::memcpy(ring_entry_ + layout_.Header(block), &header_, sizeof(header_));
  if (header_.num_replays == 1) return;
  repeat_header_.num_tokens = repeat_header_.num_rows;
  repeat_header_.num_replays = header_.num_replays;
  std::memcpy(ring_entry_ + layout_.repeat, &repeat_header_, sizeof(repeat_header_));
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
    state.features = FeaturesOf(add.sampling);
    if (state.features != 0) WriteSampling(add, slot);
    state.sampling = add.sampling;
    // The arrays are the caller's.
    state.sampling.logit_bias = {};
    state.sampling.allowed_tokens = {};
    state.sampling.stop_tokens = {};
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
  std::memcpy(ring_entry_ + layout_.table_updates + header_.num_table_updates * sizeof(update),
              &update, sizeof(update));
  ++header_.num_table_updates;
  std::memcpy(ring_entry_ + layout_.blocks + num_blocks_ * sizeof(uint32_t), blocks.data(),
              blocks.size_bytes());
  num_blocks_ += update.count;
  header_.num_table_ids = num_blocks_;
}

std::byte* StepWriter::AddSamplingUpdate(uint32_t slot, kernels::SamplingUpdateKind kind,
                                         size_t words) {
  const kernels::SamplingUpdate update{.slot = slot,
                                       .kind = kind,
                                       .count = static_cast<uint32_t>(words),
                                       .offset = num_sampling_words_};
  std::memcpy(
      ring_entry_ + layout_.sampling_updates + header_.num_sampling_updates * sizeof(update),
      &update, sizeof(update));
  ++header_.num_sampling_updates;
  num_sampling_words_ += SamplingWords(words);
  return ring_entry_ + layout_.sampling_data + update.offset * sizeof(uint32_t);
}

void StepWriter::WriteSampling(const RowAdd& add, uint32_t slot) {
  const SamplingParams& sampling = add.sampling;
  const uint32_t features = FeaturesOf(sampling);
  const kernels::RowSampling row = ToRowSampling(add, eos_token_ids_);
  std::memcpy(AddSamplingUpdate(slot, kernels::kUpdateSampling, sizeof(row) / sizeof(uint32_t)),
              &row, sizeof(row));
  if (row.num_stop != 0) {
    std::byte* to = AddSamplingUpdate(slot, kernels::kUpdateStop, row.num_stop);
    to = Put(to, sampling.stop_tokens);
    if (sampling.stop_at_eos) Put(to, std::span<const uint32_t>(eos_token_ids_));
  }
  if (row.num_bias != 0) {
    static_assert(sizeof(TokenBias) == sizeof(kernels::LogitBias));
    Put(AddSamplingUpdate(slot, kernels::kUpdateBias, 2 * sampling.logit_bias.size()),
        sampling.logit_bias);
  }
  if ((features & kernels::kFeatureMask) != 0)
    Put(AddSamplingUpdate(slot, kernels::kUpdateMask, MaskWords(vocab_size_)),
        sampling.allowed_tokens);
  if ((features & kernels::kFeaturePenalties) != 0) {
    std::byte* to = AddSamplingUpdate(slot, kernels::kUpdateHistory, 1 + add.history.size());
    std::memcpy(to, &add.prompt_length, sizeof(add.prompt_length));
    Put(to + sizeof(add.prompt_length), add.history);
  }
}

void StepWriter::WriteMasks(const StepRequest& request, const StagedStep& staged) {
  for (size_t i = 0; i < request.masks.size(); ++i) {
    const std::span<const std::byte> allowed = request.masks[i].allowed_tokens;
    RowState& state = rows_.state(staged.mask_slots[i]);
    const uint32_t features = allowed.empty() ? state.features & ~kernels::kFeatureMask
                                              : state.features | kernels::kFeatureMask;
    state.needs_features |= features != state.features;
    state.features = features;
    if (!allowed.empty())
      Put(AddSamplingUpdate(staged.mask_slots[i], kernels::kUpdateMask, MaskWords(vocab_size_)),
          allowed);
  }
}

void StepWriter::ApplyPrefixes(const StepRequest& request, const StagedStep& staged) {
  size_t next = 0;
  for (const PrefixGroup& prefix : request.prefixes) {
    for (size_t i = 0; i < prefix.rows.size(); ++i) {
      const RowRef& ref = staged.prefix_rows[next++];
      RowState& state = rows_.state(ref.add != kNoSlot ? added_slots_[ref.add] : ref.slot);
      state.prefix_group = prefix.group;
      state.prefix_blocks = prefix.num_blocks;
    }
  }
}

template <typename RunsOne>
void StepWriter::WritePrefixMembers(std::span<const uint32_t> slots, RunsOne runs_one,
                                    uint32_t first, kernels::StepHeader* header, std::byte* to) {
  members_.clear();
  for (size_t i = 0; i < slots.size(); ++i) {
    const RowState& state = rows_.state(slots[i]);
    const bool shares = state.prefix_group != 0 && min_shared_tokens_ != 0 &&
                        uint64_t{state.prefix_blocks} * block_size_ >= min_shared_tokens_;
    if (shares && runs_one(i)) members_.push_back(uint64_t{state.prefix_group} << 32 | i);
  }
  if (!std::ranges::is_sorted(members_)) std::ranges::sort(members_);
  to += header->num_prefix_members * sizeof(kernels::PrefixMember);
  for (size_t begin = 0, end = 0; begin < members_.size(); begin = end) {
    while (end < members_.size() && members_[end] >> 32 == members_[begin] >> 32) ++end;
    for (size_t m = begin; m < end; ++m) {
      const auto index = static_cast<uint32_t>(members_[m]);
      const kernels::PrefixMember member{
          .entry = first + index,
          .tokens = rows_.state(slots[index]).prefix_blocks * block_size_,
          .index = static_cast<uint32_t>(m - begin),
          .count = static_cast<uint32_t>(end - begin)};
      std::memcpy(to + m * sizeof(member), &member, sizeof(member));
    }
  }
  header->num_prefix_members += static_cast<uint32_t>(members_.size());
}

void StepWriter::WriteRepeat(const StagedStep& staged) {
  std::byte* const rows = ring_entry_ + layout_.repeat + layout_.rows;
  const uint32_t first = repeat_header_.num_rows;
  repeat_slots_.clear();
  for (size_t i = 0; i < staged.runs.size(); ++i) {
    const StagedRun& run = staged.runs[i];
    if (!run.goes_on()) continue;
    const kernels::RowEntry entry{.slot = ran_slots_[i],
                                  .flags = kernels::kRowSample | kernels::kRowPauses,
                                  .num_tokens = 1,
                                  .context_length = run.room};
    std::memcpy(rows + repeat_header_.num_rows++ * sizeof(entry), &entry, sizeof(entry));
    repeat_slots_.push_back(entry.slot);
  }
  WritePrefixMembers(
      repeat_slots_, [](size_t) { return true; }, first, &repeat_header_,
      ring_entry_ + layout_.repeat_prefix_members);
}

void StepWriter::WriteRun(const StagedRun& run, uint32_t slot) {
  RowState& state = rows_.state(slot);
  kernels::RowEntry entry{.slot = slot, .num_tokens = run.num_tokens};
  if (state.needs_reset) {
    entry.flags |= kernels::kRowReset;
    entry.context_length = run.context_before;
    entry.temperature = state.sampling.temperature;
    entry.seed = state.sampling.seed;
    entry.flags |= state.features << kernels::kRowFeatureShift;
    state.needs_reset = state.needs_features = false;
  } else if (state.needs_features) {
    entry.flags |= kernels::kRowFeatures | state.features << kernels::kRowFeatureShift;
    state.needs_features = false;
  }
  if (!run.tokens.empty()) {
    entry.flags |= kernels::kRowTokensGiven;
    entry.given_offset = header_.num_given_tokens;
    std::memcpy(ring_entry_ + layout_.tokens + header_.num_given_tokens * sizeof(uint32_t),
                run.tokens.data(), run.tokens.size_bytes());
    header_.num_given_tokens += run.num_tokens;
  }
  if (!run.drafts.empty()) {
    entry.given_offset = header_.num_given_tokens;
    Put(ring_entry_ + layout_.tokens + header_.num_given_tokens * sizeof(uint32_t), run.drafts);
    header_.num_given_tokens += static_cast<uint32_t>(run.drafts.size());
  }
  if (run.num_prompt_logprobs() != 0) entry.flags |= kernels::kRowPromptLogprobs;
  if (run.prompt_logprobs && run.next_token) {
    entry.flags |= kernels::kRowNextGiven;
    std::memcpy(ring_entry_ + layout_.tokens + header_.num_given_tokens * sizeof(uint32_t),
                &*run.next_token, sizeof(uint32_t));
    ++header_.num_given_tokens;
  }
  if (run.sample) entry.flags |= kernels::kRowSample;
  std::memcpy(ring_entry_ + layout_.rows + header_.num_rows * sizeof(entry), &entry, sizeof(entry));
  ++header_.num_rows;
  if (run.stopped) return;
  state.context_length = run.context_before + run.num_tokens + run.num_repeats;
  state.can_continue = run.sample;
  state.num_drafts_in_flight += static_cast<uint32_t>(run.drafts.size());
  if (run.sample) state.num_samples += 1 + run.num_repeats;
  // It stops with the last of these tokens at the latest.
  const uint32_t budget = state.sampling.max_new_tokens;
  if (budget != 0 && state.num_samples >= budget) state.stopped = true;
}

}  // namespace reprise::engine
