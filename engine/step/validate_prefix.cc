// SPDX-License-Identifier: Apache-2.0
// The part of StepValidator that judges prefix groups. What a group's rows share is compared block
// by block with their tables: a row never reads blocks that are not in its own.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/step/validate.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

absl::Status StepValidator::StagePrefixes(const StepRequest& request, const RowList& list) {
  if (request.prefixes.empty()) return absl::OkStatus();
  if (limits_.row_state_bytes != 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "prefix: got ", request.prefixes.size(),
        " groups; allowed: none, because rows of this model carry state beside their KV and share "
        "no context"));
  groups_.clear();
  for (size_t i = 0; i < request.prefixes.size(); ++i)
    groups_.push_back(uint64_t{request.prefixes[i].group} << 32 | i);
  std::ranges::sort(groups_);
  const auto twice = std::ranges::adjacent_find(
      groups_, [](uint64_t x, uint64_t y) { return x >> 32 == y >> 32; });
  if (twice != groups_.end())
    return absl::InvalidArgumentError(
        absl::StrCat("prefix: group ", *twice >> 32, " is named twice"));
  for (const PrefixGroup& prefix : request.prefixes) {
    if (prefix.rows.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("prefix: group ", prefix.group, " gets 0 rows; allowed: at least 1"));
    if ((prefix.group == 0) != (prefix.num_blocks == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("prefix: group ", prefix.group, ": num_blocks is ", prefix.num_blocks,
                       "; allowed: 0 for group 0, of no prefix, and at least 1 for others"));
    }
    for (const uint32_t row : prefix.rows)
      REPRISE_RETURN_IF_ERROR(Blame(row, StageMember(request, row)));
  }
  REPRISE_RETURN_IF_ERROR(StopIfBlamed());
  FindMembersWhoStay(request, list);
  size_t first = 0;
  for (size_t i = 0; i < request.prefixes.size(); ++i) {
    const size_t count = request.prefixes[i].rows.size();
    REPRISE_RETURN_IF_ERROR(CheckPrefix(
        request, i, std::span<const RowRef>(staged_.prefix_rows).subspan(first, count)));
    first += count;
  }
  return absl::OkStatus();
}

absl::Status StepValidator::StageMember(const StepRequest& request, uint32_t row) {
  RowRef ref;
  REPRISE_RETURN_IF_ERROR(Resolve(request, row, &ref));
  bool& grouped = ref.add != kNoSlot ? add_notes_[ref.add].grouped : Note(ref.slot).grouped;
  if (grouped)
    return absl::InvalidArgumentError(absl::StrCat("prefix: row ", row, " is named twice"));
  grouped = true;
  staged_.prefix_rows.push_back(ref);
  return absl::OkStatus();
}

void StepValidator::FindMembersWhoStay(const StepRequest& request, const RowList& list) {
  staying_.assign(request.prefixes.size(), kNoSlot);
  for (uint32_t slot = list.first; slot != kNoSlot; slot = rows_.state(slot).next) {
    const uint64_t group = rows_.state(slot).prefix_group;
    if (group == 0 || Note(slot).dropped || Note(slot).grouped) continue;
    const auto at = std::ranges::lower_bound(groups_, group << 32);
    if (at == groups_.end() || *at >> 32 != group) continue;
    uint32_t& staying = staying_[static_cast<uint32_t>(*at)];
    if (staying == kNoSlot) staying = slot;
  }
}

absl::Status StepValidator::CheckPrefix(const StepRequest& request, size_t index,
                                        std::span<const RowRef> refs) {
  const PrefixGroup& prefix = request.prefixes[index];
  if (prefix.group == 0) return absl::OkStatus();
  // Who the rows are compared with: somebody who stays in the group or, in a new one, its first.
  uint32_t model = prefix.rows.front();
  std::span<const uint32_t> shared;
  if (const uint32_t slot = staying_[index]; slot != kNoSlot) {
    const RowState& state = rows_.state(slot);
    if (state.prefix_blocks != prefix.num_blocks) {
      return absl::FailedPreconditionError(absl::StrCat(
          "prefix: group ", prefix.group, ": num_blocks is ", prefix.num_blocks, "; allowed: ",
          state.prefix_blocks, ", that of row ", state.row, ", which is in the group"));
    }
    model = state.row;
    shared = rows_.table(slot).first(prefix.num_blocks);
  }
  for (size_t r = 0; r < refs.size(); ++r) {
    const absl::Status member = CheckMember(request, prefix, r, refs[r], model, shared);
    REPRISE_RETURN_IF_ERROR(Blame(prefix.rows[r], member));
    if (member.ok() && shared.empty()) {
      model = prefix.rows[r];
      shared = FirstBlocks(request, refs[r], prefix.num_blocks);
    }
  }
  return absl::OkStatus();
}

std::span<const uint32_t> StepValidator::FirstBlocks(const StepRequest& request, const RowRef& ref,
                                                     uint32_t count) {
  // Blocks of its context were there before this step's appends.
  const std::span<const uint32_t> table = ref.add != kNoSlot
                                              ? request.add[ref.add].blocks
                                              : std::span<const uint32_t>(rows_.table(ref.slot));
  return table.first(count);
}

absl::Status StepValidator::CheckMember(const StepRequest& request, const PrefixGroup& prefix,
                                        size_t index, const RowRef& ref, uint32_t model,
                                        std::span<const uint32_t> shared) {
  const uint32_t row = prefix.rows[index];
  const uint32_t context = ref.add != kNoSlot ? request.add[ref.add].context_length
                                              : rows_.state(ref.slot).settled_length();
  if (uint64_t{prefix.num_blocks} * limits_.block_size > context) {
    return absl::OutOfRangeError(
        absl::StrCat("prefix: group ", prefix.group, ": row ", row, " has a context of ", context,
                     " tokens before this step, ", context / limits_.block_size,
                     " whole blocks; num_blocks is ", prefix.num_blocks));
  }
  if (shared.empty()) return absl::OkStatus();
  const std::span<const uint32_t> blocks = FirstBlocks(request, ref, prefix.num_blocks);
  const auto [theirs, own] = std::ranges::mismatch(shared, blocks);
  if (own == blocks.end()) return absl::OkStatus();
  is_conflict_ = true;
  return absl::FailedPreconditionError(
      absl::StrCat("prefix: group ", prefix.group, ": row ", row, " has block ", *own, " at place ",
                   own - blocks.begin(), " of its table, row ", model, " has block ", *theirs,
                   "; allowed: rows with the same first ", prefix.num_blocks, " blocks"));
}

}  // namespace reprise::engine
