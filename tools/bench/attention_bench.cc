// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/attention_bench.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graphs/capture_work.h"
#include "kernels/page_walk/page_walk.h"
#include "kernels/plan/plan.h"
#include "kernels/stamp/stamp.h"
#include "runtime/status_macros.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/report_parts.h"

namespace reprise::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A replay should run so long that the clock's ticks do not matter,
constexpr double kReplayNs = 1e6;
// and not longer than this, where calls are slow.
constexpr double kMostReplayNs = 2.5e8;
// Replays that are enqueued together when they run back to back.
constexpr double kSustainedBatchNs = 5e7;
constexpr double kMostSustainedBatch = 256;

}  // namespace

std::optional<double> SubjectTimes::Spread() const { return SpreadOf(round_ns); }

double CellTimes::BytesPerSecond(const SubjectTimes& subject) const {
  const double ns = subject.MedianNs();
  return ns > 0 ? static_cast<double>(kv_bytes) * 1e9 / ns : 0.0;
}

absl::StatusOr<std::unique_ptr<AttentionBench>> AttentionBench::Create(
    runtime::Device& device, const AttentionShape& shape, std::vector<BenchCell> cells,
    std::vector<const AttentionCandidateEntry*> candidates, const AttentionBenchOptions& options,
    const engine::NamedAttentionTree& tree) {
  REPRISE_RETURN_IF_ERROR(CheckShape(shape));
  REPRISE_RETURN_IF_ERROR(
      CheckCells(cells, options.max_context, static_cast<uint32_t>(shape.block_size)));
  std::unique_ptr<AttentionBench> bench(
      new AttentionBench(shape, std::move(cells), std::move(candidates), options, tree));
  REPRISE_ASSIGN_OR_RETURN(const Samples stamp_cost, MeasureStampCost(device));
  bench->stamp_cost_ns_ = stamp_cost.Percentile(50);
  REPRISE_ASSIGN_OR_RETURN(bench->stream_, device.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(bench->kernels_, kernels::KernelSet::Load(device, shape.dtype));
  REPRISE_RETURN_IF_ERROR(CheckTreeFits(tree,
                                        {.device = device.properties().name,
                                         .num_heads = shape.num_heads,
                                         .kv = shape.kv(),
                                         .windows = {shape.window}},
                                        TreeLimitsOf(shape, *bench->kernels_)));
  auto limits = BufferLimits::For(bench->cells_, shape, options.max_context, options.pool_bytes,
                                  bench->MaxCalls());
  limits.num_trees += static_cast<uint32_t>(bench->candidates_.size());
  REPRISE_ASSIGN_OR_RETURN(
      bench->buffers_,
      AttentionBuffers::Create(device, *bench->stream_, *bench->kernels_, shape, limits));
  REPRISE_RETURN_IF_ERROR(bench->buffers_->SetTree(*bench->stream_, *bench->kernels_, tree.tree));
  REPRISE_RETURN_IF_ERROR(bench->MakeOwnTrees());
  return bench;
}

absl::Status AttentionBench::MakeOwnTrees() {
  uint32_t max_rows = 1;
  for (const BenchCell& cell : cells_)
    max_rows = std::max(max_rows, static_cast<uint32_t>(cell.rows.size()));
  const uint32_t context = options_.max_context;
  kernels::AttentionTreeLimits limits = tree_limits();
  limits.num_shares = 0;  // such candidates list items
  const CapturedFor captured{
      .tree = tree_.tree,
      .max_rows = max_rows,
      .max_visible = shape_.window == 0 ? context : std::min(context, shape_.window),
      .max_splits = limits.max_splits,
      .num_kv_heads = static_cast<uint32_t>(shape_.num_kv_heads),
      .block_size = static_cast<uint32_t>(shape_.block_size),
      .num_multiprocessors = static_cast<uint32_t>(kernels_->device.num_multiprocessors)};
  own_trees_.resize(candidates_.size());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i]->tree == nullptr) continue;
    own_trees_[i] = candidates_[i]->tree(captured);
    REPRISE_RETURN_IF_ERROR(kernels::CheckAttentionTree(
        own_trees_[i]->tree, limits, {own_trees_[i]->row_leaves, own_trees_[i]->batch_leaves}));
    REPRISE_RETURN_IF_ERROR(
        buffers_->SetTree(*stream_, *kernels_, own_trees_[i]->tree, static_cast<uint32_t>(i) + 1));
  }
  return absl::OkStatus();
}

const engine::NamedAttentionTree* AttentionBench::OwnTree(size_t candidate) const {
  return own_trees_[candidate].has_value() ? &*own_trees_[candidate] : nullptr;
}

