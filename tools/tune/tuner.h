// SPDX-License-Identifier: Apache-2.0
// TuneTree: measures candidates over batches, fits a tree part by part, and finds out on other
// batches how far that tree is from the best choice. Knows no device: times come from a TreeTimer.
// Prints nothing. docs/tune_attention.md has the method.
#ifndef REPRISE_TOOLS_TUNE_TUNER_H_
#define REPRISE_TOOLS_TUNE_TUNER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention_tree_text.h"
#include "kernels/attention/attention_tree.h"
#include "tools/samples.h"
#include "tools/tune/cost_tree.h"
#include "tools/tune/invariance_cost.h"
#include "tools/tune/tree_timer.h"
#include "tools/tune/tune_batches.h"

namespace reprise::tools {

struct TunerOptions {
  double budget_seconds = 120;  // of measuring; a stage measures its first batch whatever it takes
  size_t max_leaves = 6;        // of each part, at most kMostPartLeaves
  double min_gain = 0.005;      // CostTreeOptions::min_gain
  bool batch_invariant = true;  // whether rows are asked for features of rows alone
  // Whether the KV of rows of a few query tokens may be cut: a row's bits then depend on how its
  // prompt came in chunks.
  bool cut_prompts = false;
};

// Rows have two parts in one tree, of kernels::kMaxTreeLeaves together.
inline constexpr size_t kMostPartLeaves = kernels::kMaxTreeLeaves / 2;

// A list of batches, measured by every candidate.
struct TuneStage {
  const char* name = "";       // "splits", "prompts", "deal", "held out", ...
  size_t num_batches = 0;      // that were measured
  size_t num_left_out = 0;     // for want of time
  size_t num_candidates = 0;   // each of them in every batch
  uint32_t most_rows = 0;      // of a batch that was measured
  uint32_t longest = 0;        // tokens, of a row in one
  double seconds = 0;          // that it took, earlier runs included
  double spread = 0;           // of replays of one candidate in one batch: the median over all
  double mean_cost = 0;        // of what was fitted, over the batches that it was fitted on: log
  double mean_cost_first = 0;  // of the built-in choice, likewise
};

// How far the tree is from the best choice in batches that it was not fitted on: time / best - 1.
// Best is the lowest of the tree's own time and those of one candidate for the whole batch.
struct Regret {
  Samples values;     // by batch
  std::string worst;  // the batch of the largest
};

struct LeafReport {
  std::string tree;  // "rows" or "batch"
  std::string leaf;  // its name
  std::string when;  // the way to it
  size_t fitted_on = 0;
  Regret regret;  // of the batches most of whose tokens came to it
};

struct TunedTree {
  engine::NamedAttentionTree tree;  // made_for is left open
  std::vector<TuneStage> stages;
  std::vector<LeafReport> leaves;
  Regret regret;      // over all held-out batches, against all candidates
  Samples of_before;  // log(time / time by the built-in tree), by held-out batch
  // Where rows may be asked for the batch: log(time / time by the tree that was fitted without
  // that), by held-out batch of decodes.
  std::optional<Samples> of_invariant;
  std::vector<InvarianceCost> invariance;
  // Batches that are not among these: a choice was faster at first sight, and there was no time to
  // measure it again.
  size_t invariance_left_out = 0;
};

// Where the tuner stands.
struct TuneProgress {
  std::string_view stage;
  size_t done = 0, total = 0;  // batches of the stage
  std::string_view batch;      // which is measured now
  double seconds_left = 0;     // of the whole run, at most
};
using TuneProgressFn = std::function<void(const TuneProgress&)>;

// Errors: OutOfRange.
absl::Status NoBatchFits();

// window: as AttentionShape's. Errors: the timer's; OutOfRange where there is no batch to fit on.
absl::StatusOr<TunedTree> TuneTree(const TuneBatches& batches,
                                   const kernels::AttentionTreeLimits& limits, uint32_t window,
                                   const TunerOptions& options, TreeTimer* timer,
                                   const TuneProgressFn& progress);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TUNER_H_
