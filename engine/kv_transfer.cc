// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_transfer.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "engine/kv_format.h"
#include "engine/memory_copy.h"
#include "kernels/block_copy/block_copy.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

BlockLayers LayersOf(const KvPart& part) {
  return {.block = part.block, .first = part.first_layer, .count = part.num_layers};
}

absl::Status CheckCount(const char* what, size_t count) {
  if (count >= 1 && count <= kMaxKvBlocksPerCall) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("names ", count, " ", what, "; allowed: 1 to ", kMaxKvBlocksPerCall));
}

absl::Status CheckInNoTable(const BlockLedger& ledger, uint32_t block) {
  const uint32_t rows = ledger.rows_naming(block);
  if (rows == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("block ", block, " is in the table of ", rows,
                                                    " resident row(s); drop them first"));
}

}  // namespace

KvTransfer::KvTransfer(const EngineParts& parts, BlockLedger& ledger, SessionTable& sessions)
    : parts_(parts),
      ledger_(ledger),
      sessions_(sessions),
      swap_(parts.num_swap_places),
      states_(parts.num_state_places,
              {.space = "swap space for states", .place = "swapped state", .many = "rows"}),
      state_origins_(parts.num_state_places),
      exports_(parts.num_export_places, {.space = "export space", .place = "exported block"}) {}

// ---- contents ----

absl::Status KvTransfer::CheckHasMemory() const {
  if (has_memory()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "KV contents: this engine simulates its device, and its blocks hold none; allowed: an "
      "engine that runs the model");
}

absl::Status KvTransfer::CheckContents(std::span<const KvPart> parts) const {
  REPRISE_RETURN_IF_ERROR(CheckHasMemory());
  return CheckCount("parts of KV blocks", parts.size());
}

absl::Status KvTransfer::CheckPart(SessionId id, const KvPart& part) const {
  REPRISE_RETURN_IF_ERROR(ledger_.CheckHeld(id, part.block));
  const uint32_t layers = parts_.info.kv.num_layers;
  if (part.num_layers >= 1 && part.first_layer < layers &&
      part.num_layers <= layers - part.first_layer)
    return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("block ", part.block, ": ", part.num_layers,
                                            " layers from layer ", part.first_layer,
                                            " on; allowed: at least 1 of the model's ", layers));
}

absl::Status KvTransfer::BeginRead(SessionId id, std::span<KvPart> parts, Fault* fault) {
  REPRISE_RETURN_IF_ERROR(sessions_.Find(id).status());
  REPRISE_RETURN_IF_ERROR(CheckContents(parts));
  uint64_t bytes = 0;
  for (const KvPart& part : parts) {
    REPRISE_RETURN_IF_ERROR(CheckPart(id, part));
    bytes += parts_.info.kv.WholeBytesOf(part);
  }
  if (bytes > parts_.info.max_kv_transfer_bytes) {
    return absl::OutOfRangeError(absl::StrCat("parts of KV blocks take ", bytes,
                                              " bytes; allowed: at most ",
                                              parts_.info.max_kv_transfer_bytes, " in one call"));
  }
  for (KvPart& part : parts) part.num_tokens = ledger_.num_written(part.block);
  fault->status = EnqueueRead(parts);
  return fault->status;
}

absl::Status KvTransfer::EnqueueRead(std::span<const KvPart> parts) {
  std::byte* to = parts_.kv_staging.device();
  for (const KvPart& part : parts) {
    REPRISE_RETURN_IF_ERROR(
        CopyLayersOut(*parts_.stream, *parts_.kernel_set, parts_.pool, LayersOf(part), to));
    to += parts_.info.kv.WholeBytesOf(part);
  }
  return EnqueueNotice();
}

