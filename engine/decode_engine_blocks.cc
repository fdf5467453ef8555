// SPDX-License-Identifier: Apache-2.0
// Sessions and their KV blocks: given, freed, shared, read, written, swapped and exported.
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine_impl.h"
#include "engine/memory_fill.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

// ---- sessions and blocks ----

PoolInfo DecodeEngine::Impl::pool() const {
  absl::MutexLock lock(&mutex_);
  return {.block_size = info().limits.block_size,
          .num_blocks = parts_->pool.num_blocks(),
          .free_blocks = ledger_.num_free(),
          .bytes = parts_->pool.bytes(),
          .swap_blocks = transfer_.swap().num_places(),
          .free_swap_blocks = transfer_.swap().num_free(),
          .swap_states = transfer_.states().num_places(),
          .free_swap_states = transfer_.states().num_free(),
          .export_blocks = transfer_.exports().num_places(),
          .free_export_blocks = transfer_.exports().num_free()};
}

uint32_t DecodeEngine::Impl::num_resident_rows() const {
  absl::MutexLock lock(&mutex_);
  return rows_.max_rows() - rows_.num_free();
}

AccountId DecodeEngine::Impl::OpenAccount(const SessionLimits& limits) {
  absl::MutexLock lock(&mutex_);
  return sessions_.OpenAccount(limits);
}

void DecodeEngine::Impl::SetAccountLimits(AccountId account, const SessionLimits& limits) {
  absl::MutexLock lock(&mutex_);
  sessions_.SetAccountLimits(account, limits);
}

SessionInfo DecodeEngine::Impl::OpenSession(const SessionLimits& limits, AccountId account) {
  absl::MutexLock lock(&mutex_);
  return sessions_.Open(limits, account);
}

bool DecodeEngine::Impl::IsOpen(SessionId id) const {
  absl::MutexLock lock(&mutex_);
  return sessions_.IsOpen(id);
}

absl::StatusOr<SessionUse> DecodeEngine::Impl::session_use(SessionId id) const {
  absl::MutexLock lock(&mutex_);
  return sessions_.Use(id);
}

absl::Status DecodeEngine::Impl::CloseSession(SessionId id) {
  absl::MutexLock lock(&mutex_);
  std::vector<uint32_t> freed;
  REPRISE_RETURN_IF_ERROR(sessions_.Close(id, parts_->diagnostics.poison ? &freed : nullptr));
  transfer_.DropSwapped(id);
  transfer_.DropExported(id);
  return PoisonFreed(freed);
}

absl::StatusOr<std::vector<uint32_t>> DecodeEngine::Impl::AllocateBlocks(SessionId id,
                                                                         uint32_t count) {
  absl::MutexLock lock(&mutex_);
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(session->CheckBlocks(count));
  std::vector<uint32_t> blocks;
  REPRISE_RETURN_IF_ERROR(ledger_.Allocate(id, count, &blocks));
  session->AddBlocks(count);
  REPRISE_RETURN_IF_ERROR(ClearOthersTokens(blocks));
  return blocks;
}

