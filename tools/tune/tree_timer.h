// SPDX-License-Identifier: Apache-2.0
// TreeTimer: how long attention takes in a batch, by each of several trees. What a journal has of
// an earlier run is not measured again.
#ifndef REPRISE_TOOLS_TUNE_TREE_TIMER_H_
#define REPRISE_TOOLS_TUNE_TREE_TIMER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/decision_tree.h"
#include "nlohmann/json.hpp"
#include "tools/bench/attention_bench.h"
#include "tools/bench/batches.h"
#include "tools/tune/journal.h"

namespace reprise::tools {

struct TreeTimes {
  std::vector<double> ns;      // of one call, by tree; empty where it would have taken too long
  double seconds = 0;          // that it took, or had taken in an earlier run
  std::vector<double> spread;  // of replays, by tree: (p90 - p10) / median
};

class TreeTimer {
 public:
  virtual ~TreeTimer() = default;
  // Times the trees in a cell in turns, unless that would take more than `most_seconds`. What was
  // measured is not measured again, but for another `repeat`. Errors: the device's, the journal's;
  // what `interrupted` says.
  virtual absl::StatusOr<TreeTimes> Time(size_t cell, std::span<const kernels::AttentionTree> trees,
                                         double most_seconds, uint32_t repeat) = 0;
};

// What a journal calls a cell: {"name", "rows", "decode_rows", "query_tokens", "longest",
// "seen_tokens"}.
nlohmann::json CellToJournal(const BenchCell& cell, uint32_t window);
// And a tree: {"rows", "batch"} as an attention tree's file has them, leaves named by index; with
// "repeat" where that is not 0.
nlohmann::json TreeToJournal(const kernels::AttentionTree& tree, uint32_t repeat);

// Asked after every replay; an error ends the measurement.
using InterruptedFn = std::function<absl::Status()>;

// On a device: the first candidate of `bench`, whose cells these are.
class BenchTreeTimer : public TreeTimer {
 public:
  // replays: of every tree in a cell, after one that does not count. All must outlive the timer.
  BenchTreeTimer(AttentionBench* bench, Journal* journal, uint32_t replays,
                 InterruptedFn interrupted)
      : bench_(*bench),
        journal_(*journal),
        replays_(replays),
        interrupted_(std::move(interrupted)) {}

  absl::StatusOr<TreeTimes> Time(size_t cell, std::span<const kernels::AttentionTree> trees,
                                 double most_seconds, uint32_t repeat) override;
  // Trees in cells, of which measured here and not read from the journal.
  size_t num_measured() const { return num_measured_; }

 private:
  // What one replay of a cell took, or would have.
  struct ReplayCost {
    uint64_t kv_bytes, pairs;  // pairs of a query token and a KV token
    double seconds;
  };
  static ReplayCost WorkOf(const BenchCell& cell, const AttentionShape& shape);
  std::optional<TreeTimes> FromJournal(size_t cell, const std::vector<nlohmann::json>& choices);
  // At least, of one replay: that of a cell with no more work.
  double LeastSeconds(const ReplayCost& work) const;

  AttentionBench& bench_;
  Journal& journal_;
  const uint32_t replays_;
  const InterruptedFn interrupted_;
  std::vector<ReplayCost> known_;
  size_t num_measured_ = 0;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TREE_TIMER_H_