absl::Status KvTransfer::EndRead(std::span<const KvPart> parts, std::vector<std::byte>* contents) {
  REPRISE_RETURN_IF_ERROR(AwaitNotice());
  const KvShape& shape = parts_.info.kv;
  const kernels::KvLayout layout = parts_.pool.geometry().layout();
  const std::byte* from = parts_.kv_staging.host();
  for (const KvPart& part : parts) {
    const size_t begin = contents->size();
    contents->resize(begin + shape.BytesOf(part));
    PackTokens(layout, part.num_layers, part.num_tokens, from, contents->data() + begin);
    from += shape.WholeBytesOf(part);
  }
  return absl::OkStatus();
}

absl::Status KvTransfer::CheckImport(const KvPart& part, BlockImport* import) const {
  REPRISE_RETURN_IF_ERROR(CheckInNoTable(ledger_, part.block));
  const uint32_t block_size = parts_.info.kv.block_size;
  if (part.num_tokens < 1 || part.num_tokens > block_size) {
    return absl::OutOfRangeError(absl::StrCat("block ", part.block, ": ", part.num_tokens,
                                              " tokens; allowed: 1 to ", block_size));
  }
  if (part.first_layer == 0) {
    *import = {.block = part.block, .num_tokens = part.num_tokens};
  } else if (import->block != part.block || import->next_layer != part.first_layer ||
             import->num_tokens != part.num_tokens) {
    return absl::FailedPreconditionError(absl::StrCat(
        "block ", part.block, ": a part of ", part.num_tokens, " tokens from layer ",
        part.first_layer, " on; allowed: layer 0, ",
        import->block == 0
            ? "as no block is written in parts"
            : absl::StrCat("or layer ", import->next_layer, " of block ", import->block, " with ",
                           import->num_tokens, " tokens, where the part before it ended")));
  }
  import->next_layer += part.num_layers;
  if (import->next_layer == parts_.info.kv.num_layers) *import = {};
  return absl::OkStatus();
}

absl::Status KvTransfer::BeginWrite(SessionId id, std::span<const KvPart> parts,
                                    std::span<const std::byte> contents, Fault* fault) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(CheckContents(parts));
  BlockImport import = session->import;
  // A block that was written in another way meanwhile is no longer being written in parts.
  if (import.block != 0 && ledger_.num_written(import.block) != 0) import = {};
  const KvShape& shape = parts_.info.kv;
  uint64_t bytes = 0, whole_bytes = 0;
  for (const KvPart& part : parts) {
    REPRISE_RETURN_IF_ERROR(CheckPart(id, part));
    REPRISE_RETURN_IF_ERROR(ledger_.CheckOwned(id, part.block));
    REPRISE_RETURN_IF_ERROR(CheckImport(part, &import));
    bytes += shape.BytesOf(part);
    whole_bytes += shape.WholeBytesOf(part);
  }
  if (whole_bytes > parts_.info.max_kv_transfer_bytes) {
    return absl::OutOfRangeError(absl::StrCat("parts of KV blocks take ", whole_bytes,
                                              " bytes; allowed: at most ",
                                              parts_.info.max_kv_transfer_bytes, " in one call"));
  }
  if (contents.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("parts of KV blocks: got ", contents.size(),
                                                   " bytes of contents; allowed: ", bytes,
                                                   ", which layers and tokens make"));
  }
  std::byte* to = parts_.kv_staging.host();
  for (const KvPart& part : parts) {
    UnpackTokens(parts_.pool.geometry().layout(), part.num_layers, part.num_tokens, contents.data(),
                 to);
    contents = contents.subspan(shape.BytesOf(part));
    to += shape.WholeBytesOf(part);
    const bool complete = part.first_layer + part.num_layers == shape.num_layers;
    ledger_.NoteReplaced(part.block, complete ? part.num_tokens : 0);
  }
  session->import = import;
  fault->status = EnqueueWrite(parts);
  return fault->status;
}

absl::Status KvTransfer::EnqueueWrite(std::span<const KvPart> parts) {
  const std::byte* from = parts_.kv_staging.device();
  for (const KvPart& part : parts) {
    REPRISE_RETURN_IF_ERROR(
        CopyLayersIn(*parts_.stream, *parts_.kernel_set, parts_.pool, LayersOf(part), from));
    from += parts_.info.kv.WholeBytesOf(part);
  }
  return EnqueueNotice();
}

