// SPDX-License-Identifier: Apache-2.0
// BlockLedger: who holds which KV block, how many resident rows' tables name it, whose tokens are
// in it and how many of them its holder has written. A block that is shared has readers in place of
// a holder (shared_blocks.h). It keeps numbers only, no device memory.
// Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STATE_BLOCK_LEDGER_H_
#define REPRISE_ENGINE_STATE_BLOCK_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"

namespace reprise::engine {

class BlockLedger {
 public:
  using Holder = uint64_t;  // a session; 0 is nobody

  // Ids 1 .. num_blocks - 1 start free; 0 is the scratch block and stays out of it.
  // `tokens_at_start`: that count as written by whoever is given a block (of a pool that was filled
  // for measuring).
  explicit BlockLedger(uint32_t num_blocks, uint32_t tokens_at_start = 0);

  // Appends `count` ids to `out`, lowest free first at the start, later the most recently freed
  // first. All or nothing. Errors: InvalidArgument on count 0; ResourceExhausted (asked, free).
  absl::Status Allocate(Holder holder, uint32_t count, std::vector<uint32_t>* out);
  // All or nothing. Errors: OutOfRange (no such id), PermissionDenied (not the holder's),
  // InvalidArgument (named twice), FailedPrecondition (a resident row's table names it, or it is
  // shared).
  absl::Status Free(Holder holder, std::span<const uint32_t> blocks);
  // Frees everything the holder has, and appends it to `out` unless that is nullptr. REQUIRES: no
  // row names any of them.
  void FreeAll(Holder holder, std::vector<uint32_t>* out);

  // OK when `holder` holds `block`, or is among its readers. Errors: OutOfRange (no such id),
  // PermissionDenied.
  absl::Status CheckHeld(Holder holder, uint32_t block) const;
  // OK when it may write there. Errors, besides: FailedPrecondition (it is shared).
  absl::Status CheckOwned(Holder holder, uint32_t block) const;

  // The holder's blocks are shared from now on, and it is their one reader; what stands for its
  // readers. REQUIRES: `holder` owns them.
  Holder Share(Holder holder, std::span<const uint32_t> blocks);
  void AddReader(Holder shared, Holder reader) { readers_.insert({shared, reader}); }
  void RemoveReader(Holder shared, Holder reader) { readers_.erase({shared, reader}); }
  // REQUIRES: they were shared together, have no reader any more, and no row names any of them.
  void FreeShared(Holder shared, std::span<const uint32_t> blocks);
  bool is_shared(uint32_t block) const { return holder_[block] >= kFirstShared; }
  // A session, what stands for readers, or 0.
  Holder holder(uint32_t block) const { return holder_[block]; }
  // Resident rows whose table names the block.
  uint32_t rows_naming(uint32_t block) const { return rows_naming_[block]; }
  void AddRow(uint32_t block) { ++rows_naming_[block]; }
  void RemoveRow(uint32_t block) { --rows_naming_[block]; }

  // Tokens at the start of the block that its holder has written since it was given it, at most:
  // steps in flight count, also those of a row that turns out to have stopped before them.
  uint32_t num_written(uint32_t block) const { return num_written_[block]; }
  // The holder writes tokens up to `end` in a block that it holds.
  void NoteWritten(uint32_t block, uint32_t end) {
    num_written_[block] = std::max(num_written_[block], end);
    writer_[block] = holder_[block];
  }
  // What is known of a block's contents.
  struct Written {
    uint32_t num_tokens = 0;
    Holder writer = 0;
  };
  Written written(uint32_t block) const { return {num_written_[block], writer_[block]}; }
  // Takes back what was noted since `written` was asked for.
  void Restore(uint32_t block, const Written& written) {
    num_written_[block] = written.num_tokens;
    writer_[block] = written.writer;
  }
  // All of the block is its holder's from now on, who has written so many tokens: it was
  // overwritten as a whole.
  void NoteReplaced(uint32_t block, uint32_t num_tokens) {
    num_written_[block] = num_tokens;
    writer_[block] = holder_[block];
  }
  // Whether tokens of somebody else than its holder may be in the block.
  bool HasOthersTokens(uint32_t block) const {
    return writer_[block] != 0 && writer_[block] != holder_[block];
  }
  // Nobody's tokens are in the block any more.
  void NoteCleared(uint32_t block) { writer_[block] = 0; }

  uint32_t num_blocks() const { return static_cast<uint32_t>(holder_.size()); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  // What stands for readers; sessions count up from 1.
  static constexpr Holder kFirstShared = Holder{1} << 63;

  void Release(uint32_t block);

  const uint32_t tokens_at_start_;
  std::vector<Holder> holder_;         // by block id; 0: free
  std::vector<Holder> writer_;         // by block id: who wrote there last; 0: nobody
  std::vector<uint32_t> num_written_;  // by block id
  std::vector<uint32_t> rows_naming_;  // by block id
  std::vector<uint32_t> free_;         // stack
  Holder next_shared_ = kFirstShared;
  absl::flat_hash_set<std::pair<Holder, Holder>> readers_;  // of what, who
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STATE_BLOCK_LEDGER_H_
