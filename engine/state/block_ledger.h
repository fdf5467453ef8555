// SPDX-License-Identifier: Apache-2.0
// BlockLedger: who holds which KV block, and how many resident rows' tables name it. It keeps
// numbers only, no device memory. Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STATE_BLOCK_LEDGER_H_
#define REPRISE_ENGINE_STATE_BLOCK_LEDGER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace reprise::engine {

class BlockLedger {
 public:
  using Holder = uint64_t;  // a session; 0 is nobody

  // Ids 1 .. num_blocks - 1 start free; 0 is the scratch block and stays out of it.
  explicit BlockLedger(uint32_t num_blocks);

  // Appends `count` ids to `out`, lowest free first at the start, later the most recently freed
  // first. All or nothing. Errors: InvalidArgument on count 0; ResourceExhausted (asked, free).
  absl::Status Allocate(Holder holder, uint32_t count, std::vector<uint32_t>* out);
  // All or nothing. Errors: OutOfRange (no such id), PermissionDenied (not the holder's),
  // InvalidArgument (named twice), FailedPrecondition (a resident row's table names it).
  absl::Status Free(Holder holder, std::span<const uint32_t> blocks);
  // Appends everything the holder has to `out` and frees it. REQUIRES: no row names any of them.
  void FreeAll(Holder holder, std::vector<uint32_t>* out);

  // OK when `holder` holds `block`. Errors: OutOfRange (no such id), PermissionDenied.
  absl::Status CheckHeld(Holder holder, uint32_t block) const;
  // Resident rows whose table names the block.
  uint32_t rows_naming(uint32_t block) const { return rows_naming_[block]; }
  void AddRow(uint32_t block) { ++rows_naming_[block]; }
  void RemoveRow(uint32_t block) { --rows_naming_[block]; }

  uint32_t num_blocks() const { return static_cast<uint32_t>(holder_.size()); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  void Release(uint32_t block);

  std::vector<Holder> holder_;         // by block id; 0: free
  std::vector<uint32_t> rows_naming_;  // by block id
  std::vector<uint32_t> free_;         // stack
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STATE_BLOCK_LEDGER_H_