absl::Status AttentionBench::EnqueueCall(const GraphKey& key, uint32_t call) {
  if (key.part == Part::kPiece)
    return kernels::Stamp(*stream_, *kernels_, {.out = buffers_->stamps() + 2});
  if (key.subject == 0) {
    if (key.part == Part::kPlans) return kernels::Plan(*stream_, *kernels_, buffers_->plan(0));
    return kernels::PageWalk(*stream_, *kernels_, buffers_->Walk(call), buffers_->max_pages());
  }
  const size_t index = key.subject - 1;
  kernels::AttentionArgs args = buffers_->Attention(call);
  args.reads_ahead = true;  // as in a model: a stamp or another layer comes behind the plan
  const kernels::PlanArgs plan =
      buffers_->plan(OwnTree(index) != nullptr ? static_cast<uint32_t>(index) + 1 : 0);
  const AttentionCall enqueued{.stream = *stream_,
                               .kernels = *kernels_,
                               .plan = plan,
                               .attention = args,
                               .mixed = key.mixed};
  const AttentionCandidateEntry& candidate = *candidates_[index];
  return key.part == Part::kPlans ? candidate.enqueue_plan(enqueued)
                                  : candidate.enqueue_attention(enqueued);
}

absl::Status AttentionBench::EnqueueGraph(const GraphKey& key) {
  if (key.part == Part::kPiece) return EnqueueCall(key, 0);
  const bool plans = key.part == Part::kPlans;
  if (key.subject != 0 && !plans) {
    GraphKey plan = key;
    plan.part = Part::kPlans;
    REPRISE_RETURN_IF_ERROR(EnqueueCall(plan, 0));
  }
  REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream_, *kernels_, {.out = buffers_->stamps()}));
  for (uint32_t call = 0; call < key.calls; ++call)
    REPRISE_RETURN_IF_ERROR(EnqueueCall(key, plans ? 0 : call));
  return kernels::Stamp(*stream_, *kernels_, {.out = buffers_->stamps() + 1});
}

absl::StatusOr<runtime::CapturedGraph*> AttentionBench::Graph(const GraphKey& key) {
  std::unique_ptr<runtime::CapturedGraph>& graph = graphs_[key];
  if (graph != nullptr) return graph.get();
  REPRISE_ASSIGN_OR_RETURN(graph, graphs::CaptureWork(*stream_, [&] { return EnqueueGraph(key); }));
  return graph.get();
}

absl::StatusOr<double> AttentionBench::ReadStamps(const GraphKey& key) {
  REPRISE_ASSIGN_OR_RETURN(const double ns,
                           NsBetweenStamps(*stream_, buffers_->stamps(), stamp_cost_ns_));
  return ns / key.calls;
}

// The stamps are those of a graph with the same calls. What the host takes to launch a call lies
// between them where the device waits for it.
absl::Status AttentionBench::StartBetweenGraphs(const GraphKey& key) {
  REPRISE_ASSIGN_OR_RETURN(
      runtime::CapturedGraph * plan,
      Graph({.subject = key.subject, .part = Part::kPlans, .mixed = key.mixed}));
  REPRISE_ASSIGN_OR_RETURN(runtime::CapturedGraph * piece, Graph({.part = Part::kPiece}));
  REPRISE_RETURN_IF_ERROR(plan->Replay(*stream_));
  REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream_, *kernels_, {.out = buffers_->stamps()}));
  for (uint32_t call = 0; call < key.calls; ++call) {
    REPRISE_RETURN_IF_ERROR(piece->Replay(*stream_));
    REPRISE_RETURN_IF_ERROR(EnqueueCall(key, call));
  }
  return kernels::Stamp(*stream_, *kernels_, {.out = buffers_->stamps() + 1});
}

absl::Status AttentionBench::Start(const GraphKey& key) {
  if (key.subject != 0 && key.part == Part::kCalls && candidates_[key.subject - 1]->between_graphs)
    return StartBetweenGraphs(key);
  REPRISE_ASSIGN_OR_RETURN(runtime::CapturedGraph * graph, Graph(key));
  return graph->Replay(*stream_);
}

absl::StatusOr<double> AttentionBench::Replay(const GraphKey& key) {
  REPRISE_RETURN_IF_ERROR(Start(key));
  return ReadStamps(key);
}

absl::Status AttentionBench::Load(size_t cell, CellTimes* times) {
  const BenchCell& batch = cells_[cell];
  const uint32_t spacing = PageSpacing(batch, shape_, options_.pool_bytes, MaxCalls());
  REPRISE_RETURN_IF_ERROR(buffers_->Load(*stream_, batch, spacing, options_.seed));
  times->candidates.resize(candidates_.size());
  if (times->calls == 0) REPRISE_RETURN_IF_ERROR(ChooseCalls(cell, times));
  if (times->leaves.rows.empty()) REPRISE_RETURN_IF_ERROR(FindLeaves(cell, times));
  times->kv_bytes = batch.SeenTokens(shape_.window) * shape_.TokenBytes();
  times->cycled_bytes = std::min(times->calls, spacing) * times->kv_bytes;
  return absl::OkStatus();
}

