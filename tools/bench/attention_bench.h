// SPDX-License-Identifier: Apache-2.0
// AttentionBench: times paged attention alone, replayed from graphs that were captured for the
// longest row allowed and read the live lengths in device memory; and the page walk over the same
// pages, the floor of every cell. Knows no command line and prints nothing. docs/bench_attention.md
// has the method.
#ifndef REPRISE_TOOLS_BENCH_ATTENTION_BENCH_H_
#define REPRISE_TOOLS_BENCH_ATTENTION_BENCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention_tree_text.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"
#include "runtime/device_telemetry.h"
#include "tools/bench/attention_buffers.h"
#include "tools/bench/batches.h"
#include "tools/bench/candidates.h"
#include "tools/bench/reference_check.h"
#include "tools/bench/replays.h"
#include "tools/samples.h"

namespace reprise::tools {

// A graph has at most so many calls unless it is told.
inline constexpr uint32_t kMostCalls = 512;
// Plans of a graph that times the plan alone.
inline constexpr uint32_t kPlansOfAGraph = 32;

struct AttentionBenchOptions {
  uint32_t max_context = 32768;  // tokens: what the graphs are captured for
  uint32_t rounds = 3;           // over all cells, one cell after the other
  uint32_t replays = 20;         // of every graph, in every round
  uint32_t calls = 0;            // of attention in a graph; 0: as many as a cell needs
  uint64_t pool_bytes = 0;       // KV that calls cycle over, at least
  uint64_t seed = 1;             // of tables and slots
};

// Replays back to back for a while.
struct SustainedTimes {
  double seconds = 0;
  Samples call_ns;  // of the last replay of every batch of them
  // Read while the device was busy; empty where the platform does not report it.
  Samples sm_clock_mhz, memory_clock_mhz, power_w;
};

// What one candidate, or the floor, came to in one cell.
struct SubjectTimes {
  Samples call_ns;   // by replay: device time of its calls, by their number
  Samples round_ns;  // by round: the median of its replays
  Samples plan_ns;   // by replay: of one plan; empty for the floor
  std::optional<CheckOutcome> check;
  std::optional<SustainedTimes> sustained;

  double MedianNs() const { return call_ns.Percentile(50); }
  // (largest - smallest) / median of round_ns; unset with fewer than two rounds.
  std::optional<double> Spread() const;
};

struct CellTimes {
  uint32_t calls = 0;         // of a graph
  uint64_t kv_bytes = 0;      // K and V of the tokens that the rows see, each once
  uint64_t cycled_bytes = 0;  // of KV that are read before the same come again
  TakenLeaves leaves;         // of the bench's tree
  SubjectTimes floor;
  std::vector<SubjectTimes> candidates;  // in the order of the bench's

  // Bytes per second of the KV bytes, by the median.
  double BytesPerSecond(const SubjectTimes& subject) const;
};

// A cell that TimeTrees finds loaded.
struct PreparedCell {
  size_t cell = 0;
  uint32_t calls = 0;  // of a graph
  double call_ns = 0;  // of one call of the first candidate, by the bench's tree: one replay
};

class AttentionBench {
 public:
  // `device` must outlive the bench. Candidates without a tree of their own decide by `tree`.
  // Errors: those of CheckShape, CheckCells and CheckTreeFits, of the buffers, the device's.
  static absl::StatusOr<std::unique_ptr<AttentionBench>> Create(
      runtime::Device& device, const AttentionShape& shape, std::vector<BenchCell> cells,
      std::vector<const AttentionCandidateEntry*> candidates, const AttentionBenchOptions& options,
      const engine::NamedAttentionTree& tree = engine::NamedAttentionTree());
  AttentionBench(const AttentionBench&) = delete;
  AttentionBench& operator=(const AttentionBench&) = delete;

  const AttentionShape& shape() const { return shape_; }
  const std::vector<BenchCell>& cells() const { return cells_; }
  const std::vector<const AttentionCandidateEntry*>& candidates() const { return candidates_; }
  const AttentionBenchOptions& options() const { return options_; }
  const engine::NamedAttentionTree& tree() const { return tree_; }
  // Of a candidate; nullptr where it decides by tree().
  const engine::NamedAttentionTree* OwnTree(size_t candidate) const;
  uint64_t bytes() const { return buffers_->bytes(); }  // of device memory
  double stamp_cost_ns() const { return stamp_cost_ns_; }

