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

absl::Status BlockManager::ReturnAll() { return ReturnDownTo(0); }

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