// Calls enough to cycle over the pool and to fill a replay by the fastest subject, but not so many
// that a replay of the slowest takes forever; a power of two, so that cells share graphs.
absl::Status AttentionBench::ChooseCalls(size_t cell, CellTimes* times) {
  if (options_.calls != 0) {
    times->calls = options_.calls;
    return absl::OkStatus();
  }
  double fastest = std::numeric_limits<double>::infinity(), slowest = 1.0;
  for (size_t subject = 0; subject < num_subjects(); ++subject) {
    const GraphKey key{.subject = subject, .mixed = subject != 0 && cells_[cell].mixed()};
    REPRISE_RETURN_IF_ERROR(Replay(key).status());
    REPRISE_ASSIGN_OR_RETURN(const double ns, Replay(key));
    fastest = std::min(fastest, ns);
    slowest = std::max(slowest, ns);
  }
  const uint32_t spacing = PageSpacing(cells_[cell], shape_, options_.pool_bytes, kMostCalls);
  const double wanted = std::clamp<double>(kReplayNs / fastest, spacing, kMostCalls);
  const double most = std::clamp<double>(kMostReplayNs / slowest, 1, kMostCalls);
  const auto up = std::bit_ceil(static_cast<uint32_t>(std::ceil(wanted)));
  times->calls = std::min(up, std::bit_floor(static_cast<uint32_t>(most)));
  return absl::OkStatus();
}

absl::Status AttentionBench::FindLeaves(size_t cell, CellTimes* times) {
  REPRISE_RETURN_IF_ERROR(Replay({.part = Part::kPlans}).status());
  REPRISE_ASSIGN_OR_RETURN(times->leaves, buffers_->ReadLeaves(*stream_, cells_[cell].rows.size()));
  return absl::OkStatus();
}

absl::Status AttentionBench::Check(size_t cell, CellTimes* times) {
  CellTimes next = *times;
  REPRISE_RETURN_IF_ERROR(Load(cell, &next));
  for (size_t i = 0; i < candidates_.size(); ++i) {
    // Poisoned, so that what is not written shows.
    const kernels::AttentionArgs args = buffers_->Attention(0);
    const size_t out_bytes = size_t{cells_[cell].query_tokens()} *
                             static_cast<size_t>(shape_.num_heads) *
                             static_cast<size_t>(shape_.head_dim) * runtime::SizeOf(shape_.dtype);
    REPRISE_RETURN_IF_ERROR(stream_->Fill(args.out, 0xff, out_bytes));
    REPRISE_RETURN_IF_ERROR(Replay({.subject = i + 1, .mixed = cells_[cell].mixed()}).status());
    REPRISE_ASSIGN_OR_RETURN(next.candidates[i].check,
                             CheckAgainstReference(*stream_, *buffers_, shape_, cells_[cell],
                                                   candidates_[i]->name, options_.seed));
  }
  *times = std::move(next);
  return absl::OkStatus();
}

// One replay of each of a subject's graphs.
absl::Status AttentionBench::ReplayAll(const GraphKey& key, CellTimes* round) {
  SubjectTimes& times = TimesOf(key.subject, round);
  REPRISE_ASSIGN_OR_RETURN(const double call_ns, Replay(key));
  times.call_ns.Add(call_ns);
  if (key.subject == 0) return absl::OkStatus();
  GraphKey plan = key;
  plan.part = Part::kPlans;
  plan.calls = kPlansOfAGraph;
  REPRISE_ASSIGN_OR_RETURN(const double plan_ns, Replay(plan));
  times.plan_ns.Add(plan_ns);
  return absl::OkStatus();
}

