// SPDX-License-Identifier: Apache-2.0
// What it costs to ask rows for themselves alone, so that their bits do not depend on their
// neighbours: in one batch, the tree that does beside the best choice for the whole batch.
#ifndef REPRISE_TOOLS_TUNE_INVARIANCE_COST_H_
#define REPRISE_TOOLS_TUNE_INVARIANCE_COST_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/decision_tree.h"
#include "tools/tune/tree_list.h"
#include "tools/tune/tree_timer.h"

namespace reprise::tools {

struct InvarianceCost {
  std::string batch = {};
  bool standard = false;    // a standard cell, not a held-out batch
  double ns = 0;            // of one call, by the invariant tree
  double best_ns = 0;       // by the best choice
  std::string choice = {};  // which that is; "" where it is the tree's own, and ns stands twice
  double Cost() const { return ns / best_ns - 1; }
};

// Which of a list of trees is the invariant one, and which may follow the batch, with names.
struct InvarianceRivals {
  size_t invariant = 0;
  std::vector<std::pair<size_t, std::string>> others = {};
};

// Two trees to measure against each other in one cell.
struct InvarianceComparison {
  size_t cell = 0;
  kernels::AttentionTree invariant, best;
  InvarianceCost cost;
};

// The invariant tree and the best of its rivals by `ns`, a time per tree of the list.
InvarianceComparison FindBestChoice(size_t cell, std::span<const double> ns,
                                    const InvarianceRivals& rivals, const TreeList& list);

// Measures the two again, by turns, so that the best is not the one that noise was kind to: false,
// and the cost is as it was, where that would take more than `most_seconds`. Adds to *seconds what
// it took. Errors: the timer's.
absl::StatusOr<bool> CompareAgain(TreeTimer* timer, double most_seconds,
                                  InvarianceComparison* comparison, double* seconds);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_INVARIANCE_COST_H_
