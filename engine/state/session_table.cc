// SPDX-License-Identifier: Apache-2.0
#include "engine/state/session_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

absl::Status NotOpen(SessionId id) {
  return absl::NotFoundError(absl::StrCat("session ", id, " is not open"));
}

}  // namespace

absl::Status Session::CheckOrder(const StepRequest& request) const {
  if (request.epoch != epoch)
    return absl::FailedPreconditionError(
        absl::StrCat("epoch is ", request.epoch, "; this session's is ", epoch));
  if (request.sequence != next_sequence)
    return absl::FailedPreconditionError(
        absl::StrCat("sequence is ", request.sequence, "; the next step is ", next_sequence));
  return absl::OkStatus();
}

absl::Status Session::CheckOwnBlocks(uint32_t count) const {
  const uint32_t held = num_blocks + num_shared;
  if (limits.max_blocks == 0 || uint64_t{held} + count <= limits.max_blocks)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("asked for ", count, " KV blocks; this session holds ", held, " of the ",
                   limits.max_blocks, " that a session may have"));
}

absl::Status Session::CheckBlocks(uint32_t count) const {
  REPRISE_RETURN_IF_ERROR(CheckOwnBlocks(count));
  const uint32_t allowed = account->limits.max_blocks;
  if (allowed != 0 && uint64_t{account->num_blocks} + count > allowed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("asked for ", count, " KV blocks; the sessions of this account hold ",
                     account->num_blocks, " of the ", allowed, " that they may have together"));
  }
  return absl::OkStatus();
}

absl::Status Session::CheckAccountRows(size_t num_added, size_t num_dropped) const {
  const uint32_t allowed = account->limits.max_rows;
  if (allowed == 0 || num_added == 0) return absl::OkStatus();
  const size_t would_have = account->num_rows - num_dropped + num_added;
  if (would_have <= allowed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the step adds ", num_added, " rows; the sessions of this account would have ",
                   would_have, " of the ", allowed, " that they may have together"));
}

void Session::AddBlocks(uint32_t count) {
  num_blocks += count;
  account->num_blocks += count;
}

void Session::RemoveBlocks(uint32_t count) {
  num_blocks -= count;
  account->num_blocks -= count;
}

void Session::ForgetImport(std::span<const uint32_t> blocks) {
  if (std::ranges::find(blocks, import.block) != blocks.end()) import = {};
}

void Session::NoteLaunch() {
  ++next_sequence;
  ++in_flight;
}

AccountId SessionTable::OpenAccount(const SessionLimits& limits) {
  accounts_.push_back({.limits = limits});
  return static_cast<AccountId>(accounts_.size() - 1);
}

void SessionTable::SetAccountLimits(AccountId account, const SessionLimits& limits) {
  REPRISE_CHECK(account != 0 && account < accounts_.size());
  accounts_[account].limits = limits;
}

SessionInfo SessionTable::Open(const SessionLimits& limits, AccountId account) {
  REPRISE_CHECK(account < accounts_.size());
  SessionAccount& held_by = accounts_[account];
  const SessionId id = next_session_++;
  Session& session = sessions_[id];
  session.epoch = next_epoch_++;
  session.limits = limits;
  session.account = &held_by;
  return {.id = id, .epoch = session.epoch};
}

bool SessionTable::IsOpen(SessionId id) const {
  const auto it = sessions_.find(id);
  return it != sessions_.end() && !it->second.closing;
}

absl::StatusOr<SessionUse> SessionTable::Use(SessionId id) const {
  if (!IsOpen(id)) return NotOpen(id);
  const Session& session = sessions_.at(id);
  return SessionUse{.num_rows = session.rows.count,
                    .num_blocks = session.num_blocks,
                    .num_shared = session.num_shared,
                    .num_swapped = session.num_swapped,
                    .last_sequence = session.next_sequence - 1};
}

absl::StatusOr<Session*> SessionTable::Find(SessionId id) {
  if (!IsOpen(id)) return NotOpen(id);
  return &sessions_.at(id);
}

absl::Status SessionTable::Close(SessionId id, std::vector<uint32_t>* freed) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, Find(id));
  session->closing = true;
  if (session->in_flight == 0) Release(id, freed);
  return absl::OkStatus();
}

void SessionTable::EndStep(SessionId id, std::vector<uint32_t>* freed) {
  Session& session = sessions_.at(id);
  --session.in_flight;
  if (session.closing && session.in_flight == 0) Release(id, freed);
}

void SessionTable::Release(SessionId id, std::vector<uint32_t>* freed) {
  Session& session = sessions_.at(id);
  const uint32_t count_before = session.rows.count;
  while (session.rows.first != kNoSlot) {
    const uint32_t slot = session.rows.first;
    for (const uint32_t block : rows_.table(slot).first(rows_.state(slot).table_length))
      ledger_.RemoveRow(block);
    rows_.Remove(slot, session.rows);
  }
  session.NoteRows(count_before);
  session.RemoveBlocks(session.num_blocks);
  shared_blocks_.ReleaseAll(id, session, freed);
  ledger_.FreeAll(id, freed);
  sessions_.erase(id);
}

}  // namespace reprise::engine
