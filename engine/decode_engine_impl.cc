// SPDX-License-Identifier: Apache-2.0
// Steps, graphs and attention's tree; decode_engine_blocks.cc has sessions and KV blocks.
#include "engine/decode_engine_impl.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/memory_copy.h"
#include "engine/memory_fill.h"
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

  std::vector<std::unique_ptr<StepGraphs::Set>> replaced;  // which go without the lock
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  // The last step has published its result, and ends at once.
  const bool idle = next_wait_ == next_ticket_;
  if (idle) REPRISE_RETURN_IF_ERROR(parts_->stream->Synchronize());
  parts_->graphs->Install(std::move(set), next_ticket_ - 1);
  if (idle) replaced = parts_->graphs->TakeAllReplaced();
  return parts_->graphs->info();
}

// ---- steps ----

absl::StatusOr<StepTicket> DecodeEngine::Impl::Submit(const StepRequest& request) {
  const Clock::time_point entered = Clock::now();
  absl::MutexLock lock(&mutex_);
  return SubmitOne(request, StepForm::kPlain, entered);
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitJoint(std::span<JointRequest> requests) {
  const Clock::time_point entered = Clock::now();
  absl::MutexLock lock(&mutex_);
  return SubmitLocked(requests, StepForm::kPlain, entered);
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitOne(const StepRequest& request, StepForm form,
                                                         Clock::time_point entered) {
  JointRequest one{.request = &request};
  REPRISE_ASSIGN_OR_RETURN(const StepTicket ticket, SubmitLocked({&one, 1}, form, entered));
  if (ticket == 0) return one.status;
  return ticket;
}

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitLocked(std::span<JointRequest> requests,
                                                            StepForm form,
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

  std::vector<std::unique_ptr<StepGraphs::Set>> replaced;  // which go without the lock
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
  replaced = parts_->graphs->TakeReplaced(ticket);
  std::vector<uint32_t> freed;
  if (!read.ok()) NoteLost(step);
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

void DecodeEngine::Impl::NoteLost(const InFlightStep& step) {
  for (const InFlightRow& row : step.first.rows) {
    RowState& state = rows_.state(row.slot);
    if (state.generation == row.generation) state.lost_result = true;
  }
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

absl::Status DecodeEngine::Impl::Step(const StepRequest& request, StepForm form,
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

absl::StatusOr<StepTicket> DecodeEngine::Impl::SubmitProfiled(const StepRequest& request,
                                                              StepForm form) {
  const Clock::time_point entered = Clock::now();
  absl::MutexLock lock(&mutex_);
  // After a fault SubmitLocked names it.
  if (fault_.ok()) REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  REPRISE_ASSIGN_OR_RETURN(const StepTicket ticket, SubmitOne(request, form, entered));
  if (form == StepForm::kProfiled) last_profiled_ = launch_.first();
  return ticket;
}

std::vector<ProfiledGraphInfo> DecodeEngine::Impl::profiled_graphs() const {
  absl::MutexLock lock(&mutex_);
  return parts_->graphs->profiled_graphs();
}

std::vector<ProfiledGraphInfo> DecodeEngine::Impl::unpadded_graphs() const {
  absl::MutexLock lock(&mutex_);
  return parts_->graphs->unpadded_graphs();
}

absl::Status DecodeEngine::Impl::DropProfiledGraphs() {
  std::vector<std::unique_ptr<StepGraphs::Set>> replaced;  // which go without the lock
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  // As in SetBuckets.
  const bool idle = next_wait_ == next_ticket_;
  if (idle) REPRISE_RETURN_IF_ERROR(parts_->stream->Synchronize());
  parts_->graphs->DropProfiledGraphs(next_ticket_ - 1);
  if (idle) replaced = parts_->graphs->TakeAllReplaced();
  return absl::OkStatus();
}

absl::Status DecodeEngine::Impl::ReadLastStamps(StepStamps* stamps) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  if (last_profiled_.size == 0)
    return absl::FailedPreconditionError("stamps: got no profiled step; allowed: behind one");
  return parts_->graphs->ReadStamps(last_profiled_.decode,
                                    static_cast<uint32_t>(last_profiled_.size),
                                    &parts_->state->plan.counts->begin_ns, stamps);
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

absl::StatusOr<std::vector<kernels::ListedStage>> DecodeEngine::Impl::ListStages(
    std::string_view graph) {
  absl::MutexLock lock(&mutex_);
  return parts_->graphs->ListStages(graph);
}

absl::StatusOr<graphs::CapturedNodes> DecodeEngine::Impl::ListCapturedNodes(
    std::string_view graph) {
  absl::MutexLock lock(&mutex_);
  REPRISE_RETURN_IF_ERROR(RefuseFault());
  REPRISE_RETURN_IF_ERROR(RefuseInFlight());
  return parts_->graphs->ListCapturedNodes(parts_->device, graph);
}

}  // namespace reprise::engine
