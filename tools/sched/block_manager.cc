// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/block_manager.h"

#include <algorithm>
#include <utility>

#include "runtime/status_macros.h"

namespace reprise::tools {

absl::StatusOr<bool> BlockManager::Take(uint32_t count, std::vector<uint32_t>* blocks) {
  if (free_.size() < count) {
    const auto missing = static_cast<uint32_t>(count - free_.size());
    if (server_is_empty_) return false;
    // A whole batch if the server has it, otherwise exactly what is needed.
    REPRISE_ASSIGN_OR_RETURN(bool got, AskServer(std::max(missing, options_.batch)));
    if (!got && missing < options_.batch) {
      REPRISE_ASSIGN_OR_RETURN(got, AskServer(missing));
    }
    if (!got) {
      server_is_empty_ = true;
      return false;
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    blocks->push_back(free_.back().block);
    free_.pop_back();
  }
  return true;
}

absl::StatusOr<bool> BlockManager::AskServer(uint32_t count) {
  absl::StatusOr<std::vector<uint32_t>> blocks = source_->Allocate(count);
  if (absl::IsResourceExhausted(blocks.status())) return false;
  if (!blocks.ok()) return blocks.status();
  held_ += static_cast<uint32_t>(blocks->size());
  for (uint32_t block : *blocks) free_.push_back({block, 0});
  return true;
}

void BlockManager::Release(const std::vector<uint32_t>& blocks, uint64_t sequence) {
  for (uint32_t block : blocks) free_.push_back({block, sequence});
  if (!blocks.empty()) server_is_empty_ = false;
}

absl::Status BlockManager::Acknowledge(uint64_t sequence) {
  acknowledged_ = std::max(acknowledged_, sequence);
  // Two batches of slack: a scheduler whose rows come and go would otherwise give back and ask
  // again in every step.
  if (free_.size() <= 2 * static_cast<size_t>(options_.batch)) return absl::OkStatus();
  return ReturnDownTo(options_.batch);
}

std::vector<uint32_t> BlockManager::Part(const std::vector<uint32_t>& blocks, size_t begin) const {
  const size_t count = std::min<size_t>(options_.max_swap, blocks.size() - begin);
  const auto first = blocks.begin() + static_cast<ptrdiff_t>(begin);
  return {first, first + static_cast<ptrdiff_t>(count)};
}

absl::StatusOr<bool> BlockManager::SwapOut(std::vector<uint32_t>* blocks,
                                           std::vector<uint32_t>* swapped) {
  size_t moved = 0;
  absl::Status refused;
  while (moved < blocks->size() && refused.ok()) {
    const std::vector<uint32_t> part = Part(*blocks, moved);
    const absl::StatusOr<std::vector<uint32_t>> names = source_->SwapOut(part);
    refused = names.status();
    if (names.ok()) swapped->insert(swapped->end(), names->begin(), names->end());
    // What is not known to be the session's is not used again.
    if (names.ok() || absl::IsDataLoss(refused)) moved += part.size();
  }
  held_ -= static_cast<uint32_t>(moved);
  if (moved > 0) server_is_empty_ = false;
  blocks->erase(blocks->begin(), blocks->begin() + static_cast<ptrdiff_t>(moved));
  if (refused.ok()) return true;
  if (!absl::IsResourceExhausted(refused) && !absl::IsDataLoss(refused)) return refused;
  if (!swapped->empty()) REPRISE_RETURN_IF_ERROR(source_->FreeSwapped(*swapped));
  swapped->clear();
  return false;
}

absl::StatusOr<std::optional<uint32_t>> BlockManager::SwapOutState(uint32_t row) {
  const absl::StatusOr<uint32_t> state = source_->SwapOutState(row);
  if (absl::IsResourceExhausted(state.status())) return std::nullopt;
  if (!state.ok()) return state.status();
  return *state;
}

absl::StatusOr<BlockManager::SwappedIn> BlockManager::SwapIn(std::vector<uint32_t>* swapped,
                                                             std::vector<uint32_t>* blocks) {
  if (server_is_empty_) return SwappedIn::kNoRoom;
  // They come from the server's pool, not from what is free here.
  REPRISE_RETURN_IF_ERROR(ReturnAll());
  for (size_t moved = 0; moved < swapped->size();) {
    const std::vector<uint32_t> part = Part(*swapped, moved);
    const absl::StatusOr<std::vector<uint32_t>> taken = source_->SwapIn(part);
    if (taken.ok()) {
      held_ += static_cast<uint32_t>(part.size());
      blocks->insert(blocks->end(), taken->begin(), taken->end());
      moved += part.size();
      continue;
    }
    const bool is_full = absl::IsResourceExhausted(taken.status());
    if (!is_full && !absl::IsDataLoss(taken.status())) return taken.status();
    // What rows of steps in flight have had goes back to it soon.
    server_is_empty_ = is_full && free_.empty();
    if (is_full && moved == 0) return SwappedIn::kNoRoom;
    // Rows that wait hold no blocks: two with a part each could wait for each other.
    const auto left = static_cast<ptrdiff_t>(is_full ? moved : moved + part.size());
    const std::vector<uint32_t> rest(swapped->begin() + left, swapped->end());
    if (!rest.empty()) REPRISE_RETURN_IF_ERROR(source_->FreeSwapped(rest));
    PutBack(*blocks, 0);
    blocks->clear();
    swapped->clear();
    return SwappedIn::kLost;
  }
  swapped->clear();
  return SwappedIn::kDone;
}

void BlockManager::PutBack(const std::vector<uint32_t>& blocks, uint64_t sequence) {
  for (uint32_t block : blocks) free_.push_back({block, sequence});
}

absl::Status BlockManager::ReturnAll() { return ReturnDownTo(0); }

void BlockManager::Forget() {
  free_.clear();
  held_ = 0;
  acknowledged_ = 0;
  server_is_empty_ = false;
}

absl::Status BlockManager::ReturnDownTo(size_t keep) {
  std::vector<uint32_t> returned;
  std::deque<FreeBlock> kept;
  for (const FreeBlock& entry : free_) {
    const bool enough = free_.size() - returned.size() <= keep;
    if (enough || entry.usable_by_server_after > acknowledged_) {
      kept.push_back(entry);
    } else {
      returned.push_back(entry.block);
    }
  }
  if (returned.empty()) return absl::OkStatus();
  free_ = std::move(kept);
  held_ -= static_cast<uint32_t>(returned.size());
  return source_->Free(returned);
}

}  // namespace reprise::tools
