// SPDX-License-Identifier: Apache-2.0
#include "graphs/decode_engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "graphs/engine_setup.h"
#include "graphs/row_table.h"
#include "graphs/sampling.h"
#include "graphs/stamped_graphs.h"
#include "graphs/step_program.h"
#include "graphs/step_validator.h"
#include "graphs/step_writer.h"
#include "graphs/workspace.h"
#include "kernels/fill/fill.h"
#include "runtime/block_ledger.h"
#include "runtime/check.h"
#include "runtime/kv_pool.h"
#include "runtime/mapped_ring.h"
#include "runtime/model_weights.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t Nanoseconds(Clock::duration d) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
}

// A row that runs in a step.
struct InFlightRow {
  uint32_t row = 0;  // the caller's id
  uint32_t slot = 0;
  uint64_t generation = 0;  // of the row in the slot
  uint32_t context_before = 0;
  uint32_t num_tokens = 0;
  uint32_t num_prompt_logprobs = 0;
};

// A step between Submit and Wait.
struct InFlight {
  StepTicket ticket = 0;
  SessionId session = 0;
  uint64_t sequence = 0;
  std::vector<InFlightRow> rows;  // in result order
  bool decode = false;            // a decode graph
  StepReport report;
  StepLedger ledger;
  Clock::time_point submitted;
};

struct Session {
  uint64_t epoch = 0;
  uint64_t next_sequence = 1;
  uint32_t in_flight = 0;
  bool closing = false;
  RowList rows;
};

// A LogprobReport as the caller gets it.
struct ReportView {
  float logprob = 0.0f;
  uint32_t rank = 0;
  TopRange top;
};

// Report `index` of a result slot; its likeliest tokens go to the end of result->top_logprobs.
ReportView ReadReport(const kernels::ResultSlotLayout& layout, const std::byte* slot,
                      uint32_t index, StepResult* result) {
  kernels::LogprobReport report;
  std::memcpy(&report, slot + layout.reports + index * sizeof(report), sizeof(report));
  const TopRange top{.begin = static_cast<uint32_t>(result->top_logprobs.size()),
                     .count = report.num_top};
  for (uint32_t i = 0; i < report.num_top; ++i)
    result->top_logprobs.push_back(
        {.token = report.top_token[i], .logprob = report.top_logprob[i]});
  return {.logprob = report.logprob, .rank = report.rank, .top = top};
}

}  // namespace

class DecodeEngine::Impl {
 public:
  explicit Impl(runtime::Device& device) : device_(device) {}
  ~Impl() {
    // Nothing that a step works in may go before the step is done. A fault here has been reported
    // by Wait already.
    if (stream_ != nullptr) stream_->Synchronize().IgnoreError();
  }

  absl::Status Start(const ModelSource& source, const DecodeEngineOptions& options,
                     const ProgressFn& progress);

  const EngineInfo& info() const { return info_; }
  PoolInfo pool() const;
  absl::Status health() const;
  SessionInfo OpenSession();
  absl::Status CloseSession(SessionId id);
  absl::StatusOr<std::vector<uint32_t>> AllocateBlocks(SessionId id, uint32_t count);
  absl::Status FreeBlocks(SessionId id, std::span<const uint32_t> blocks);
  absl::StatusOr<StepTicket> Submit(const StepRequest& request);
  absl::Status Wait(StepTicket ticket, StepResult* result);
  absl::Status Step(const StepRequest& request, StepResult* result);
  absl::Status CaptureTwins(std::span<const uint32_t> rows);
  absl::Status ReadStamps(uint32_t rows, StepStamps* stamps);

 private:
  absl::Status CreatePoolAndRings();
  absl::Status FillPool(const runtime::KvGeometry& geometry);
  absl::Status Capture(const ProgressFn& progress);
  absl::StatusOr<uint64_t> EstimateGraphBytes();
  StepShape ShapeFor(const Bucket& bucket, bool mixed) const;
  kernels::LinearCandidate LinearKernels() const {
    return options_.linear == LinearPolicy::kPortable ? kernels::LinearCandidate::kPortable
                                                      : kernels::LinearCandidate::kBest;
  }