absl::Status KvTransfer::EndWrite() { return AwaitNotice(); }

absl::Status KvTransfer::EnqueueNotice() {
  return kernels::NotifyHost(
      *parts_.stream, *parts_.kernel_set,
      {.word = reinterpret_cast<uint64_t*>(parts_.kv_notice.device()), .value = ++notice_});
}

absl::Status KvTransfer::AwaitNotice() const {
  const auto* word = reinterpret_cast<const uint64_t*>(parts_.kv_notice.host());
  const uint64_t notice = notice_;
  const auto done = [word, notice] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == notice; };
  const uint64_t timeout_ms = parts_.options.watchdog_timeout_ms;
  // The steps ahead of it may take as long as steps may, each.
  const auto give_up = Clock::now() + std::chrono::milliseconds(timeout_ms) *
                                          (1 + int64_t{parts_.info.limits.pipeline_depth} *
                                                   parts_.info.limits.max_steps_per_request);
  while (!parts_.stream->WaitUntil(done, Clock::now() + std::chrono::milliseconds(10))) {
    const absl::Status state = parts_.stream->Query();
    if (!state.ok() && !absl::IsUnavailable(state))
      return absl::InternalError(
          absl::StrCat("copy of KV blocks: device fault: ", state.message()));
    if (state.ok() && !done()) return absl::InternalError("copy of KV blocks: ended unnoticed");
    if (Clock::now() > give_up)
      return absl::DeadlineExceededError("copy of KV blocks: the device is not done with it");
  }
  return absl::OkStatus();
}

// ---- swap space ----

std::vector<uint32_t> KvTransfer::TokensIn(std::span<const uint32_t> blocks) const {
  std::vector<uint32_t> tokens;
  tokens.reserve(blocks.size());
  for (const uint32_t block : blocks) tokens.push_back(ledger_.num_written(block));
  return tokens;
}

absl::Status KvTransfer::CheckSwapOut(SessionId id, const Session& session,
                                      std::span<const uint32_t> blocks) const {
  REPRISE_RETURN_IF_ERROR(CheckCount("blocks", blocks.size()));
  for (const uint32_t block : blocks) REPRISE_RETURN_IF_ERROR(ledger_.CheckOwned(id, block));
  return CheckMaxSwapped(session, blocks.size(), "KV blocks");
}

