// SPDX-License-Identifier: Apache-2.0
// SessionTable: the one book of sessions: which are open, which are being closed, how many steps of
// each are in flight, which rows each has and which step it runs next. A session that was closed
// goes, with its rows and blocks, when its last step in flight has ended. It knows no device.
// Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STATE_SESSION_TABLE_H_
#define REPRISE_ENGINE_STATE_SESSION_TABLE_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/session_info.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/shared_blocks.h"
#include "engine/step_request.h"

namespace reprise::engine {

// What sessions of one account hold together; those that are being closed count until they are
// gone.
struct SessionAccount {
  SessionLimits limits;
  uint32_t num_rows = 0;
  uint32_t num_blocks = 0;
};

// A block whose contents come in parts.
struct BlockImport {
  uint32_t block = 0;  // 0: none
  uint32_t next_layer = 0;
  uint32_t num_tokens = 0;
};

struct Session {
  uint64_t epoch = 0;
  uint64_t next_sequence = 1;
  uint32_t in_flight = 0;  // steps
  bool closing = false;
  RowList rows;
  uint32_t num_blocks = 0;    // that it holds alone
  uint32_t num_shared = 0;    // shared ones that it uses
  uint32_t num_swapped = 0;   // of its blocks that wait in swap space
  uint32_t num_exported = 0;  // places that it has in export space
  BlockImport import;
  SessionLimits limits;
  SessionAccount* account = nullptr;  // never nullptr of one that was opened

  // OK when it, and its account, may hold so many blocks more. Errors: ResourceExhausted (asked,
  // held, allowed).
  absl::Status CheckBlocks(uint32_t count) const;
  // The same of it alone.
  absl::Status CheckOwnBlocks(uint32_t count) const;
  // OK when its account has room for a step that adds and drops so many rows. Errors:
  // ResourceExhausted (asked, held, allowed).
  absl::Status CheckAccountRows(size_t num_added, size_t num_dropped) const;
  // It was given blocks, or has given them back.
  void AddBlocks(uint32_t count);
  void RemoveBlocks(uint32_t count);
  // These blocks are no longer its own.
  void ForgetImport(std::span<const uint32_t> blocks);
  // `rows` has changed since it had `count_before`.
  void NoteRows(uint32_t count_before) { account->num_rows += rows.count - count_before; }
  // Errors: FailedPrecondition on another epoch, or a sequence that is not the next.
  absl::Status CheckOrder(const StepRequest& request) const;
  // A step was launched.
  void NoteLaunch();
};

class SessionTable {
 public:
  // Views of both; sessions' epochs count up from `first_epoch`.
  SessionTable(RowTable& rows, BlockLedger& ledger, uint64_t first_epoch)
      : rows_(rows),
        ledger_(ledger),
        accounts_(1),
        shared_blocks_(rows, ledger),
        next_epoch_(first_epoch) {}

  AccountId OpenAccount(const SessionLimits& limits);
  // REQUIRES: `account` is one that OpenAccount returned; any other aborts.
  void SetAccountLimits(AccountId account, const SessionLimits& limits);
  // REQUIRES: `account` is 0 or one that OpenAccount returned; any other aborts.
  SessionInfo Open(const SessionLimits& limits, AccountId account);
  // Neither closed nor being closed.
  bool IsOpen(SessionId id) const;
  // Errors: NotFound, also when it is being closed.
  absl::StatusOr<SessionUse> Use(SessionId id) const;
  // Valid until the next Open, Close or EndStep. Errors: NotFound, also when it is being closed.
  absl::StatusOr<Session*> Find(SessionId id);
  // Both append the ids of blocks that became free with the session's end to `freed`, which may be
  // nullptr: then they allocate nothing. Close errors:
  // NotFound. EndStep: one of the session's steps in flight has its result.
  absl::Status Close(SessionId id, std::vector<uint32_t>* freed);
  void EndStep(SessionId id, std::vector<uint32_t>* freed);

  SharedBlocks& shared_blocks() { return shared_blocks_; }

 private:
  // Drops its rows and frees its blocks.
  void Release(SessionId id, std::vector<uint32_t>* freed);

  RowTable& rows_;
  BlockLedger& ledger_;
  std::deque<SessionAccount> accounts_;  // by id; sessions view them; the first has no limits
  SharedBlocks shared_blocks_;
  absl::flat_hash_map<SessionId, Session> sessions_;
  SessionId next_session_ = 1;
  uint64_t next_epoch_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STATE_SESSION_TABLE_H_