absl::Status DecodeEngine::Impl::ClearOthersTokens(std::span<const uint32_t> blocks) {
  clear_.clear();
  for (const uint32_t block : blocks)
    if (ledger_.HasOthersTokens(block)) clear_.push_back(block);
  if (clear_.empty() || !fault_.ok() || parts_->simulated != nullptr) return absl::OkStatus();
  const absl::Status status =
      FillBlocks(*parts_->stream, *parts_->kernel_set, parts_->pool, clear_, 0.0f);
  if (!status.ok()) return Fault(status);
  for (const uint32_t block : clear_) ledger_.NoteCleared(block);
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::FreeBlocks(SessionId id, std::span<const uint32_t> blocks) {
  absl::MutexLock lock(&mutex_);
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(ledger_.Free(id, blocks));
  session->ForgetImport(blocks);
  session->RemoveBlocks(static_cast<uint32_t>(blocks.size()));
  return PoisonFreed(blocks);
}

absl::Status DecodeEngine::Impl::ShareBlocks(SessionId id, std::string_view name,
                                             std::span<const uint32_t> blocks) {
  absl::MutexLock lock(&mutex_);
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  return sessions_.shared_blocks().Share(id, *session, name, blocks, info().limits.block_size);
}

absl::StatusOr<std::vector<uint32_t>> DecodeEngine::Impl::AdoptBlocks(SessionId id,
                                                                      std::string_view name) {
  absl::MutexLock lock(&mutex_);
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_ASSIGN_OR_RETURN(const std::span<const uint32_t> blocks,
                           sessions_.shared_blocks().Adopt(id, *session, name));
  return std::vector<uint32_t>(blocks.begin(), blocks.end());
}

absl::Status DecodeEngine::Impl::ReleaseBlocks(SessionId id, std::string_view name) {
  absl::MutexLock lock(&mutex_);
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  std::vector<uint32_t> freed;
  REPRISE_RETURN_IF_ERROR(sessions_.shared_blocks().Release(
      id, *session, name, parts_->diagnostics.poison ? &freed : nullptr));
  return PoisonFreed(freed);
}

absl::Status DecodeEngine::Impl::PoisonFreed(std::span<const uint32_t> blocks) {
  if (!parts_->diagnostics.poison || !fault_.ok()) return absl::OkStatus();
  const absl::Status status = FillBlocks(*parts_->stream, *parts_->kernel_set, parts_->pool, blocks,
                                         std::numeric_limits<float>::quiet_NaN());
  if (!status.ok()) return Fault(status);
  for (const uint32_t block : blocks) ledger_.NoteCleared(block);
  return absl::OkStatus();
}

// ---- blocks that leave the pool and come back ----

absl::Status DecodeEngine::Impl::NoteTransfer(const KvTransfer::Fault& fault,
                                              const absl::Status& status) {
  return fault.status.ok() ? status : Fault(fault.status);
}

absl::Status DecodeEngine::Impl::ReadBlocks(SessionId id, std::span<KvPart> parts,
                                            std::vector<std::byte>* contents) {
  absl::MutexLock transfer(&transfer_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    REPRISE_RETURN_IF_ERROR(RefuseFault());
    KvTransfer::Fault fault;
    const absl::Status begun = transfer_.BeginRead(id, parts, &fault);
    REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, begun));
  }
  const absl::Status read = transfer_.EndRead(parts, contents);  // without the lock
  if (read.ok()) return read;
  absl::MutexLock lock(&mutex_);
  return Fault(read);
}

absl::Status DecodeEngine::Impl::WriteBlocks(SessionId id, std::span<const KvPart> parts,
                                             std::span<const std::byte> contents) {
  absl::MutexLock transfer(&transfer_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    REPRISE_RETURN_IF_ERROR(RefuseFault());
    KvTransfer::Fault fault;
    const absl::Status begun = transfer_.BeginWrite(id, parts, contents, &fault);
    REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, begun));
  }
  const absl::Status written = transfer_.EndWrite();  // without the lock
  if (written.ok()) return written;
  absl::MutexLock lock(&mutex_);
  return Fault(written);
}

absl::StatusOr<std::vector<uint32_t>> DecodeEngine::Impl::SwapOut(
    SessionId id, std::span<const uint32_t> blocks) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  KvTransfer::Fault fault;
  absl::StatusOr<std::vector<uint32_t>> swapped = transfer_.SwapOut(id, blocks, &fault);
  REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, swapped.status()));
  REPRISE_RETURN_IF_ERROR(PoisonFreed(blocks));
  return swapped;
}

absl::StatusOr<std::vector<uint32_t>> DecodeEngine::Impl::SwapIn(
    SessionId id, std::span<const uint32_t> swapped) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  KvTransfer::Fault fault;
  absl::StatusOr<std::vector<uint32_t>> blocks = transfer_.SwapIn(id, swapped, &fault);
  REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, blocks.status()));
  return blocks;
}

absl::Status DecodeEngine::Impl::FreeSwapped(SessionId id, std::span<const uint32_t> swapped,
                                             std::span<const uint32_t> states) {
  absl::MutexLock lock(&mutex_);
  return transfer_.FreeSwapped(id, swapped, states);
}

