// SPDX-License-Identifier: Apache-2.0
#include "engine/decode_engine.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/diagnostics.h"
#include "engine/engine_parts.h"
#include "engine/engine_profiler.h"
#include "engine/kv_transfer.h"
#include "engine/memory_copy.h"
#include "engine/memory_fill.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/session_table.h"
#include "engine/step/launch_builder.h"
#include "engine/step/launch_totals.h"
#include "engine/step/read.h"
#include "engine/step/select.h"
#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "kernels/plan/plan.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t Nanoseconds(Clock::duration d) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
}

std::vector<int64_t> CapacitiesOf(const std::vector<graphs::CapturedBucket>& buckets) {
  std::vector<int64_t> capacities;
  for (const graphs::CapturedBucket& captured : buckets)
    capacities.push_back(captured.bucket.capacity);
  return capacities;
}

// Where any context is accepted, so is that of rows whose state nobody has made.
kernels::StepLimits LimitsOfSteps(const EngineParts& parts) {
  kernels::StepLimits limits = parts.info.limits;
  if (parts.diagnostics.accepts_any_context()) limits.row_state_bytes = 0;
  return limits;
}

}  // namespace

class DecodeEngine::Impl {
 public:
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
  absl::Status Step(const StepRequest& request, StepGraphs::Form form, StepResult* result);
  absl::Status CaptureProfiledGraphs(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  absl::Status CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens);
  absl::Status ReadStamps(bool decode, uint32_t size, StepStamps* stamps);
  absl::StatusOr<std::vector<graphs::GraphNode>> ListNodes(std::string_view graph);
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
  absl::StatusOr<StepTicket> SubmitLocked(std::span<JointRequest> requests, StepGraphs::Form form,
                                          Clock::time_point entered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StepTicket> SubmitOne(const StepRequest& request, StepGraphs::Form form,
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
  StepTicket next_wait_ ABSL_GUARDED_BY(mutex_) = 1;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
  NamedAttentionTree tree_ ABSL_GUARDED_BY(mutex_);
  uint64_t tree_version_ ABSL_GUARDED_BY(mutex_) = 1;
};

DecodeEngine::Impl::Impl(std::unique_ptr<const EngineParts> parts)
    : parts_(std::move(parts)),
      reader_(*parts_->stream, parts_->results, parts_->state->result_layout,
              info().limits.vocab_size, parts_->options.watchdog_timeout_ms),
      rows_(info().limits.max_rows, info().limits.max_blocks_per_row),
      ledger_(parts_->pool.num_blocks(),
              parts_->diagnostics.accepts_any_context() ? info().limits.block_size : 0),
      // Distinguishes this engine's sessions from those of one before it at the same address.
      sessions_(rows_, ledger_, Nanoseconds(std::chrono::system_clock::now().time_since_epoch())),
      transfer_(*parts_, ledger_, sessions_),
      validator_(LimitsOfSteps(*parts_), info().model.eos_token_ids, rows_, ledger_,
                 &transfer_.states()),
      writer_(parts_->metadata_layout, info().limits.block_size, info().limits.min_shared_tokens,
              info().limits.vocab_size, info().model.eos_token_ids, rows_),
      launch_({.limits = info().limits,
               .rows = rows_,
               .ledger = ledger_,
               .sessions = sessions_,
               .validator = validator_,
               .writer = writer_,
               .graphs = *parts_->graphs,
               .states = transfer_.states()}),
      in_flight_(info().limits.pipeline_depth),
      tree_(parts_->attention_tree) {
  for (InFlightStep& step : in_flight_) {
    step.requests.reserve(kMaxJointRequests);
    step.first.rows.reserve(info().limits.max_rows);
    step.repeat.rows.reserve(info().limits.max_rows);
  }
}

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
  const RowState& state = rows_.state(slot);
  // In a step that has not been waited for it may stop.
  if (state.last_step >= next_wait_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "row ", row, " has steps in flight; allowed: once their results were waited for"));
  }
  KvTransfer::Fault fault;
  const absl::StatusOr<uint32_t> place =
      transfer_.SwapOutState(id, slot, state.context_length, &fault);
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

// ---- faults and refusals ----

absl::Status DecodeEngine::Impl::health() const {
  absl::MutexLock lock(&mutex_);
  return fault_;
}

absl::Status DecodeEngine::Impl::Fault(const absl::Status& status) {
  if (fault_.ok()) fault_ = status;
  return fault_;
}

