// SPDX-License-Identifier: Apache-2.0
// SharedBlocks: full KV blocks that sessions of one account read together, under names of the
// account's. A session shares blocks of its own; from then on they are nobody's alone and nobody
// writes them. They stay as long as a session uses them, the one that shared them or another. Names
// of other accounts are as good as none: there is no telling whether they exist.
//
// Quotas: an account holds a shared block once. A session holds it as long as it uses it.
//
// It keeps numbers only, no device memory. Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STATE_SHARED_BLOCKS_H_
#define REPRISE_ENGINE_STATE_SHARED_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/session_info.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"

namespace reprise::engine {

struct Session;
struct SessionAccount;

class SharedBlocks {
 public:
  static constexpr size_t kMaxNameBytes = 64;

  // Views of both.
  SharedBlocks(RowTable& rows, BlockLedger& ledger) : rows_(rows), ledger_(ledger) {}

  // The session's blocks are shared under `name` from now on, and it uses them. `block_size`: in
  // tokens. Errors (nothing changed): InvalidArgument (name; a block named twice), OutOfRange (no
  // block, or more than a row's table takes; no such block), PermissionDenied (not the session's),
  // FailedPrecondition (a block that is not full, or shared already), AlreadyExists (the name, for
  // this account).
  absl::Status Share(SessionId id, Session& session, std::string_view name,
                     std::span<const uint32_t> blocks, uint32_t block_size);
  // The session uses what has been shared under the name; that too when it does so already. Valid
  // until the next call. Errors (nothing changed): NotFound, ResourceExhausted (what a session may
  // hold).
  absl::StatusOr<std::span<const uint32_t>> Adopt(SessionId id, Session& session,
                                                  std::string_view name);
  // The session does not use them any more. Those that nobody uses are free, and appended to
  // `freed`. Errors (nothing changed): NotFound (also where the session does not use them),
  // FailedPrecondition (a resident row of the session has one of them in its table).
  absl::Status Release(SessionId id, Session& session, std::string_view name,
                       std::vector<uint32_t>* freed);
  // All that the session uses. `freed`: as BlockLedger::FreeAll. Allocates nothing where it is
  // nullptr. REQUIRES: the session has no rows.
  void ReleaseAll(SessionId id, Session& session, std::vector<uint32_t>* freed);

  size_t num_names() const { return shared_.size(); }

 private:
  using Key = std::pair<const SessionAccount*, std::string>;
  struct Shared {
    BlockLedger::Holder holder = 0;
    SessionAccount* account = nullptr;
    std::vector<uint32_t> blocks;
    std::vector<SessionId> users;
  };
  using Names = std::map<Key, Shared, std::less<>>;

  absl::Status CheckShare(SessionId id, const Session& session, std::string_view name,
                          std::span<const uint32_t> blocks, uint32_t block_size) const;
  // Errors: NotFound.
  absl::StatusOr<Names::iterator> Find(const Session& session, std::string_view name);
  bool HasRowWith(const Session& session, BlockLedger::Holder holder) const;
  // The next one behind it.
  Names::iterator Leave(Names::iterator shared, SessionId id, Session& session,
                        std::vector<uint32_t>* freed);

  RowTable& rows_;
  BlockLedger& ledger_;
  Names shared_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STATE_SHARED_BLOCKS_H_