  absl::StatusOr<Session*> FindSession(SessionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOrder(const StepRequest& request, const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The graphs that serve the staged step, and its size in their unit.
  struct Target {
    GraphManager* graphs;
    int64_t size;
  };
  absl::StatusOr<Target> PickGraphs(const StagedStep& staged, ExecutionMode mode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The twin of the decode graph that serves `rows`. Errors: FailedPrecondition without it.
  absl::StatusOr<Target> PickTwin(int64_t rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RefuseInFlight() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Launch(const StepRequest& request, const Target& target, InFlight* step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PoisonBlocks(std::span<const uint32_t> blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PoisonActivations() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Fault(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReleaseSession(SessionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StepTicket> SubmitLocked(const StepRequest& request, Clock::time_point entered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Blocks until step `ticket` is published, without the lock.
  absl::Status PollResult(StepTicket ticket) const;
  void ReadResult(const InFlight& step, StepResult* result) const;
  // A row's part of the result: `report` is that of its sampled token.
  void ReadRow(const InFlightRow& row, const std::byte* slot, uint32_t index, uint32_t report,
               StepResult* result) const;
  void ReadPromptLogprobs(const InFlight& step, const std::byte* slot, uint32_t first_report,
                          StepResult* result) const;
  // Rows that stopped in the step are known to have, from here on.
  void NoteStopped(const InFlight& step, const StepResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  runtime::Device& device_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::unique_ptr<runtime::ModelWeights> weights_;
  DecodeEngineOptions options_;
  WorkspaceLimits workspace_limits_;
  StepWorkspace workspace_;
  runtime::KvPool pool_;
  runtime::MappedRing metadata_;
  runtime::MappedRing results_;
  kernels::StepSlotLayout metadata_layout_;
  std::unique_ptr<StepProgram> program_;
  std::unique_ptr<GraphManager> decode_graphs_;
  std::unique_ptr<GraphManager> mixed_graphs_;
  EngineInfo info_;

  mutable absl::Mutex mutex_;
  std::unique_ptr<RowTable> rows_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<runtime::BlockLedger> ledger_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StepValidator> validator_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StepWriter> writer_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> ran_ ABSL_GUARDED_BY(mutex_);  // scratch of Submit
  absl::flat_hash_map<SessionId, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  SessionId next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);  // ring by ticket
  StepTicket next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  StepTicket next_wait_ ABSL_GUARDED_BY(mutex_) = 1;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StampedGraphs> twins_ ABSL_GUARDED_BY(mutex_);  // none until CaptureTwins
};

// ---- start ----

absl::Status DecodeEngine::Impl::Start(const ModelSource& source,
                                       const DecodeEngineOptions& options,
                                       const ProgressFn& progress) {
  const Clock::time_point begin = Clock::now();
  REPRISE_ASSIGN_OR_RETURN(info_.model, ReadModelSpec(source));
  REPRISE_ASSIGN_OR_RETURN(ResolvedOptions resolved,
                           ResolveOptions(options, info_.model, device_.properties()));
  options_ = std::move(resolved.options);
  workspace_limits_ = resolved.workspace;
  info_.device = device_.properties();
  info_.dtype = options_.dtype;
  info_.linear = options_.linear;
  info_.limits = resolved.limits;
  REPRISE_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(kernels_, kernels::KernelSet::Load(device_, options_.dtype));
  REPRISE_ASSIGN_OR_RETURN(weights_,
                           LoadWeights(device_, source, info_.model, *kernels_, progress));
  info_.memory.weights_bytes = weights_->bytes();
  info_.load_ns = Nanoseconds(Clock::now() - begin);

  REPRISE_ASSIGN_OR_RETURN(workspace_, StepWorkspace::Create(device_, *stream_, info_.model,
                                                             *kernels_, workspace_limits_));
  info_.memory.workspace_bytes = workspace_.bytes();
  REPRISE_RETURN_IF_ERROR(CreatePoolAndRings());
  REPRISE_RETURN_IF_ERROR(Capture(progress));

  const SamplingLimits sampling{
      .adjust_logits = info_.limits.adjust_logits,
      .max_logit_rows = info_.limits.max_logit_rows,
      .max_prompt_logprobs = info_.limits.max_prompt_logprobs,
      .max_data_words = static_cast<uint32_t>(info_.limits.max_sampling_bytes / sizeof(uint32_t)),
      .reports = true,
      .eos_token_ids = info_.model.eos_token_ids};
  absl::MutexLock lock(&mutex_);
  ledger_ = std::make_unique<runtime::BlockLedger>(pool_.num_blocks());
  rows_ = std::make_unique<RowTable>(info_.limits.max_rows, info_.limits.max_blocks_per_row);
  validator_ = std::make_unique<StepValidator>(
      ValidationLimits{.block_size = options_.block_size,
                       .vocab_size = static_cast<uint32_t>(info_.model.vocab_size),
                       .max_context_length = info_.limits.max_context_length,
                       .max_step_tokens = info_.limits.max_step_tokens,
                       .sampling = sampling},
      *rows_, *ledger_);
  writer_ = std::make_unique<StepWriter>(metadata_layout_, *rows_, sampling,
                                         static_cast<uint32_t>(info_.model.vocab_size));
  ran_.reserve(info_.limits.max_rows);
  in_flight_.resize(options_.pipeline_depth);
  for (InFlight& step : in_flight_) step.rows.reserve(info_.limits.max_rows);
  // Distinguishes this engine's sessions from those of one before it at the same address.
  next_epoch_ = Nanoseconds(std::chrono::system_clock::now().time_since_epoch());
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::CreatePoolAndRings() {
  const EngineLimits& limits = info_.limits;
  metadata_layout_ = kernels::StepSlotLayout::For(limits.max_rows, limits.max_step_tokens,
                                                  limits.max_blocks_per_row,
                                                  limits.max_sampling_bytes / sizeof(uint32_t));
  REPRISE_ASSIGN_OR_RETURN(metadata_, runtime::MappedRing::Create(device_, limits.pipeline_depth,
                                                                  metadata_layout_.bytes));
  REPRISE_ASSIGN_OR_RETURN(results_, runtime::MappedRing::Create(device_, limits.pipeline_depth,
                                                                 workspace_.result_layout.bytes));
  const auto geometry = runtime::KvGeometry::For(info_.model, options_.block_size, options_.dtype);
  uint64_t graph_bytes = 0;
  if (options_.kv_cache_bytes == 0 && device_.kind() != runtime::DeviceKind::kHost) {
    REPRISE_ASSIGN_OR_RETURN(graph_bytes, EstimateGraphBytes());
  }
  REPRISE_ASSIGN_OR_RETURN(const uint64_t blocks,
                           NumPoolBlocks(device_, options_, geometry, graph_bytes));
  REPRISE_ASSIGN_OR_RETURN(pool_, runtime::KvPool::Create(device_, geometry, blocks));
  info_.memory.kv_cache_bytes = pool_.bytes();
  return options_.poison || options_.random_kv_cache ? FillPool(geometry) : absl::OkStatus();
}

absl::Status DecodeEngine::Impl::FillPool(const runtime::KvGeometry& geometry) {
  const int64_t count = geometry.BlockElements() * pool_.num_blocks();
  for (int64_t layer = 0; layer < geometry.num_layers; ++layer) {
    void* out = pool_.Layer(layer);
    REPRISE_RETURN_IF_ERROR(
        options_.poison ? kernels::NanFill(*stream_, *kernels_, {.out = out, .count = count})
                        : kernels::RandomFill(
                              *stream_, *kernels_,
                              {.out = out, .count = count, .seed = static_cast<uint64_t>(layer)}));
  }
  return stream_->Synchronize();
}

// Captures one mixed bucket against a pool of two blocks and throws it away: the driver's share of
// a graph depends on its nodes, not on their arguments.
absl::StatusOr<uint64_t> DecodeEngine::Impl::EstimateGraphBytes() {
  const auto geometry = runtime::KvGeometry::For(info_.model, options_.block_size, options_.dtype);
  REPRISE_ASSIGN_OR_RETURN(runtime::KvPool pool, runtime::KvPool::Create(device_, geometry, 2));
  const StepProgram program(info_.model, *kernels_, *weights_, pool, workspace_, metadata_,
                            metadata_layout_, results_, LinearKernels());
  REPRISE_ASSIGN_OR_RETURN(
      const auto manager,
      GraphManager::Create(*stream_,
                           {.buckets = {info_.limits.max_step_tokens}, .name_prefix = "calibrate"},
                           [&](runtime::Stream& stream, const Bucket& bucket) {
                             return program.Enqueue(stream, ShapeFor(bucket, true));
                           }));
  const uint64_t graphs = options_.decode_buckets.size() + options_.mixed_buckets.size();
  return graphs * manager->captured()[0].device_bytes;
}

StepShape DecodeEngine::Impl::ShapeFor(const Bucket& bucket, bool mixed) const {
  const auto capacity = static_cast<uint32_t>(bucket.capacity);
  return {.max_rows = std::min(capacity, info_.limits.max_rows),
          .max_tokens = capacity,
          .mixed = mixed};
}

absl::Status DecodeEngine::Impl::Capture(const ProgressFn& progress) {
  const Clock::time_point begin = Clock::now();
  program_ = std::make_unique<StepProgram>(info_.model, *kernels_, *weights_, pool_, workspace_,
                                           metadata_, metadata_layout_, results_, LinearKernels());
  const auto total =
      static_cast<uint64_t>(options_.decode_buckets.size() + options_.mixed_buckets.size());
  uint64_t before = 0;
  auto create = [&](bool mixed) {
    GraphManagerOptions options{.buckets = mixed ? options_.mixed_buckets : options_.decode_buckets,
                                .name_prefix = mixed ? "mixed" : "decode"};
    if (progress) {
      options.progress = [&](const CaptureProgress& p) {
        progress({.stage = "capture",
                  .detail = p.bucket,
                  .done = before + static_cast<uint64_t>(p.done),
                  .total = total});
      };
    }
    return GraphManager::Create(*stream_, std::move(options),
                                [this, mixed](runtime::Stream& stream, const Bucket& bucket) {
                                  return program_->Enqueue(stream, ShapeFor(bucket, mixed));
                                });
  };
  REPRISE_ASSIGN_OR_RETURN(mixed_graphs_, create(true));
  before = mixed_graphs_->captured().size();
  REPRISE_ASSIGN_OR_RETURN(decode_graphs_, create(false));
  info_.decode_buckets.assign(decode_graphs_->captured().begin(), decode_graphs_->captured().end());
  info_.mixed_buckets.assign(mixed_graphs_->captured().begin(), mixed_graphs_->captured().end());
  for (const CapturedBucket& bucket : info_.decode_buckets)
    info_.memory.graphs_bytes += bucket.device_bytes;
  for (const CapturedBucket& bucket : info_.mixed_buckets)
    info_.memory.graphs_bytes += bucket.device_bytes;
  info_.capture_ns = Nanoseconds(Clock::now() - begin);
  return absl::OkStatus();
}

// ---- sessions and blocks ----

PoolInfo DecodeEngine::Impl::pool() const {
  absl::MutexLock lock(&mutex_);
  return {.block_size = options_.block_size,
          .num_blocks = pool_.num_blocks(),
          .free_blocks = ledger_->num_free(),
          .bytes = pool_.bytes()};
}

absl::Status DecodeEngine::Impl::health() const {
  absl::MutexLock lock(&mutex_);
  return fault_;
}

SessionInfo DecodeEngine::Impl::OpenSession() {
  absl::MutexLock lock(&mutex_);
  const SessionId id = next_session_++;
  Session& session = sessions_[id];
  session.epoch = next_epoch_++;
  return {.id = id, .epoch = session.epoch};
}

absl::StatusOr<Session*> DecodeEngine::Impl::FindSession(SessionId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end() || it->second.closing)
    return absl::NotFoundError(absl::StrCat("session ", id, " is not open"));
  return &it->second;
}

absl::Status DecodeEngine::Impl::CloseSession(SessionId id) {
  absl::MutexLock lock(&mutex_);
  REPRISE_ASSIGN_OR_RETURN(Session * session, FindSession(id));
  session->closing = true;
  return session->in_flight == 0 ? ReleaseSession(id) : absl::OkStatus();
}

absl::Status DecodeEngine::Impl::ReleaseSession(SessionId id) {
  Session& session = sessions_.at(id);
  while (session.rows.first != kNoSlot) {
    const uint32_t slot = session.rows.first;
    for (const uint32_t block : rows_->table(slot).first(rows_->state(slot).table_length))
      ledger_->RemoveRow(block);
    rows_->Remove(slot, session.rows);
  }
  std::vector<uint32_t> freed;
  ledger_->FreeAll(id, &freed);
  sessions_.erase(id);
  return PoisonBlocks(freed);
}

absl::StatusOr<std::vector<uint32_t>> DecodeEngine::Impl::AllocateBlocks(SessionId id,
                                                                         uint32_t count) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(FindSession(id).status());
  std::vector<uint32_t> blocks;
  REPRISE_RETURN_IF_ERROR(ledger_->Allocate(id, count, &blocks));
  return blocks;
}

absl::Status DecodeEngine::Impl::FreeBlocks(SessionId id, std::span<const uint32_t> blocks) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(FindSession(id).status());
  REPRISE_RETURN_IF_ERROR(ledger_->Free(id, blocks));
  return PoisonBlocks(blocks);
}

// The stream orders the fill behind every step that still reads the blocks, and before any that
// gets them next.
absl::Status DecodeEngine::Impl::PoisonBlocks(std::span<const uint32_t> blocks) {
  if (!options_.poison || !fault_.ok()) return absl::OkStatus();
  const runtime::KvGeometry& geometry = pool_.geometry();
  for (const uint32_t block : blocks) {
    for (int64_t layer = 0; layer < geometry.num_layers; ++layer) {
      const absl::Status status =
          kernels::NanFill(*stream_, *kernels_,
                           {.out = pool_.Block(layer, block), .count = geometry.BlockElements()});
      if (!status.ok()) return Fault(status);
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::PoisonActivations() {
  if (!options_.poison) return absl::OkStatus();
  return kernels::NanFill(*stream_, *kernels_,
                          {.out = workspace_.activations, .count = workspace_.activation_elements});
}

// ---- steps ----

absl::Status DecodeEngine::Impl::Fault(const absl::Status& status) {
  if (fault_.ok()) fault_ = status;
  return fault_;
}

absl::Status DecodeEngine::Impl::CheckOrder(const StepRequest& request,
                                            const Session& session) const {
  if (request.epoch != session.epoch)
    return absl::FailedPreconditionError(
        absl::StrCat("epoch is ", request.epoch, "; this session's is ", session.epoch));
  if (request.sequence != session.next_sequence)
    return absl::FailedPreconditionError(absl::StrCat(
        "sequence is ", request.sequence, "; the next step is ", session.next_sequence));
  if (next_ticket_ - next_wait_ >= options_.pipeline_depth)
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.pipeline_depth,
                     " steps are in flight, the pipeline's depth; wait for the oldest first"));
  return absl::OkStatus();
}

absl::StatusOr<DecodeEngine::Impl::Target> DecodeEngine::Impl::PickGraphs(const StagedStep& staged,
                                                                          ExecutionMode mode) {
  const auto rows = static_cast<int64_t>(staged.runs.size());
  // A step that only drops, adds or appends replays the smallest decode graph; no row runs in it.
  const int64_t at_least_one = std::max<int64_t>(rows, 1);
  if (mode == ExecutionMode::kStamped) return PickTwin(staged.all_single ? at_least_one : 0);
  if (staged.all_single && at_least_one <= decode_graphs_->table().max_capacity())
    return Target{decode_graphs_.get(), at_least_one};
  if (static_cast<int64_t>(staged.num_tokens) <= mixed_graphs_->table().max_capacity())
    return Target{mixed_graphs_.get(), staged.num_tokens};
  return absl::OutOfRangeError(absl::StrCat(
      "the step has ", staged.num_tokens, " query tokens in ", rows, " rows; allowed: at most ",
      mixed_graphs_->table().max_capacity(), " in the largest mixed bucket"));
}

absl::StatusOr<DecodeEngine::Impl::Target> DecodeEngine::Impl::PickTwin(int64_t rows) {
  if (rows == 0)
    return absl::FailedPreconditionError(
        "a stamped step has a row of several query tokens; allowed: decode steps");
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, decode_graphs_->table().SmallestThatFits(rows));
  if (twins_ != nullptr) {
    const auto twin = twins_->graphs().table().SmallestThatFits(rows);
    if (twin.ok() && (*twin)->capacity == bucket->capacity) return Target{&twins_->graphs(), rows};
  }
  return absl::FailedPreconditionError(
      absl::StrCat("graph '", bucket->name, "' has no twin; CaptureTwins makes one"));
}

absl::Status DecodeEngine::Impl::Launch(const StepRequest& request, const Target& target,
                                        InFlight* step) {
  REPRISE_RETURN_IF_ERROR(PoisonActivations());
  const bool eager = request.mode == ExecutionMode::kEager;
  REPRISE_ASSIGN_OR_RETURN(const ReplayReport replay, eager ? target.graphs->RunEager(target.size)
                                                            : target.graphs->Replay(target.size));
  StepReport& report = step->report;
  report.graph = replay.graph;
  report.replayed = !eager;
  report.padding_tokens = static_cast<uint32_t>(replay.capacity) - report.tokens;
  step->decode = target.graphs != mixed_graphs_.get();
  report.padding_rows = step->decode ? report.padding_tokens : 0;
  return absl::OkStatus();
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::Submit(const StepRequest& request) {
  const Clock::time_point entered = Clock::now();
  absl::MutexLock lock(&mutex_);
  return SubmitLocked(request, entered);
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitLocked(const StepRequest& request,
                                                            Clock::time_point entered) {
  if (!fault_.ok())
    return absl::UnavailableError(
        absl::StrCat("the engine stopped after a fault: ", fault_.message()));
  REPRISE_ASSIGN_OR_RETURN(Session * session, FindSession(request.session));
  REPRISE_RETURN_IF_ERROR(CheckOrder(request, *session));
  REPRISE_RETURN_IF_ERROR(validator_->Validate(request, session->rows));
  const StagedStep& staged = validator_->staged();
  absl::StatusOr<Target> target = PickGraphs(staged, request.mode);
  if (!target.ok()) {
    validator_->Abandon();
    return target.status();
  }

  const Clock::time_point validated = Clock::now();
  const StepTicket ticket = next_ticket_;
  InFlight& step = in_flight_[(ticket - 1) % in_flight_.size()];
  writer_->Write(request, staged, ticket, session->rows, metadata_.HostSlot(ticket - 1), &ran_);
  step.rows.clear();
  for (size_t i = 0; i < ran_.size(); ++i) {
    const StagedRun& run = staged.runs[i];
    const uint32_t slot = writer_->ran_slots()[i];
    step.rows.push_back({.row = ran_[i],
                         .slot = slot,
                         .generation = rows_->state(slot).generation,
                         .context_before = run.context_before,
                         .num_tokens = run.num_tokens,
                         .num_prompt_logprobs = run.num_prompt_logprobs()});
  }
  step.ticket = ticket;
  step.session = request.session;
  step.sequence = request.sequence;
  step.report =
      StepReport{.rows = static_cast<uint32_t>(staged.runs.size()), .tokens = staged.num_tokens};
  step.submitted = entered;
  const Clock::time_point written = Clock::now();
  // The mirror has moved on: a launch that fails leaves host and device apart, which is a fault.
  const absl::Status launched = Launch(request, *target, &step);
  if (!launched.ok()) return Fault(launched);
  step.ledger = StepLedger{.validate_ns = Nanoseconds(validated - entered),
                           .ring_ns = Nanoseconds(written - validated),
                           .launch_ns = Nanoseconds(Clock::now() - written)};
  ++session->next_sequence;
  ++session->in_flight;
  ++next_ticket_;
  return ticket;
}

absl::Status DecodeEngine::Impl::PollResult(StepTicket ticket) const {
  const Clock::time_point begin = Clock::now();
  const auto timeout = std::chrono::milliseconds(options_.watchdog_timeout_ms);
  Clock::time_point next_check = begin + std::chrono::milliseconds(10);
  const bool host = device_.kind() == runtime::DeviceKind::kHost;
  while (results_.Poll(ticket - 1) != ticket) {
    const Clock::time_point now = Clock::now();
    if (now - begin > std::chrono::microseconds(50)) {
      // On the host device the waiting thread would take a core from the kernels it waits for.
      host ? std::this_thread::sleep_for(std::chrono::microseconds(20)) : std::this_thread::yield();
    }
    if (now < next_check) continue;
    next_check = now + std::chrono::milliseconds(10);
    const absl::Status state = stream_->Query();
    if (!state.ok() && !absl::IsUnavailable(state))
      return absl::InternalError(absl::StrCat("device fault: ", state.message()));
    // Idle, and still nothing published: the step did not see its metadata.
    if (state.ok() && results_.Poll(ticket - 1) != ticket)
      return absl::InternalError(absl::StrCat("step ", ticket, " ended without a result"));
    if (now - begin > timeout)
      return absl::DeadlineExceededError(absl::StrCat("step ", ticket, " has no result after ",
                                                      options_.watchdog_timeout_ms, " ms"));
  }
  return absl::OkStatus();
}

void DecodeEngine::Impl::ReadResult(const InFlight& step, StepResult* result) const {
  const std::byte* slot = results_.HostSlot(step.ticket - 1);
  kernels::ResultHeader header;
  std::memcpy(&header, slot, sizeof(header));
  result->session = step.session;
  result->sequence = step.sequence;
  result->report = step.report;
  result->ledger = step.ledger;
  result->ledger.device_ns = header.end_ns - header.begin_ns;
  result->ledger.total_ns = Nanoseconds(Clock::now() - step.submitted);
  result->rows.clear();
  result->top_logprobs.clear();
  result->prompt_logprobs.clear();
  result->logits.clear();
  uint32_t num_sampled = 0;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    ReadRow(step.rows[i], slot, static_cast<uint32_t>(i), num_sampled, result);
    num_sampled += result->rows.back().sampled ? 1 : 0;
    if (result->rows.back().status != RowStatus::kStopped) continue;
    // It had a place in the graph and did nothing there.
    StepReport& report = result->report;
    --report.rows;
    report.tokens -= step.rows[i].num_tokens;
    report.padding_tokens += step.rows[i].num_tokens;
    report.padding_rows += step.decode ? 1 : 0;
  }
  ReadPromptLogprobs(step, slot, num_sampled, result);
}

void DecodeEngine::Impl::ReadRow(const InFlightRow& row, const std::byte* slot, uint32_t index,
                                 uint32_t report, StepResult* result) const {
  kernels::RowResult got;
  std::memcpy(&got, slot + sizeof(kernels::ResultHeader) + index * sizeof(got), sizeof(got));
  RowOutcome& out = result->rows.emplace_back();
  out = {
      .row = row.row,
      .status = (got.flags & kernels::kResultStopped) != 0 ? RowStatus::kStopped : RowStatus::kRan,
      .sampled = (got.flags & kernels::kResultSampled) != 0,
      .token = got.token,
      .logprob = got.logprob,
      .context_length = got.context_length,
      .finish = static_cast<FinishReason>(got.flags >> kernels::kResultFinishShift)};
  if ((got.flags & kernels::kResultLogprobs) != 0) {
    const ReportView view = ReadReport(workspace_.result_layout, slot, report, result);
    out.rank = view.rank;
    out.top = view.top;
  }
  if ((got.flags & kernels::kResultLogits) != 0) {
    const auto vocab = static_cast<size_t>(info_.model.vocab_size);
    const size_t begin = result->logits.size();
    result->logits.resize(begin + vocab);
    std::memcpy(result->logits.data() + begin,
                slot + workspace_.result_layout.logits + begin * sizeof(float),
                vocab * sizeof(float));
    out.has_logits = true;
  }
}

void DecodeEngine::Impl::ReadPromptLogprobs(const InFlight& step, const std::byte* slot,
                                            uint32_t first_report, StepResult* result) const {
  uint32_t report = first_report;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const InFlightRow& row = step.rows[i];
    if (result->rows[i].status == RowStatus::kStopped) continue;
    for (uint32_t j = 0; j < row.num_prompt_logprobs; ++j) {
      const ReportView view = ReadReport(workspace_.result_layout, slot, report++, result);
      result->prompt_logprobs.push_back({.row = row.row,
                                         .position = row.context_before + j + 1,
                                         .logprob = view.logprob,
                                         .rank = view.rank,
                                         .top = view.top});
    }
  }
}

void DecodeEngine::Impl::NoteStopped(const InFlight& step, const StepResult& result) {
  for (size_t i = 0; i < step.rows.size(); ++i) {
    if (result.rows[i].finish == FinishReason::kNone) continue;
    RowState& state = rows_->state(step.rows[i].slot);
    // The slot may be another row's by now.
    if (state.generation != step.rows[i].generation) continue;
    state.stopped = true;
    state.context_length = result.rows[i].context_length;
  }
}

absl::Status DecodeEngine::Impl::Wait(StepTicket ticket, StepResult* result) {
  {
    absl::MutexLock lock(&mutex_);
    if (ticket < next_wait_ || ticket >= next_ticket_ || ticket != next_wait_ || waiting_) {
      return absl::FailedPreconditionError(
          absl::StrCat("waits for step ", ticket, "; allowed: the oldest in flight",
                       next_wait_ < next_ticket_ ? absl::StrCat(", ", next_wait_) : ", none is",
                       ", by one thread"));
    }
    if (!fault_.ok()) return fault_;
    waiting_ = true;
  }
  const absl::Status polled = PollResult(ticket);

  absl::MutexLock lock(&mutex_);
  waiting_ = false;
  if (!polled.ok()) return Fault(polled);
  const InFlight& step = in_flight_[(ticket - 1) % in_flight_.size()];
  ReadResult(step, result);
  NoteStopped(step, *result);
  ++next_wait_;
  Session& session = sessions_.at(step.session);
  --session.in_flight;
  if (session.closing && session.in_flight == 0) return ReleaseSession(step.session);
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::Step(const StepRequest& request, StepResult* result) {
  const Clock::time_point entered = Clock::now();
  StepTicket ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    // After a fault SubmitLocked names it; the steps that were in flight then stay there.
    if (fault_.ok()) REPRISE_RETURN_IF_ERROR(RefuseInFlight());
    REPRISE_ASSIGN_OR_RETURN(ticket, SubmitLocked(request, entered));
  }
  return Wait(ticket, result);
}

// ---- measuring ----

absl::Status DecodeEngine::Impl::RefuseInFlight() const {
  if (next_ticket_ == next_wait_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(next_ticket_ - next_wait_, " steps are in flight; allowed: none"));
}

absl::Status DecodeEngine::Impl::CaptureTwins(std::span<const uint32_t> rows) {
  absl::MutexLock lock(&mutex_);
  if (!fault_.ok())
    return absl::UnavailableError(
        absl::StrCat("the engine stopped after a fault: ", fault_.message()));
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  GraphManagerOptions options{.buckets = {}, .name_prefix = "twin"};
  for (const uint32_t count : rows) {
    REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, decode_graphs_->table().SmallestThatFits(count));
    options.buckets.push_back(bucket->capacity);
  }
  twins_ = nullptr;
  REPRISE_ASSIGN_OR_RETURN(
      twins_, StampedGraphs::Create(device_, *stream_, *kernels_, std::move(options),
                                    [this](runtime::Stream& stream, const Bucket& bucket) {
                                      return program_->Enqueue(stream, ShapeFor(bucket, false));
                                    }));
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::ReadStamps(uint32_t rows, StepStamps* stamps) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  REPRISE_ASSIGN_OR_RETURN(const Target twin, PickTwin(std::max(rows, 1u)));
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, twin.graphs->table().SmallestThatFits(twin.size));
  REPRISE_ASSIGN_OR_RETURN(stamps->launches, twins_->LaunchesOf(twin.size));
  stamps->num_kernel_nodes =
      twin.graphs->captured()[static_cast<size_t>(bucket->index)].num_kernel_nodes;
  REPRISE_RETURN_IF_ERROR(stream_->CopyToHost(&stamps->begin_ns, &workspace_.plan.counts->begin_ns,
                                              sizeof(stamps->begin_ns)));
  return twins_->Read(twin.size, &stamps->done_ns);
}

// ---- the public face ----

DecodeEngine::DecodeEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DecodeEngine::~DecodeEngine() = default;

absl::StatusOr<std::unique_ptr<DecodeEngine>> DecodeEngine::Create(
    runtime::Device& device, const ModelSource& source, const DecodeEngineOptions& options,
    const std::function<void(const EngineProgress&)>& progress) {
  auto impl = std::make_unique<Impl>(device);
  REPRISE_RETURN_IF_ERROR(impl->Start(source, options, progress));
  return std::unique_ptr<DecodeEngine>(new DecodeEngine(std::move(impl)));
}

const EngineInfo& DecodeEngine::info() const { return impl_->info(); }
PoolInfo DecodeEngine::pool() const { return impl_->pool(); }
absl::Status DecodeEngine::health() const { return impl_->health(); }
SessionInfo DecodeEngine::OpenSession() { return impl_->OpenSession(); }
absl::Status DecodeEngine::CloseSession(SessionId session) { return impl_->CloseSession(session); }
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::AllocateBlocks(SessionId session,
                                                                   uint32_t count) {
  return impl_->AllocateBlocks(session, count);
}
absl::Status DecodeEngine::FreeBlocks(SessionId session, std::span<const uint32_t> blocks) {
  return impl_->FreeBlocks(session, blocks);
}
absl::StatusOr<StepTicket> DecodeEngine::Submit(const StepRequest& request) {
  return impl_->Submit(request);
}
absl::Status DecodeEngine::Wait(StepTicket ticket, StepResult* result) {
  return impl_->Wait(ticket, result);
}
absl::Status DecodeEngine::Step(const StepRequest& request, StepResult* result) {
  return impl_->Step(request, result);
}
absl::Status DecodeEngine::CaptureTwins(std::span<const uint32_t> rows) {
  return impl_->CaptureTwins(rows);
}
absl::Status DecodeEngine::ReadStamps(uint32_t rows, StepStamps* stamps) {
  return impl_->ReadStamps(rows, stamps);
}

}  // namespace reprise::graphs