absl::Status DecodeEngine::Impl::RefuseFault() const {
  if (fault_.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the engine stopped after a fault: ", fault_.message()));
}

absl::Status DecodeEngine::Impl::RefuseFullPipeline() const {
  const uint32_t depth = info().limits.pipeline_depth;
  if (next_ticket_ - next_wait_ < depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      depth, " requests are in flight, the pipeline's depth; wait for the oldest first"));
}

absl::Status DecodeEngine::Impl::RefuseInFlight() const {
  if (next_ticket_ == next_wait_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(next_ticket_ - next_wait_, " requests in flight; allowed: none"));
}

// ---- the attention tree ----

AttentionTreeInfo DecodeEngine::Impl::attention_tree() const {
  absl::MutexLock lock(&mutex_);
  return {.version = tree_version_,
          .batch_invariant = tree_.batch_invariant,
          .text = AttentionTreeText(tree_),
          .row_leaves = tree_.row_leaves,
          .batch_leaves = tree_.batch_leaves};
}

absl::StatusOr<uint64_t> DecodeEngine::Impl::SetAttentionTree(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(NamedAttentionTree next, ParseAttentionTree(text));
  REPRISE_RETURN_IF_ERROR(parts_->CheckAttentionTree(next));
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  if (parts_->options.batch_invariant && next.tree.rows != tree_.tree.rows)
    return absl::FailedPreconditionError(
        "attention tree: its part about rows is another than that in force, so that rows would "
        "change their bits; allowed: the same one, or an engine that is not batch invariant");
  const absl::Status set = kernels::SetAttentionTree(*parts_->stream, *parts_->kernel_set,
                                                     next.tree, parts_->state->attention_tree);
  if (!set.ok()) return Fault(set);
  tree_ = std::move(next);
  return ++tree_version_;
}

// ---- captured graphs ----

GraphsInfo DecodeEngine::Impl::captured_graphs() const {
  absl::MutexLock lock(&mutex_);
  return parts_->graphs->info();
}

absl::StatusOr<GraphsInfo> DecodeEngine::Impl::SetBuckets(const BucketSets& asked,
                                                          const GraphsFn& captured) {
  if (asked.decode.empty() && asked.mixed.empty()) {
    return absl::InvalidArgumentError(
        "buckets: got neither decode nor mixed ones; allowed: one or more of either kind");
  }
  absl::MutexLock one(&buckets_mutex_);
  BucketSets buckets = asked;
  uint64_t version = 0;
  {
    absl::MutexLock lock(&mutex_);
    REPRISE_RETURN_IF_ERROR(RefuseFault());
    const GraphsInfo now = parts_->graphs->info();
    version = now.version;
    if (buckets.decode.empty()) buckets.decode = CapacitiesOf(now.decode_buckets);
    if (buckets.mixed.empty()) buckets.mixed = CapacitiesOf(now.mixed_buckets);
  }
  REPRISE_RETURN_IF_ERROR(parts_->CheckBuckets(buckets));
  REPRISE_ASSIGN_OR_RETURN(auto set, parts_->CaptureBeside(buckets));  // without the lock
  if (captured) captured(StepGraphs::InfoOf(*set, version + 1));

  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  parts_->graphs->Install(std::move(set), next_ticket_ - 1);
  parts_->graphs->DropReplaced(next_wait_ - 1);
  return parts_->graphs->info();
}

// ---- steps ----

