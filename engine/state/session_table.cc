// SPDX-License-Identifier: Apache-2.0
#include "engine/state/session_table.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

absl::Status Session::CheckOrder(const StepRequest& request) const {
  if (request.epoch != epoch)
    return absl::FailedPreconditionError(
        absl::StrCat("epoch is ", request.epoch, "; this session's is ", epoch));
  if (request.sequence != next_sequence)
    return absl::FailedPreconditionError(
        absl::StrCat("sequence is ", request.sequence, "; the next step is ", next_sequence));
  return absl::OkStatus();
}

absl::Status Session::CheckBlocks(uint32_t count) const {
  if (limits.max_blocks == 0 || uint64_t{num_blocks} + count <= limits.max_blocks)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("asked for ", count, " KV blocks; this session holds ", num_blocks, " of the ",
                   limits.max_blocks, " that a session may have"));
}

void Session::NoteLaunch() {
  ++next_sequence;
  ++in_flight;
}

SessionInfo SessionTable::Open(const SessionLimits& limits) {
  const SessionId id = next_session_++;
  Session& session = sessions_[id];
  session.epoch = next_epoch_++;
  session.limits = limits;
  return {.id = id, .epoch = session.epoch};
}

bool SessionTable::IsOpen(SessionId id) const {
  const auto it = sessions_.find(id);
  return it != sessions_.end() && !it->second.closing;
}

absl::StatusOr<Session*> SessionTable::Find(SessionId id) {
  if (!IsOpen(id)) return absl::NotFoundError(absl::StrCat("session ", id, " is not open"));
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
  while (session.rows.first != kNoSlot) {
    const uint32_t slot = session.rows.first;
    for (const uint32_t block : rows_.table(slot).first(rows_.state(slot).table_length))
      ledger_.RemoveRow(block);
    rows_.Remove(slot, session.rows);
  }
  ledger_.FreeAll(id, freed);
  sessions_.erase(id);
}

}  // namespace reprise::engine