absl::Status KvTransfer::CheckMaxSwapped(const Session& session, size_t count, const char* what) {
  const uint32_t allowed = session.limits.max_swapped;
  if (allowed != 0 && uint64_t{session.num_swapped} + count > allowed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("asked for swap space for ", count, " ", what, "; this session has ",
                     session.num_swapped, " of the ", allowed, " that a session may have there"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> KvTransfer::SwapOutState(SessionId id, uint32_t slot, RowState* row,
                                                  Fault* fault) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  const StateOrigin origin = {
      .slot = slot, .generation = row->generation, .last_step = row->last_step};
  if (row->swapped_state.has_value()) {
    const uint32_t place = *row->swapped_state;
    if (state_origins_[place] == origin && states_.CheckHeld(id, {&place, 1}).ok()) return place;
    // Others' steps wait behind each copy: a row pays for one with a step of its own.
    return absl::FailedPreconditionError(
        absl::StrCat("row ", row->row,
                     ": its state was copied since it last ran, and the copy is "
                     "not there any more; allowed: once more behind a step of the row"));
  }
  REPRISE_RETURN_IF_ERROR(CheckMaxSwapped(*session, 1, "states of rows"));
  std::vector<uint32_t> places;
  REPRISE_RETURN_IF_ERROR(states_.Allocate(id, {&row->context_length, 1}, &places));
  const uint32_t place = places[0];
  ++session->num_swapped;
  state_origins_[place] = origin;
  row->swapped_state = place;
  if (has_memory()) {
    fault->status =
        parts_.row_states.Save(*parts_.stream, *parts_.kernel_set, slot, StatePlace(place));
    REPRISE_RETURN_IF_ERROR(fault->status);
  }
  return place;
}

absl::Status KvTransfer::ReturnState(uint32_t place, uint32_t slot) const {
  if (!has_memory()) return absl::OkStatus();
  return parts_.row_states.Restore(*parts_.stream, *parts_.kernel_set, StatePlace(place), slot);
}

absl::StatusOr<std::vector<uint32_t>> KvTransfer::SwapOut(SessionId id,
                                                          std::span<const uint32_t> blocks,
                                                          Fault* fault) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(CheckSwapOut(id, *session, blocks));
  const std::vector<uint32_t> tokens = TokensIn(blocks);
  std::vector<uint32_t> places;
  REPRISE_RETURN_IF_ERROR(swap_.Allocate(id, tokens, &places));
  const absl::Status freed = ledger_.Free(id, blocks);
  if (!freed.ok()) {
    swap_.Free(places);
    return freed;
  }
  session->ForgetImport(blocks);
  session->RemoveBlocks(static_cast<uint32_t>(blocks.size()));
  session->num_swapped += static_cast<uint32_t>(blocks.size());
  if (has_memory()) {
    fault->status = CopyToSlots(*parts_.stream, *parts_.kernel_set, parts_.pool, blocks, places,
                                parts_.swap_space.device());
    REPRISE_RETURN_IF_ERROR(fault->status);
  }
  return places;
}

absl::StatusOr<std::vector<uint32_t>> KvTransfer::SwapIn(SessionId id,
                                                         std::span<const uint32_t> swapped,
                                                         Fault* fault) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(CheckCount("swapped blocks", swapped.size()));
  REPRISE_RETURN_IF_ERROR(swap_.CheckHeld(id, swapped));
  const auto count = static_cast<uint32_t>(swapped.size());
  REPRISE_RETURN_IF_ERROR(session->CheckBlocks(count));
  std::vector<uint32_t> blocks;
  blocks.reserve(count);
  REPRISE_RETURN_IF_ERROR(ledger_.Allocate(id, count, &blocks));
  session->AddBlocks(count);
  session->num_swapped -= count;
  for (size_t i = 0; i < count; ++i) ledger_.NoteReplaced(blocks[i], swap_.num_tokens(swapped[i]));
  swap_.Free(swapped);
  if (has_memory()) {
    fault->status = CopyFromSlots(*parts_.stream, *parts_.kernel_set, parts_.pool, swapped, blocks,
                                  parts_.swap_space.device());
    REPRISE_RETURN_IF_ERROR(fault->status);
  }
  return blocks;
}

absl::Status KvTransfer::FreeSwapped(SessionId id, std::span<const uint32_t> swapped,
                                     std::span<const uint32_t> states) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  // One of them may be empty.
  if (!swapped.empty() || states.empty()) REPRISE_RETURN_IF_ERROR(swap_.CheckHeld(id, swapped));
  if (!states.empty()) REPRISE_RETURN_IF_ERROR(states_.CheckHeld(id, states));
  swap_.Free(swapped);
  states_.Free(states);
  session->num_swapped -= static_cast<uint32_t>(swapped.size() + states.size());
  return absl::OkStatus();
}

// ---- copies for other processes ----