absl::StatusOr<StepTicket> DecodeEngine::Impl::Submit(const StepRequest& request) {
  const Clock::time_point entered = Clock::now();
  absl::MutexLock lock(&mutex_);
  return SubmitOne(request, StepGraphs::Form::kPlain, entered);
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitJoint(std::span<JointRequest> requests) {
  const Clock::time_point entered = Clock::now();
  absl::MutexLock lock(&mutex_);
  return SubmitLocked(requests, StepGraphs::Form::kPlain, entered);
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitOne(const StepRequest& request,
                                                         StepGraphs::Form form,
                                                         Clock::time_point entered) {
  JointRequest one{.request = &request};
  REPRISE_ASSIGN_OR_RETURN(const StepTicket ticket, SubmitLocked({&one, 1}, form, entered));
  if (ticket == 0) return one.status;
  return ticket;
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitLocked(std::span<JointRequest> requests,
                                                            StepGraphs::Form form,
                                                            Clock::time_point entered) {
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  InFlightStep& step = StepOf(next_ticket_);
  launch_.Begin({.ticket = next_ticket_,
                 .first_replay = next_replay_,
                 .step = &step,
                 .ring_entry = parts_->metadata.HostEntry(next_ticket_ - 1),
                 .ended = next_wait_ - 1,
                 .attention_tree = tree_version_,
                 .form = form,
                 .full = RefuseFullPipeline()});
  for (JointRequest& joint : requests)
    launch_.Add(joint, &joint == requests.data() ? entered : Clock::now());
  if (launch_.empty()) return StepTicket{0};

  step.submitted = entered;
  launch_.Finish();
  const Clock::time_point written = Clock::now();
  // The mirror has moved on: a launch that fails leaves host and device apart, which is a fault.
  const absl::Status launched = Launch(&step);
  if (!launched.ok()) return Fault(launched);
  const uint64_t launch_ns = Nanoseconds(Clock::now() - written);
  for (InFlightRequest& request : step.requests) {
    request.ledger.launch_ns = launch_ns;
    (*sessions_.Find(request.session))->NoteLaunch();
  }
  next_replay_ += step.num_replays;
  return next_ticket_++;
}

absl::Status DecodeEngine::Impl::Launch(InFlightStep* step) {
  // On the stream ahead of the first replay rather than in its graph: a step without copies, and
  // nearly all are, has no node for them.
  if (!launch_.copies().empty() && parts_->simulated == nullptr) {
    REPRISE_RETURN_IF_ERROR(
        CopyBlocks(*parts_->stream, *parts_->kernel_set, parts_->pool, launch_.copies()));
  }
  for (const LaunchBuilder::Fork& fork : launch_.forks()) {
    if (parts_->simulated != nullptr) break;
    REPRISE_RETURN_IF_ERROR(
        parts_->row_states.Copy(*parts_->stream, *parts_->kernel_set, fork.from, fork.to));
  }
  for (const LaunchBuilder::Return& state : launch_.returns())
    REPRISE_RETURN_IF_ERROR(transfer_.ReturnState(state.place, state.slot));
  REPRISE_RETURN_IF_ERROR(LaunchReplay(launch_.mode(), launch_.first(), &step->first));
  for (uint32_t i = 1; i < step->num_replays; ++i)
    REPRISE_RETURN_IF_ERROR(LaunchReplay(launch_.mode(), launch_.repeat(), &step->repeat));
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::LaunchReplay(ExecutionMode mode, const StepGraphs::Target& target,
                                              InFlightReplay* replay) {
  if (parts_->diagnostics.poison)
    REPRISE_RETURN_IF_ERROR(
        PoisonActivations(*parts_->stream, *parts_->kernel_set, *parts_->state));
  const bool eager = mode == ExecutionMode::kEager;
  REPRISE_ASSIGN_OR_RETURN(
      const graphs::ReplayReport ran,
      eager ? target.graphs->RunEager(target.size) : target.graphs->Replay(target.size));
  StepReport& report = replay->report;
  report.graph = parts_->graphs->LastingName(ran.graph);
  report.replayed = !eager;
  report.padding_tokens = static_cast<uint32_t>(ran.capacity) - report.tokens;
  replay->decode = target.decode;
  report.padding_rows = replay->decode ? report.padding_tokens : 0;
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::Wait(StepTicket ticket, std::span<StepResult> results) {
  uint64_t first_replay = 0;
  uint32_t num_replays = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (ticket != next_wait_ || ticket >= next_ticket_ || waiting_) {
      return absl::FailedPreconditionError(
          absl::StrCat("waits for request ", ticket, "; allowed: the oldest in flight",
                       next_wait_ < next_ticket_ ? absl::StrCat(", ", next_wait_) : ", none is",
                       ", by one thread"));
    }
    if (!fault_.ok()) return fault_;
    if (const size_t num_requests = StepOf(ticket).requests.size();
        num_requests != results.size()) {
      return absl::InvalidArgumentError(absl::StrCat("waits for ", num_requests,
                                                     " requests that were submitted together with ",
                                                     results.size(), " results; allowed: as many"));
    }
    waiting_ = true;
    first_replay = StepOf(ticket).first_replay;
    num_replays = StepOf(ticket).num_replays;
  }
  const absl::Status published =
      reader_.Await(ticket, first_replay, num_replays);  // without the lock

  absl::MutexLock lock(&mutex_);
  waiting_ = false;
  if (!published.ok()) return Fault(published);
  InFlightStep& step = StepOf(ticket);
  absl::Status read;
  try {
    reader_.Read(step, results);
  } catch (const std::bad_alloc&) {
    // The step has run: what it did stands, what it brought is lost.
    read = absl::ResourceExhaustedError("out of memory for the step's result, which is lost");
  }
  ++next_wait_;
  parts_->graphs->DropReplaced(next_wait_ - 1);
  std::vector<uint32_t> freed;
  for (size_t r = 0; r < results.size(); ++r) {
    if (read.ok()) {
      NoteOutcomes(step, r, results[r]);
      results[r].refused_rows = std::move(step.requests[r].refused_rows);
    }
    sessions_.EndStep(step.requests[r].session, parts_->diagnostics.poison ? &freed : nullptr);
  }
  REPRISE_RETURN_IF_ERROR(PoisonFreed(freed));
  return read;
}

void DecodeEngine::Impl::SettleDrafts(uint32_t num_drafts, const RowOutcome& outcome,
                                      RowState* state) {
  // One that has stopped before is exactly where its last result has it.
  if (outcome.status != RowStatus::kRan) return;
  state->context_length -= num_drafts - outcome.accepted.count;
  state->num_drafts_in_flight -= num_drafts;
  state->num_samples += outcome.accepted.count;
}

void DecodeEngine::Impl::NoteOutcomes(const InFlightStep& step, size_t request,
                                      const StepResult& result) {
  size_t next = 0;  // of result.rows
  for (uint32_t i = 0; i < step.requests[request].num_replays; ++i) {
    const InFlightRequest::Range& rows = step.requests[request].rows(i);
    for (uint32_t j = rows.begin; j < rows.begin + rows.count; ++j) {
      const InFlightRow& row = step.replay(i).rows[j];
      const RowOutcome& outcome = result.rows[next++];
      if (outcome.finish == FinishReason::kNone && row.num_drafts == 0) continue;
      RowState& state = rows_.state(row.slot);
      // The slot may be another row's by now.
      if (state.generation != row.generation) continue;
      if (outcome.finish == FinishReason::kNone) {
        SettleDrafts(row.num_drafts, outcome, &state);
        continue;
      }
      state.stopped = true;
      state.context_length = outcome.context_length;
      state.num_drafts_in_flight = 0;
    }
  }
}

absl::Status DecodeEngine::Impl::Step(const StepRequest& request, StepGraphs::Form form,
                                      StepResult* result) {
  const Clock::time_point entered = Clock::now();
  StepTicket ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    // After a fault SubmitLocked names it; the steps that were in flight then stay there.
    if (fault_.ok()) REPRISE_RETURN_IF_ERROR(RefuseInFlight());
    REPRISE_ASSIGN_OR_RETURN(ticket, SubmitOne(request, form, entered));
  }
  return Wait(ticket, {result, 1});
}

// ---- measuring ----

absl::Status DecodeEngine::Impl::CaptureProfiledGraphs(std::span<const uint32_t> rows,
                                                       std::span<const uint32_t> tokens) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  return parts_->graphs->CaptureProfiledGraphs(parts_->device, *parts_->kernel_set, rows, tokens);
}

absl::Status DecodeEngine::Impl::CaptureUnpaddedGraphs(std::span<const uint32_t> rows,
                                                       std::span<const uint32_t> tokens) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  if (rows.empty() && tokens.empty()) {
    return absl::InvalidArgumentError(
        "unpadded graphs of no sizes: got neither rows nor tokens; allowed: one or more");
  }
  if (info().step_kernel_rows != 0) {
    return absl::FailedPreconditionError(
        "unpadded graphs: got step kernels, which are of the engine's buckets; allowed: "
        "decode chain");
  }
  return parts_->graphs->CaptureUnpaddedGraphs(rows, tokens);
}

absl::Status DecodeEngine::Impl::ReadStamps(bool decode, uint32_t size, StepStamps* stamps) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  return parts_->graphs->ReadStamps(decode, size, &parts_->state->plan.counts->begin_ns, stamps);
}

