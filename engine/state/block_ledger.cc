// SPDX-License-Identifier: Apache-2.0
#include "engine/state/block_ledger.h"

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

BlockLedger::BlockLedger(uint32_t num_blocks, uint32_t tokens_at_start)
    : tokens_at_start_(tokens_at_start),
      holder_(num_blocks, 0),
      writer_(num_blocks, 0),
      num_written_(num_blocks, 0),
      rows_naming_(num_blocks, 0) {
  REPRISE_CHECK(num_blocks >= 1);
  free_.reserve(num_blocks);
  for (uint32_t block = num_blocks - 1; block >= 1; --block) free_.push_back(block);
}

absl::Status BlockLedger::Allocate(Holder holder, uint32_t count, std::vector<uint32_t>* out) {
  if (count == 0) return absl::InvalidArgumentError("asked for 0 blocks; allowed: at least 1");
  if (count > free_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("asked for ", count, " KV blocks; ",
                                                     free_.size(), " of ", holder_.size() - 1,
                                                     " are free"));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t block = free_.back();
    free_.pop_back();
    holder_[block] = holder;
    num_written_[block] = tokens_at_start_;
    out->push_back(block);
  }
  return absl::OkStatus();
}

absl::Status BlockLedger::CheckHeld(Holder holder, uint32_t block) const {
  if (block == 0 || block >= holder_.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("block ", block, " does not exist; allowed: 1 to ", holder_.size() - 1));
  }
  if (holder_[block] != holder && !readers_.contains({holder_[block], holder})) {
    return absl::PermissionDeniedError(
        absl::StrCat("block ", block, " is not held by this session",
                     holder_[block] == 0 ? " (it is free)" : " (another session holds it)"));
  }
  return absl::OkStatus();
}

absl::Status BlockLedger::CheckOwned(Holder holder, uint32_t block) const {
  REPRISE_RETURN_IF_ERROR(CheckHeld(holder, block));
  if (!is_shared(block)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("block ", block, " is shared; allowed: blocks of this session alone"));
}

BlockLedger::Holder BlockLedger::Share(Holder holder, std::span<const uint32_t> blocks) {
  const Holder shared = next_shared_++;
  AddReader(shared, holder);
  for (const uint32_t block : blocks) holder_[block] = shared;
  return shared;
}

void BlockLedger::FreeShared(Holder shared, std::span<const uint32_t> blocks) {
  for (const uint32_t block : blocks) {
    REPRISE_CHECK(holder_[block] == shared && rows_naming_[block] == 0);
    Release(block);
  }
}

void BlockLedger::Release(uint32_t block) {
  holder_[block] = 0;
  free_.push_back(block);
}

absl::Status BlockLedger::Free(Holder holder, std::span<const uint32_t> blocks) {
  absl::Status status = absl::OkStatus();
  size_t done = 0;
  // Released one by one, so that an id named twice is seen as free the second time.
  for (; done < blocks.size() && status.ok(); ++done) {
    const uint32_t block = blocks[done];
    status = CheckOwned(holder, block);
    if (!status.ok() && block != 0 && block < holder_.size() && holder_[block] == 0) {
      for (size_t i = 0; i < done; ++i) {
        if (blocks[i] == block)
          status = absl::InvalidArgumentError(absl::StrCat("block ", block, " is named twice"));
      }
    }
    if (status.ok() && rows_naming_[block] != 0) {
      status = absl::FailedPreconditionError(absl::StrCat("block ", block, " is in the table of ",
                                                          rows_naming_[block],
                                                          " resident row(s); drop them first"));
    }
    if (status.ok()) Release(block);
  }
  if (status.ok()) return status;
  // The last one examined failed and was not released; take the others back.
  for (size_t i = done - 1; i-- > 0;) {
    holder_[blocks[i]] = holder;
    free_.pop_back();
  }
  return status;
}

void BlockLedger::FreeAll(Holder holder, std::vector<uint32_t>* out) {
  for (uint32_t block = 1; block < holder_.size(); ++block) {
    if (holder_[block] != holder) continue;
    REPRISE_CHECK(rows_naming_[block] == 0);
    Release(block);
    if (out != nullptr) out->push_back(block);
  }
}

}  // namespace reprise::engine