absl::Status KvTransfer::CheckExport(SessionId id, const Session& session,
                                     std::span<const uint32_t> blocks) const {
  if (parts_.num_export_places == 0) {
    return absl::FailedPreconditionError(
        "export space: this engine has none; allowed: one with export_bytes (--export-space)");
  }
  REPRISE_RETURN_IF_ERROR(CheckCount("blocks", blocks.size()));
  for (const uint32_t block : blocks) {
    REPRISE_RETURN_IF_ERROR(ledger_.CheckHeld(id, block));
    if (ledger_.num_written(block) != 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "block ", block, ": this session has written nothing there; allowed: blocks with tokens"));
  }
  const uint32_t allowed = session.limits.max_exported;
  if (allowed != 0 && uint64_t{session.num_exported} + blocks.size() > allowed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("asked for export space for ", blocks.size(), " KV blocks; this session has ",
                     session.num_exported, " of the ", allowed, " that a session may have there"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ExportedBlock>> KvTransfer::BeginExport(SessionId id,
                                                                   std::span<const uint32_t> blocks,
                                                                   Fault* fault) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(CheckExport(id, *session, blocks));
  std::vector<uint32_t> places;
  REPRISE_RETURN_IF_ERROR(exports_.Allocate(id, TokensIn(blocks), &places));
  session->num_exported += static_cast<uint32_t>(places.size());
  std::vector<ExportedBlock> exported;
  for (const uint32_t place : places)
    exported.push_back({.place = place, .num_tokens = exports_.num_tokens(place)});
  fault->status = CopyToSlots(*parts_.stream, *parts_.kernel_set, parts_.pool, blocks, places,
                              parts_.export_space.data());
  if (fault->status.ok()) fault->status = EnqueueNotice();
  REPRISE_RETURN_IF_ERROR(fault->status);
  return exported;
}

absl::Status KvTransfer::Publish(SessionId id, std::span<const ExportedBlock> exported,
                                 const PublishExportsFn& publish) {
  REPRISE_RETURN_IF_ERROR(sessions_.Find(id).status());
  publish(exported);
  return absl::OkStatus();
}

absl::Status KvTransfer::FreeExported(SessionId id, std::span<const uint32_t> places) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(exports_.CheckHeld(id, places));
  FreePlaces(places);
  session->num_exported -= static_cast<uint32_t>(places.size());
  return absl::OkStatus();
}

void KvTransfer::FreePlaces(std::span<const uint32_t> places) {
  if (exports_freed_) exports_freed_(places);
  exports_.Free(places);
}

void KvTransfer::DropExported(SessionId id) {
  if (exports_.num_free() == exports_.num_places()) return;
  std::vector<uint32_t> places;
  exports_.List(id, &places);
  FreePlaces(places);
}

absl::Status KvTransfer::CheckReplaceable(SessionId id, std::span<const uint32_t> blocks) const {
  for (const uint32_t block : blocks) {
    REPRISE_RETURN_IF_ERROR(ledger_.CheckOwned(id, block));
    REPRISE_RETURN_IF_ERROR(CheckInNoTable(ledger_, block));
  }
  std::vector<uint32_t> sorted(blocks.begin(), blocks.end());
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return absl::InvalidArgumentError(absl::StrCat("block ", *twice, " is named twice"));
  return absl::OkStatus();
}

absl::Status KvTransfer::BeginImport(SessionId id, std::span<const uint32_t> blocks,
                                     const ImportSource& source, Fault* fault) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, sessions_.Find(id));
  REPRISE_RETURN_IF_ERROR(CheckHasMemory());
  REPRISE_RETURN_IF_ERROR(CheckCount("blocks", blocks.size()));
  REPRISE_RETURN_IF_ERROR(CheckReplaceable(id, blocks));
  std::vector<uint32_t> places;
  for (const ExportedBlock& block : source.blocks) places.push_back(block.place);
  for (const uint32_t block : blocks) ledger_.NoteReplaced(block, 0);
  session->ForgetImport(blocks);
  fault->status =
      CopyFromSlots(*parts_.stream, *parts_.kernel_set, parts_.pool, places, blocks, source.data);
  if (fault->status.ok()) fault->status = EnqueueNotice();
  return fault->status;
}

absl::Status KvTransfer::CompleteImport(SessionId id, std::span<const uint32_t> blocks,
                                        const ImportSource& source) {
  REPRISE_RETURN_IF_ERROR(sessions_.Find(id).status());
  REPRISE_RETURN_IF_ERROR(CheckReplaceable(id, blocks));
  for (const uint32_t block : blocks) {
    if (ledger_.num_written(block) != 0) {
      return absl::AbortedError(
          absl::StrCat("block ", block, ": the session wrote there while it was imported"));
    }
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    ledger_.NoteReplaced(blocks[i], source.blocks[i].num_tokens);
  return absl::OkStatus();
}

}  // namespace reprise::engine
