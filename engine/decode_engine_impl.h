// SPDX-License-Identifier: Apache-2.0
// DecodeEngine::Impl: what a DecodeEngine does: sessions, blocks, graphs and steps, under one lock.
// decode_engine_impl.cc has steps and graphs, decode_engine_blocks.cc sessions and KV blocks,
// decode_engine.cc passes calls on. Threads: as DecodeEngine.
#ifndef REPRISE_ENGINE_DECODE_ENGINE_IMPL_H_
#define REPRISE_ENGINE_DECODE_ENGINE_IMPL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/attention_tree_text.h"
#include "engine/decode_engine.h"
#include "engine/engine_parts.h"
#include "engine/kv_transfer.h"
#include "engine/start_report.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/session_table.h"
#include "engine/step/launch_builder.h"
#include "engine/step/read.h"
#include "engine/step/select.h"
#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "engine/step_stamps.h"
#include "graphs/captured_nodes.h"
#include "graphs/graph_nodes.h"

namespace reprise::engine {

class DecodeEngine::Impl {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Impl(std::unique_ptr<const EngineParts> parts);

  const EngineInfo& info() const { return parts_->info; }
  PoolInfo pool() const;
  uint32_t num_resident_rows() const;
  absl::Status health() const;
  AttentionTreeInfo attention_tree() const;
  absl::StatusOr<uint64_t> SetAttentionTree(std::string_view text);
  GraphsInfo captured_graphs() const;
  absl::StatusOr<GraphsInfo> SetBuckets(const BucketSets& asked, const GraphsFn& captured);
  AccountId OpenAccount(const SessionLimits& limits);
  void SetAccountLimits(AccountId account, const SessionLimits& limits);
  SessionInfo OpenSession(const SessionLimits& limits, AccountId account);
  bool IsOpen(SessionId id) const;
  absl::StatusOr<SessionUse> session_use(SessionId id) const;
  absl::Status CloseSession(SessionId id);
  absl::StatusOr<std::vector<uint32_t>> AllocateBlocks(SessionId id, uint32_t count);
  absl::Status FreeBlocks(SessionId id, std::span<const uint32_t> blocks);
  absl::Status ShareBlocks(SessionId id, std::string_view name, std::span<const uint32_t> blocks);
  absl::StatusOr<std::vector<uint32_t>> AdoptBlocks(SessionId id, std::string_view name);
  absl::Status ReleaseBlocks(SessionId id, std::string_view name);
  absl::Status ReadBlocks(SessionId id, std::span<KvPart> parts, std::vector<std::byte>* contents);
  absl::Status WriteBlocks(SessionId id, std::span<const KvPart> parts,
                           std::span<const std::byte> contents);
  absl::StatusOr<std::vector<uint32_t>> SwapOut(SessionId id, std::span<const uint32_t> blocks);
  absl::StatusOr<std::vector<uint32_t>> SwapIn(SessionId id, std::span<const uint32_t> swapped);
  absl::Status FreeSwapped(SessionId id, std::span<const uint32_t> swapped,
                           std::span<const uint32_t> states);
  absl::StatusOr<SwappedState> SwapOutState(SessionId id, uint32_t row);
  ExportSpace export_space() const;
  absl::StatusOr<runtime::OpenedBuffer> OpenExportSpace(std::string_view handle,
                                                        uint32_t num_places) const;
  void OnExportsFreed(ExportsFreedFn freed);
  absl::Status ExportBlocks(SessionId id, std::span<const uint32_t> blocks,
                            const PublishExportsFn& publish);
  absl::Status FreeExported(SessionId id, std::span<const uint32_t> places);
  absl::Status ImportBlocks(SessionId id, std::span<const uint32_t> blocks,
                            const ImportSource& source);
  absl::StatusOr<StepTicket> Submit(const StepRequest& request);
  absl::StatusOr<StepTicket> SubmitJoint(std::span<JointRequest> requests);
  absl::Status Wait(StepTicket ticket, std::span<StepResult> results);
  absl::Status Step(const StepRequest& request, StepForm form, StepResult* result);
  absl::Status CaptureProfiledGraphs(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  absl::Status CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  // `form`: not plain.
  absl::StatusOr<StepTicket> SubmitProfiled(const StepRequest& request, StepForm form);
  std::vector<ProfiledGraphInfo> profiled_graphs() const;
  std::vector<ProfiledGraphInfo> unpadded_graphs() const;
  absl::Status DropProfiledGraphs();
  runtime::Device& device() const { return parts_->device; }
  absl::Status ReadStamps(bool decode, uint32_t size, StepStamps* stamps);
  absl::Status ReadLastStamps(StepStamps* stamps);
  absl::StatusOr<std::vector<graphs::GraphNode>> ListNodes(std::string_view graph);
  absl::StatusOr<std::vector<kernels::ListedStage>> ListStages(std::string_view graph);
  absl::StatusOr<graphs::CapturedNodes> ListCapturedNodes(std::string_view graph);
  const StartReport& start_report() const { return parts_->start; }

 private:
  absl::Status RefuseFault() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RefuseFullPipeline() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RefuseInFlight() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first fault stays; returns it.
  absl::Status Fault(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What others have written in these blocks is gone before any later step reads them.
  absl::Status ClearOthersTokens(std::span<const uint32_t> blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What became of a call that KvTransfer enqueued for.
  absl::Status NoteTransfer(const KvTransfer::Fault& fault, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Poison mode: nothing may read these blocks any more.
  absl::Status PoisonFreed(std::span<const uint32_t> blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  InFlightStep& StepOf(StepTicket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return in_flight_[(ticket - 1) % in_flight_.size()];
  }
  absl::StatusOr<StepTicket> SubmitLocked(std::span<JointRequest> requests, StepForm form,
                                          Clock::time_point entered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StepTicket> SubmitOne(const StepRequest& request, StepForm form,
                                       Clock::time_point entered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Enqueues all replays of what `launch_` holds.
  absl::Status Launch(InFlightStep* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LaunchReplay(ExecutionMode mode, const StepGraphs::Target& target,
                            InFlightReplay* replay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Rows that stopped in the step are known to have, from here on, and so is how many of their
  // drafts others accepted.
  void NoteOutcomes(const InFlightStep& step, size_t request, const StepResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The step's result is lost: how far its rows have come is not known.
  void NoteLost(const InFlightStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static void SettleDrafts(uint32_t num_drafts, const RowOutcome& outcome, RowState* state);

  const std::unique_ptr<const EngineParts> parts_;
  const StepReader reader_;

  // Held by SetBuckets from begin to end, taken before mutex_.
  absl::Mutex buckets_mutex_;
  // Held by a read or a write of contents from begin to end, taken before mutex_.
  absl::Mutex transfer_mutex_;
  mutable absl::Mutex mutex_;  // guards parts_->graphs and launches on parts_->stream, too
  RowTable rows_ ABSL_GUARDED_BY(mutex_);
  BlockLedger ledger_ ABSL_GUARDED_BY(mutex_);
  SessionTable sessions_ ABSL_GUARDED_BY(mutex_);
  KvTransfer transfer_;  // by mutex_, but for what ends under transfer_mutex_ alone
  StepValidator validator_ ABSL_GUARDED_BY(mutex_);
  StepWriter writer_ ABSL_GUARDED_BY(mutex_);
  LaunchBuilder launch_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> clear_ ABSL_GUARDED_BY(mutex_);          // scratch of AllocateBlocks
  std::vector<InFlightStep> in_flight_ ABSL_GUARDED_BY(mutex_);  // ring by ticket
  StepTicket next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_replay_ ABSL_GUARDED_BY(mutex_) = 1;
  // Of the profiled step that was submitted last; size 0: there was none.
  StepGraphs::Target last_profiled_ ABSL_GUARDED_BY(mutex_);
  StepTicket next_wait_ ABSL_GUARDED_BY(mutex_) = 1;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
  NamedAttentionTree tree_ ABSL_GUARDED_BY(mutex_);
  uint64_t tree_version_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_DECODE_ENGINE_IMPL_H_