  // Compares every candidate's output in a cell with the reference. Errors:
  // CheckAgainstReference's.
  absl::Status Check(size_t cell, CellTimes* times);
  // Adds a round. After an error `times` is as it was.
  absl::Status Measure(size_t cell, const MeasuredReplays& measured, CellTimes* times);
  // Floor and candidates, `seconds` each. `telemetry`: nullptr where there is none. `measured` is
  // told of 0 replays. After an error `times` is as it was.
  absl::Status Sustain(size_t cell, double seconds, runtime::DeviceTelemetry* telemetry,
                       const MeasuredReplays& measured, CellTimes* times);

  // Loads a cell, and finds out how many calls a replay of it should have.
  absl::StatusOr<PreparedCell> Prepare(size_t cell);
  // Times attention of the first candidate in the cell that was prepared last, decided by each of
  // `trees`, which must keep to TreeLimitsOf: `replays` of each, by turns, after one that does not
  // count. Samples are ns of one call, the plan not among them. Graphs are captured once, whatever
  // the tree. `measured` is told of every replay. Errors: its own, the device's.
  absl::StatusOr<std::vector<Samples>> TimeTrees(const PreparedCell& prepared,
                                                 std::span<const kernels::AttentionTree> trees,
                                                 uint32_t replays, const MeasuredReplays& measured);
  // What trees have to keep to here.
  kernels::AttentionTreeLimits tree_limits() const { return TreeLimitsOf(shape_, *kernels_); }
  size_t num_graphs() const { return graphs_.size(); }

 private:
  // What a graph holds: calls of a subject (0: the page walk, i: candidate i - 1); its plans, of
  // the page walk those by the bench's tree; or, of candidates between graphs, what stands for the
  // rest of a layer.
  enum class Part : uint8_t { kCalls, kPlans, kPiece };
  struct GraphKey {
    size_t subject = 0;
    Part part = Part::kCalls;
    bool mixed = false;
    uint32_t calls = 1;
    auto AsTuple() const { return std::tuple(subject, part, mixed, calls); }
    bool operator<(const GraphKey& other) const { return AsTuple() < other.AsTuple(); }
  };

  AttentionBench(const AttentionShape& shape, std::vector<BenchCell> cells,
                 std::vector<const AttentionCandidateEntry*> candidates,
                 const AttentionBenchOptions& options, const engine::NamedAttentionTree& tree)
      : shape_(shape),
        cells_(std::move(cells)),
        candidates_(std::move(candidates)),
        options_(options),
        tree_(tree) {}

  uint32_t MaxCalls() const { return options_.calls != 0 ? options_.calls : kMostCalls; }
  size_t num_subjects() const { return candidates_.size() + 1; }
  SubjectTimes& TimesOf(size_t subject, CellTimes* times) const {
    return subject == 0 ? times->floor : times->candidates[subject - 1];
  }
  absl::Status Load(size_t cell, CellTimes* times);
  absl::Status ChooseCalls(size_t cell, CellTimes* times);
  absl::Status FindLeaves(size_t cell, CellTimes* times);
  absl::StatusOr<runtime::CapturedGraph*> Graph(const GraphKey& key);
  absl::Status EnqueueGraph(const GraphKey& key);
  absl::Status EnqueueCall(const GraphKey& key, uint32_t call);
  absl::Status MakeOwnTrees();
  // Starts what `key` says: a replay of its graph or, between graphs, one launch after the other.
  absl::Status Start(const GraphKey& key);
  absl::Status StartBetweenGraphs(const GraphKey& key);
  // Device time of one replay, less a stamp's, by the number of what it repeats.
  absl::StatusOr<double> Replay(const GraphKey& key);
  // The same of what was replayed last; waits for it.
  absl::StatusOr<double> ReadStamps(const GraphKey& key);
  absl::Status ReplayAll(const GraphKey& key, CellTimes* round);
  absl::Status SustainOne(const GraphKey& key, double seconds, runtime::DeviceTelemetry* telemetry,
                          const MeasuredReplays& measured, SubjectTimes* times);

  const AttentionShape shape_;
  const std::vector<BenchCell> cells_;
  const std::vector<const AttentionCandidateEntry*> candidates_;
  const AttentionBenchOptions options_;
  const engine::NamedAttentionTree tree_;
  std::vector<std::optional<engine::NamedAttentionTree>> own_trees_;  // by candidate
  double stamp_cost_ns_ = 0;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::unique_ptr<AttentionBuffers> buffers_;
  std::map<GraphKey, std::unique_ptr<runtime::CapturedGraph>> graphs_;
  std::unique_ptr<runtime::Stream> stream_;  // drains before the memory goes
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_ATTENTION_BENCH_H_