absl::Status AttentionBench::Measure(size_t cell, const MeasuredReplays& measured,
                                     CellTimes* times) {
  CellTimes next = *times;
  REPRISE_RETURN_IF_ERROR(Load(cell, &next));
  CellTimes warmup, round;
  warmup.candidates.resize(candidates_.size());
  round.candidates.resize(candidates_.size());
  const Clock::time_point end = Clock::now() + num_subjects() * kRoundTime;
  for (uint32_t replay = 0; replay <= options_.replays; ++replay) {
    if (replay > kLeastReplays && Clock::now() > end) {
      REPRISE_RETURN_IF_ERROR(measured(options_.replays - replay + 1));
      break;
    }
    // By turns, so that ratios are of one clock and one temperature.
    for (size_t subject = 0; subject < num_subjects(); ++subject) {
      const GraphKey key{
          .subject = subject, .mixed = subject != 0 && cells_[cell].mixed(), .calls = next.calls};
      REPRISE_RETURN_IF_ERROR(ReplayAll(key, replay == 0 ? &warmup : &round));
    }
    REPRISE_RETURN_IF_ERROR(measured(replay == 0 ? 0 : 1));
  }
  for (size_t subject = 0; subject < num_subjects(); ++subject) {
    const SubjectTimes& of_round = TimesOf(subject, &round);
    SubjectTimes& all = TimesOf(subject, &next);
    all.call_ns.AddAll(of_round.call_ns);
    all.plan_ns.AddAll(of_round.plan_ns);
    all.round_ns.Add(of_round.MedianNs());
  }
  *times = std::move(next);
  return absl::OkStatus();
}

absl::Status AttentionBench::SustainOne(const GraphKey& key, double seconds,
                                        runtime::DeviceTelemetry* telemetry,
                                        const MeasuredReplays& measured, SubjectTimes* times) {
  REPRISE_ASSIGN_OR_RETURN(const double call_ns, Replay(key));
  const auto batch = static_cast<uint32_t>(
      std::clamp(kSustainedBatchNs / (call_ns * key.calls), 1.0, kMostSustainedBatch));
  SustainedTimes sustained;
  const Clock::time_point start = Clock::now();
  do {
    for (uint32_t i = 0; i < batch; ++i) REPRISE_RETURN_IF_ERROR(Start(key));
    if (telemetry != nullptr) {  // while the device is busy
      const runtime::TelemetrySample sample = telemetry->Read();
      if (sample.sm_clock_mhz) sustained.sm_clock_mhz.Add(*sample.sm_clock_mhz);
      if (sample.memory_clock_mhz) sustained.memory_clock_mhz.Add(*sample.memory_clock_mhz);
      if (sample.power_w) sustained.power_w.Add(*sample.power_w);
    }
    REPRISE_ASSIGN_OR_RETURN(const double ns, ReadStamps(key));
    sustained.call_ns.Add(ns);
    sustained.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    REPRISE_RETURN_IF_ERROR(measured(0));
  } while (sustained.seconds < seconds);
  times->sustained = std::move(sustained);
  return absl::OkStatus();
}

absl::Status AttentionBench::Sustain(size_t cell, double seconds,
                                     runtime::DeviceTelemetry* telemetry,
                                     const MeasuredReplays& measured, CellTimes* times) {
  CellTimes next = *times;
  REPRISE_RETURN_IF_ERROR(Load(cell, &next));
  for (size_t subject = 0; subject < num_subjects(); ++subject) {
    const GraphKey key{
        .subject = subject, .mixed = subject != 0 && cells_[cell].mixed(), .calls = next.calls};
    REPRISE_RETURN_IF_ERROR(
        SustainOne(key, seconds, telemetry, measured, &TimesOf(subject, &next)));
  }
  *times = std::move(next);
  return absl::OkStatus();
}

absl::StatusOr<PreparedCell> AttentionBench::Prepare(size_t cell) {
  REPRISE_RETURN_IF_ERROR(buffers_->SetTree(*stream_, *kernels_, tree_.tree));
  CellTimes times;
  REPRISE_RETURN_IF_ERROR(Load(cell, &times));
  const GraphKey key{.subject = 1, .mixed = cells_[cell].mixed(), .calls = times.calls};
  REPRISE_ASSIGN_OR_RETURN(const double call_ns, Replay(key));
  return PreparedCell{.cell = cell, .calls = times.calls, .call_ns = call_ns};
}

absl::StatusOr<std::vector<Samples>> AttentionBench::TimeTrees(
    const PreparedCell& prepared, std::span<const kernels::AttentionTree> trees, uint32_t replays,
    const MeasuredReplays& measured) {
  const GraphKey key{.subject = 1, .mixed = cells_[prepared.cell].mixed(), .calls = prepared.calls};
  std::vector<Samples> samples(trees.size());
  for (uint32_t round = 0; round <= replays; ++round) {
    for (size_t i = 0; i < trees.size(); ++i) {
      REPRISE_RETURN_IF_ERROR(buffers_->SetTree(*stream_, *kernels_, trees[i]));
      REPRISE_ASSIGN_OR_RETURN(const double call_ns, Replay(key));
      if (round > 0) samples[i].Add(call_ns);
      REPRISE_RETURN_IF_ERROR(measured(1));
    }
  }
  REPRISE_RETURN_IF_ERROR(buffers_->SetTree(*stream_, *kernels_, tree_.tree));
  return samples;
}

}  // namespace reprise::tools
