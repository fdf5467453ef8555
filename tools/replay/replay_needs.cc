// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/replay_needs.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

absl::Status CheckRoom(const char* what, const char* of, uint32_t needed, uint32_t got) {
  if (got >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": got ", got, ", allowed: ", needed, " or more, the ", of,
                   " that the recording has in swap space at a time (--swap-space)"));
}

// A damaged recording gives back what it never had.
void Subtract(int count, uint32_t* held) { *held -= std::min(*held, static_cast<uint32_t>(count)); }
void Add(int count, uint32_t* held) { *held += static_cast<uint32_t>(count); }

}  // namespace

absl::Status CheckSwapSpace(const ReplayNeeds& needs, const v1::DescribeResponse& got) {
  REPRISE_RETURN_IF_ERROR(
      CheckRoom("swap_blocks", "blocks", needs.swap_blocks, got.pool().swap_blocks()));
  return CheckRoom("swap_states", "states of rows", needs.swap_states, got.pool().swap_states());
}

void NeedsCounter::Note(const v1::SessionRecord& call) {
  Add(call.allocated().blocks_size(), &held_.blocks);
  Add(call.adopted().blocks_size(), &held_.blocks);
  Subtract(call.free().blocks_size(), &held_.blocks);
  if (call.has_swap_out()) {
    Subtract(call.swap_out().blocks_size(), &held_.blocks);
    Add(call.swapped_out().swapped_size(), &held_.swap_blocks);
  }
  if (call.has_swap_in()) {
    Add(call.swapped_in().blocks_size(), &held_.blocks);
    Subtract(call.swap_in().swapped_size(), &held_.swap_blocks);
  }
  Subtract(call.free_swapped().swapped_size(), &held_.swap_blocks);
  if (call.has_share())
    shared_[call.share().name()] = static_cast<uint32_t>(call.share().blocks_size());
  if (call.has_release()) {
    const auto found = shared_.find(call.release().name());
    if (found != shared_.end()) {
      held_.blocks -= std::min(held_.blocks, found->second);
      shared_.erase(found);
    }
  }
  NoteStates(call);
  most_.Widen(held_);
}

void NeedsCounter::NoteStates(const v1::SessionRecord& call) {
  if (call.has_swap_out_state()) states_.insert(call.swapped_out_state().swapped_state());
  for (const uint32_t state : call.free_swapped().swapped_states()) states_.erase(state);
  for (const v1::AddRow& row : call.step().add()) {
    if (!row.has_swapped_state()) continue;
    // A row that was refused alone has left its state there.
    const auto is_it = [&row](const v1::RowError& error) { return error.row() == row.row(); };
    const auto& errors = call.answer().row_errors();
    if (std::none_of(errors.begin(), errors.end(), is_it)) states_.erase(row.swapped_state());
  }
  held_.swap_states = static_cast<uint32_t>(states_.size());
}

}  // namespace reprise::tools