absl::StatusOr<std::vector<graphs::GraphNode>> DecodeEngine::Impl::ListNodes(
    std::string_view graph) {
  absl::MutexLock lock(&mutex_);
  return parts_->graphs->ListNodes(graph);
}

// ---- the public face ----

DecodeEngine::DecodeEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DecodeEngine::~DecodeEngine() = default;

absl::StatusOr<std::unique_ptr<DecodeEngine>> DecodeEngine::Create(
    runtime::Device& device, const models::ModelSource& source, const DecodeEngineOptions& options,
    const ProgressFn& progress) {
  return CreateEngineWithDiagnostics(device, source, options, {}, progress);
}

const EngineInfo& DecodeEngine::info() const { return impl_->info(); }
PoolInfo DecodeEngine::pool() const { return impl_->pool(); }
uint32_t DecodeEngine::num_resident_rows() const { return impl_->num_resident_rows(); }
GraphsInfo DecodeEngine::captured_graphs() const { return impl_->captured_graphs(); }
absl::StatusOr<GraphsInfo> DecodeEngine::SetBuckets(const BucketSets& buckets,
                                                    const GraphsFn& captured) {
  return impl_->SetBuckets(buckets, captured);
}
AttentionTreeInfo DecodeEngine::attention_tree() const { return impl_->attention_tree(); }
absl::StatusOr<uint64_t> DecodeEngine::SetAttentionTree(std::string_view text) {
  return impl_->SetAttentionTree(text);
}
absl::Status DecodeEngine::health() const { return impl_->health(); }
AccountId DecodeEngine::OpenAccount(const SessionLimits& limits) {
  return impl_->OpenAccount(limits);
}
void DecodeEngine::SetAccountLimits(AccountId account, const SessionLimits& limits) {
  impl_->SetAccountLimits(account, limits);
}