absl::StatusOr<SwappedState> DecodeEngine::Impl::SwapOutState(SessionId id, uint32_t row) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  REPRISE_RETURN_IF_ERROR(sessions_.Find(id).status());
  if (info().limits.row_state_bytes == 0) {
    return absl::FailedPreconditionError(
        "states of rows: got a model whose rows carry nothing beside their KV; allowed: one whose "
        "rows do");
  }
  const uint32_t slot = rows_.Find(id, row);
  if (slot == kNoSlot) return absl::NotFoundError(absl::StrCat("row ", row, " is not resident"));
  RowState& state = rows_.state(slot);
  // In a step that has not been waited for it may stop.
  if (state.last_step >= next_wait_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "row ", row, " has steps in flight; allowed: once their results were waited for"));
  }
  if (state.lost_result || state.context_length == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("row ", row, state.lost_result ? " has lost a result" : " has no tokens",
                     "; allowed: a row of a known number of tokens, 1 or more"));
  }
  KvTransfer::Fault fault;
  const absl::StatusOr<uint32_t> place = transfer_.SwapOutState(id, slot, &state, &fault);
  REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, place.status()));
  return SwappedState{.place = *place, .context_length = state.context_length};
}

ExportSpace DecodeEngine::Impl::export_space() const {
  const models::KvGeometry& geometry = parts_->pool.geometry();
  return {.num_places = parts_->num_export_places,
          .data = parts_->export_space.data(),
          .handle = parts_->export_space.handle(),
          .arrangement = absl::StrCat(
              std::string(runtime::NameOf(info().device.kind)), " ", info().device.architecture,
              geometry.swizzled ? " swizzled" : " plain", " ", geometry.BlockBytes())};
}

absl::StatusOr<runtime::OpenedBuffer> DecodeEngine::Impl::OpenExportSpace(
    std::string_view handle, uint32_t num_places) const {
  return runtime::OpenedBuffer::Open(parts_->device, handle,
                                     num_places * parts_->pool.geometry().BlockBytes());
}

void DecodeEngine::Impl::OnExportsFreed(ExportsFreedFn freed) {
  absl::MutexLock lock(&mutex_);
  transfer_.OnExportsFreed(std::move(freed));
}

absl::Status DecodeEngine::Impl::ExportBlocks(SessionId id, std::span<const uint32_t> blocks,
                                              const PublishExportsFn& publish) {
  absl::MutexLock transfer(&transfer_mutex_);
  std::vector<ExportedBlock> exported;
  {
    absl::MutexLock lock(&mutex_);
    REPRISE_RETURN_IF_ERROR(RefuseFault());
    KvTransfer::Fault fault;
    absl::StatusOr<std::vector<ExportedBlock>> begun = transfer_.BeginExport(id, blocks, &fault);
    REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, begun.status()));
    exported = *std::move(begun);
  }
  const absl::Status copied = transfer_.EndExport();  // without the lock
  absl::MutexLock lock(&mutex_);
  if (!copied.ok()) return Fault(copied);
  return transfer_.Publish(id, exported, publish);
}

absl::Status DecodeEngine::Impl::FreeExported(SessionId id, std::span<const uint32_t> places) {
  absl::MutexLock lock(&mutex_);
  return transfer_.FreeExported(id, places);
}

absl::Status DecodeEngine::Impl::ImportBlocks(SessionId id, std::span<const uint32_t> blocks,
                                              const ImportSource& source) {
  absl::MutexLock transfer(&transfer_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    REPRISE_RETURN_IF_ERROR(RefuseFault());
    KvTransfer::Fault fault;
    const absl::Status begun = transfer_.BeginImport(id, blocks, source, &fault);
    REPRISE_RETURN_IF_ERROR(NoteTransfer(fault, begun));
  }
  const absl::Status copied = transfer_.EndImport();  // without the lock
  absl::MutexLock lock(&mutex_);
  if (!copied.ok()) return Fault(copied);
  REPRISE_RETURN_IF_ERROR(source.check());
  return transfer_.CompleteImport(id, blocks, source);
}

}  // namespace reprise::engine
