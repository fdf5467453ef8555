// SPDX-License-Identifier: Apache-2.0
// KvTransfer: KV blocks that leave the pool and come back, beside an engine's steps and in stream
// order with them: contents that callers read and write (engine/kv_part.h), blocks that wait in
// swap space, and copies that go to engines of other processes (engine/kv_export.h). It checks what
// is asked, enqueues copies, and keeps the books of blocks and sessions.
//
// What is read or written goes through one staging buffer: from the begin of a read or a write to
// its end no other one may begin.
//
// Threads: the caller orders all calls, except that End* may run beside calls that are neither
// Begin* nor End*.
#ifndef REPRISE_ENGINE_KV_TRANSFER_H_
#define REPRISE_ENGINE_KV_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_parts.h"
#include "engine/kv_export.h"
#include "engine/kv_part.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/session_table.h"
#include "engine/state/swap_table.h"

namespace reprise::engine {

class KvTransfer {
 public:
  // Views of all three.
  KvTransfer(const EngineParts& parts, BlockLedger& ledger, SessionTable& sessions);

  // An error that the device is to blame for: the engine's state is ahead of it.
  struct Fault {
    absl::Status status = {};
  };

  // Checks the parts, says how many tokens each has, and enqueues. Errors: DecodeEngine's. `fault`:
  // set where launching failed.
  absl::Status BeginRead(SessionId id, std::span<KvPart> parts, Fault* fault);
  // Waits, and appends the contents, one part behind the other. Errors: Internal,
  // DeadlineExceeded: faults.
  absl::Status EndRead(std::span<const KvPart> parts, std::vector<std::byte>* contents);

  // Checks the parts and enqueues; from here on the session has written what they bring.
  absl::Status BeginWrite(SessionId id, std::span<const KvPart> parts,
                          std::span<const std::byte> contents, Fault* fault);
  // Waits until the staging buffer has been read. Errors: as EndRead.
  absl::Status EndWrite();

  absl::StatusOr<std::vector<uint32_t>> SwapOut(SessionId id, std::span<const uint32_t> blocks,
                                                Fault* fault);
  absl::StatusOr<std::vector<uint32_t>> SwapIn(SessionId id, std::span<const uint32_t> swapped,
                                               Fault* fault);
  absl::Status FreeSwapped(SessionId id, std::span<const uint32_t> swapped,
                           std::span<const uint32_t> states);
  // Of a session that is closed: nothing names its swapped blocks any more.
  void DropSwapped(SessionId id) {
    swap_.FreeAll(id);
    states_.FreeAll(id);
  }

  const SwapTable& swap() const { return swap_; }

  // Copies the state of the row in `slot` to a place of swap space that is the session's from then
  // on; where that was done since the row last ran, says the place again. Errors: DecodeEngine's.
  absl::StatusOr<uint32_t> SwapOutState(SessionId id, uint32_t slot, RowState* row, Fault* fault);
  SwapTable& states() { return states_; }
  const SwapTable& states() const { return states_; }
  // Back to a row's slot. The place may be free already.
  absl::Status ReturnState(uint32_t place, uint32_t slot) const;

  // Takes places and enqueues copies; says how many tokens each has.
  absl::StatusOr<std::vector<ExportedBlock>> BeginExport(SessionId id,
                                                         std::span<const uint32_t> blocks,
                                                         Fault* fault);
  // Waits for them. Errors: as EndRead.
  absl::Status EndExport() { return AwaitNotice(); }
  // OK, and published, where the session is there to have them.
  absl::Status Publish(SessionId id, std::span<const ExportedBlock> exported,
                       const PublishExportsFn& publish);
  absl::Status FreeExported(SessionId id, std::span<const uint32_t> places);
  // Of a session that is closed.
  void DropExported(SessionId id);
  void OnExportsFreed(ExportsFreedFn freed) { exports_freed_ = std::move(freed); }
  const SwapTable& exports() const { return exports_; }

  // Enqueues copies into blocks, in which the session has written nothing until CompleteImport.
  absl::Status BeginImport(SessionId id, std::span<const uint32_t> blocks,
                           const ImportSource& source, Fault* fault);
  absl::Status EndImport() { return AwaitNotice(); }
  // Errors: those about blocks, which may have gone to others meanwhile; Aborted: the session has
  // written in one.
  absl::Status CompleteImport(SessionId id, std::span<const uint32_t> blocks,
                              const ImportSource& source);

 private:
  // Contents move only where there are some.
  bool has_memory() const { return parts_.simulated == nullptr; }
  absl::Status CheckHasMemory() const;
  absl::Status CheckContents(std::span<const KvPart> parts) const;
  // A part's layers and tokens by themselves, and that the session holds its block.
  absl::Status CheckPart(SessionId id, const KvPart& part) const;
  // The parts as they go on from `import`, which becomes what they leave unfinished.
  absl::Status CheckImport(const KvPart& part, BlockImport* import) const;
  absl::Status CheckSwapOut(SessionId id, const Session& session,
                            std::span<const uint32_t> blocks) const;
  // That the session may have so many more in swap space. `what`: of which it asks for room.
  static absl::Status CheckMaxSwapped(const Session& session, size_t count, const char* what);
  std::byte* StatePlace(uint32_t place) const {
    return parts_.state_space.device() + place * parts_.row_states.bytes();
  }
  // How many tokens the session has written in each.
  std::vector<uint32_t> TokensIn(std::span<const uint32_t> blocks) const;
  absl::Status EnqueueRead(std::span<const KvPart> parts);
  absl::Status EnqueueWrite(std::span<const KvPart> parts);
  // The host sees when all that was enqueued so far is done.
  absl::Status EnqueueNotice();
  absl::Status AwaitNotice() const;

  const EngineParts& parts_;
  BlockLedger& ledger_;
  SessionTable& sessions_;
  absl::Status CheckExport(SessionId id, const Session& session,
                           std::span<const uint32_t> blocks) const;
  // That the session may have all of these blocks written as a whole.
  absl::Status CheckReplaceable(SessionId id, std::span<const uint32_t> blocks) const;
  void FreePlaces(std::span<const uint32_t> places);

  SwapTable swap_;
  SwapTable states_;  // of rows, beside their KV
  // By place: the row whose state was copied there last, and after which step.
  struct StateOrigin {
    uint32_t slot = 0;
    uint64_t generation = 0;
    uint64_t last_step = 0;
    bool operator==(const StateOrigin&) const = default;
  };
  std::vector<StateOrigin> state_origins_;
  SwapTable exports_;
  ExportsFreedFn exports_freed_;
  uint64_t notice_ = 0;  // the last one that was enqueued
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_KV_TRANSFER_H_