SessionInfo DecodeEngine::OpenSession(const SessionLimits& limits, AccountId account) {
  return impl_->OpenSession(limits, account);
}
bool DecodeEngine::IsOpen(SessionId session) const { return impl_->IsOpen(session); }
absl::StatusOr<SessionUse> DecodeEngine::session_use(SessionId session) const {
  return impl_->session_use(session);
}
absl::Status DecodeEngine::CloseSession(SessionId session) { return impl_->CloseSession(session); }
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::AllocateBlocks(SessionId session,
                                                                   uint32_t count) {
  return impl_->AllocateBlocks(session, count);
}
absl::Status DecodeEngine::FreeBlocks(SessionId session, std::span<const uint32_t> blocks) {
  return impl_->FreeBlocks(session, blocks);
}
absl::Status DecodeEngine::ShareBlocks(SessionId session, std::string_view name,
                                       std::span<const uint32_t> blocks) {
  return impl_->ShareBlocks(session, name, blocks);
}
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::AdoptBlocks(SessionId session,
                                                                std::string_view name) {
  return impl_->AdoptBlocks(session, name);
}
absl::Status DecodeEngine::ReleaseBlocks(SessionId session, std::string_view name) {
  return impl_->ReleaseBlocks(session, name);
}
absl::Status DecodeEngine::ReadBlocks(SessionId session, std::span<KvPart> parts,
                                      std::vector<std::byte>* contents) {
  return impl_->ReadBlocks(session, parts, contents);
}
absl::Status DecodeEngine::WriteBlocks(SessionId session, std::span<const KvPart> parts,
                                       std::span<const std::byte> contents) {
  return impl_->WriteBlocks(session, parts, contents);
}
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::SwapOut(SessionId session,
                                                            std::span<const uint32_t> blocks) {
  return impl_->SwapOut(session, blocks);
}
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::SwapIn(SessionId session,
                                                           std::span<const uint32_t> swapped) {
  return impl_->SwapIn(session, swapped);
}
absl::Status DecodeEngine::FreeSwapped(SessionId session, std::span<const uint32_t> swapped,
                                       std::span<const uint32_t> states) {
  return impl_->FreeSwapped(session, swapped, states);
}
absl::StatusOr<SwappedState> DecodeEngine::SwapOutState(SessionId session, uint32_t row) {
  return impl_->SwapOutState(session, row);
}
ExportSpace DecodeEngine::export_space() const { return impl_->export_space(); }
absl::StatusOr<runtime::OpenedBuffer> DecodeEngine::OpenExportSpace(std::string_view handle,
                                                                    uint32_t num_places) const {
  return impl_->OpenExportSpace(handle, num_places);
}
void DecodeEngine::OnExportsFreed(ExportsFreedFn freed) { impl_->OnExportsFreed(std::move(freed)); }
absl::Status DecodeEngine::ExportBlocks(SessionId session, std::span<const uint32_t> blocks,
                                        const PublishExportsFn& publish) {
  return impl_->ExportBlocks(session, blocks, publish);
}
absl::Status DecodeEngine::FreeExported(SessionId session, std::span<const uint32_t> places) {
  return impl_->FreeExported(session, places);
}
absl::Status DecodeEngine::ImportBlocks(SessionId session, std::span<const uint32_t> blocks,
                                        const ImportSource& source) {
  return impl_->ImportBlocks(session, blocks, source);
}
absl::StatusOr<StepTicket> DecodeEngine::Submit(const StepRequest& request) {
  return impl_->Submit(request);
}
absl::StatusOr<StepTicket> DecodeEngine::SubmitJoint(std::span<JointRequest> requests) {
  return impl_->SubmitJoint(requests);
}
absl::Status DecodeEngine::Wait(StepTicket ticket, StepResult* result) {
  return impl_->Wait(ticket, {result, 1});
}
absl::Status DecodeEngine::WaitJoint(StepTicket ticket, std::span<StepResult> results) {
  return impl_->Wait(ticket, results);
}
absl::Status DecodeEngine::Step(const StepRequest& request, StepResult* result) {
  return impl_->Step(request, StepGraphs::Form::kPlain, result);
}

