// SPDX-License-Identifier: Apache-2.0
#include "engine/state/shared_blocks.h"

#include <algorithm>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/state/session_table.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

absl::Status NotShared() {
  return absl::NotFoundError(
      "name: got one under which this session can use no blocks, allowed: one that a session of "
      "its identity shares blocks under");
}

}  // namespace

absl::Status SharedBlocks::CheckShare(SessionId id, const Session& session, std::string_view name,
                                      std::span<const uint32_t> blocks, uint32_t block_size) const {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: got ", name.size(), " bytes, allowed 1 to ", kMaxNameBytes));
  }
  if (blocks.empty() || blocks.size() > rows_.max_blocks_per_row()) {
    return absl::OutOfRangeError(absl::StrCat("blocks: got ", blocks.size(), ", allowed 1 to ",
                                              rows_.max_blocks_per_row(),
                                              ", as many as a row's table takes"));
  }
  for (const uint32_t block : blocks) {
    REPRISE_RETURN_IF_ERROR(ledger_.CheckOwned(id, block));
    if (ledger_.num_written(block) == block_size) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("block ", block, ": this session has written ", ledger_.num_written(block),
                     " of its ", block_size, " tokens; allowed: blocks that are full"));
  }
  std::vector<uint32_t> sorted(blocks.begin(), blocks.end());
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return absl::InvalidArgumentError(absl::StrCat("block ", *twice, " is named twice"));
  if (shared_.contains(Key(session.account, name))) {
    return absl::AlreadyExistsError(
        "name: got one under which blocks are shared already, allowed: another");
  }
  return absl::OkStatus();
}

absl::Status SharedBlocks::Share(SessionId id, Session& session, std::string_view name,
                                 std::span<const uint32_t> blocks, uint32_t block_size) {
  REPRISE_RETURN_IF_ERROR(CheckShare(id, session, name, blocks, block_size));
  const auto shared =
      shared_
          .emplace(Key(session.account, name), Shared{.account = session.account,
                                                      .blocks = {blocks.begin(), blocks.end()},
                                                      .users = {id}})
          .first;
  absl::Cleanup forget = [&] { shared_.erase(shared); };  // where memory runs out
  shared->second.holder = ledger_.Share(id, blocks);
  std::move(forget).Cancel();
  const auto count = static_cast<uint32_t>(blocks.size());
  session.num_blocks -= count;  // of the account's they go on to be
  session.num_shared += count;
  return absl::OkStatus();
}

absl::StatusOr<SharedBlocks::Names::iterator> SharedBlocks::Find(const Session& session,
                                                                 std::string_view name) {
  const auto found = shared_.find(Key(session.account, name));
  if (found == shared_.end()) return NotShared();
  return found;
}

absl::StatusOr<std::span<const uint32_t>> SharedBlocks::Adopt(SessionId id, Session& session,
                                                              std::string_view name) {
  REPRISE_ASSIGN_OR_RETURN(const auto found, Find(session, name));
  Shared& shared = found->second;
  if (std::ranges::find(shared.users, id) == shared.users.end()) {
    const auto count = static_cast<uint32_t>(shared.blocks.size());
    REPRISE_RETURN_IF_ERROR(session.CheckOwnBlocks(count));
    shared.users.reserve(shared.users.size() + 1);
    ledger_.AddReader(shared.holder, id);
    shared.users.push_back(id);
    session.num_shared += count;
  }
  return std::span<const uint32_t>(shared.blocks);
}

bool SharedBlocks::HasRowWith(const Session& session, BlockLedger::Holder holder) const {
  for (uint32_t slot = session.rows.first; slot != kNoSlot; slot = rows_.state(slot).next) {
    const auto table = rows_.table(slot).first(rows_.state(slot).table_length);
    if (std::ranges::any_of(table, [&](uint32_t b) { return ledger_.holder(b) == holder; }))
      return true;
  }
  return false;
}

absl::Status SharedBlocks::Release(SessionId id, Session& session, std::string_view name,
                                   std::vector<uint32_t>* freed) {
  REPRISE_ASSIGN_OR_RETURN(const auto found, Find(session, name));
  const Shared& shared = found->second;
  if (std::ranges::find(shared.users, id) == shared.users.end()) return NotShared();
  if (HasRowWith(session, shared.holder)) {
    return absl::FailedPreconditionError(
        "name: got one of whose blocks one is in the table of a resident row of this session; drop "
        "it first");
  }
  Leave(found, id, session, freed);
  return absl::OkStatus();
}

SharedBlocks::Names::iterator SharedBlocks::Leave(Names::iterator shared, SessionId id,
                                                  Session& session, std::vector<uint32_t>* freed) {
  Shared& left = shared->second;
  const auto count = static_cast<uint32_t>(left.blocks.size());
  std::erase(left.users, id);
  ledger_.RemoveReader(left.holder, id);
  session.num_shared -= count;
  if (!left.users.empty()) return std::next(shared);
  if (freed != nullptr) freed->insert(freed->end(), left.blocks.begin(), left.blocks.end());
  ledger_.FreeShared(left.holder, left.blocks);
  left.account->num_blocks -= count;
  return shared_.erase(shared);
}

void SharedBlocks::ReleaseAll(SessionId id, Session& session, std::vector<uint32_t>* freed) {
  if (session.num_shared == 0) return;
  for (auto shared = shared_.begin(); shared != shared_.end();) {
    const bool uses = std::ranges::find(shared->second.users, id) != shared->second.users.end();
    shared = uses ? Leave(shared, id, session, freed) : std::next(shared);
  }
}

}  // namespace reprise::engine