// ---- for tests and measurements: diagnostics.h, engine_profiler.h ----

absl::StatusOr<std::unique_ptr<DecodeEngine>> CreateEngineWithDiagnostics(
    runtime::Device& device, const models::ModelSource& source, const DecodeEngineOptions& options,
    const EngineDiagnostics& diagnostics, const ProgressFn& progress) {
  if (diagnostics.poison && diagnostics.random_kv_cache)
    return absl::InvalidArgumentError(
        "poison and random_kv_cache are both set; allowed: at most one of them");
  if (diagnostics.simulation != nullptr) {
    if (diagnostics.poison || diagnostics.random_kv_cache)
      return absl::InvalidArgumentError(
          "simulation: got poison or random_kv_cache beside it, whose memory is not there; "
          "allowed: neither");
    if (device.kind() != runtime::DeviceKind::kHost)
      return absl::FailedPreconditionError(absl::StrCat("simulation: got a device of kind ",
                                                        std::string(runtime::NameOf(device.kind())),
                                                        "; allowed: host"));
  }
  REPRISE_ASSIGN_OR_RETURN(auto parts,
                           EngineParts::Create(device, source, options, diagnostics, progress));
  return std::unique_ptr<DecodeEngine>(
      new DecodeEngine(std::make_unique<DecodeEngine::Impl>(std::move(parts))));
}

absl::Status EngineProfiler::Capture(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens) {
  return engine_.impl_->CaptureProfiledGraphs(rows, tokens);
}

namespace {

absl::Status CheckProfilable(const StepRequest& request) {
  if (request.mode != ExecutionMode::kReplay)
    return absl::InvalidArgumentError("a profiled step is to run eagerly; allowed: kReplay");
  if (request.num_steps == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a profiled step has num_steps ", request.num_steps, "; allowed: 1"));
}

}  // namespace

absl::Status EngineProfiler::Step(const StepRequest& request, StepResult* result) {
  REPRISE_RETURN_IF_ERROR(CheckProfilable(request));
  return engine_.impl_->Step(request, StepGraphs::Form::kProfiled, result);
}
absl::Status EngineProfiler::CaptureUnpadded(std::span<const uint32_t> rows,
                                             std::span<const uint32_t> tokens) {
  return engine_.impl_->CaptureUnpaddedGraphs(rows, tokens);
}
absl::Status EngineProfiler::StepUnpadded(const StepRequest& request, StepResult* result) {
  REPRISE_RETURN_IF_ERROR(CheckProfilable(request));
  return engine_.impl_->Step(request, StepGraphs::Form::kUnpadded, result);
}
absl::Status EngineProfiler::ReadStamps(uint32_t rows, StepStamps* stamps) {
  return engine_.impl_->ReadStamps(/*decode=*/true, rows, stamps);
}
absl::Status EngineProfiler::ReadMixedStamps(uint32_t tokens, StepStamps* stamps) {
  return engine_.impl_->ReadStamps(/*decode=*/false, tokens, stamps);
}
const StartReport& EngineProfiler::start_report() const { return engine_.impl_->start_report(); }
absl::StatusOr<std::vector<graphs::GraphNode>> EngineProfiler::ListNodes(std::string_view graph) {
  return engine_.impl_->ListNodes(graph);
}

}  // namespace reprise::engine
