// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/invariance_cost.h"

#include <cstdint>

#include "runtime/status_macros.h"
#include "tools/samples.h"

namespace reprise::tools {
namespace {

constexpr uint32_t kRepeats = 3;

}  // namespace

InvarianceComparison FindBestChoice(size_t cell, std::span<const double> ns,
                                    const InvarianceRivals& rivals, const TreeList& list) {
  const kernels::AttentionTree& invariant = list.trees()[rivals.invariant];
  InvarianceComparison found{.cell = cell,
                             .invariant = invariant,
                             .best = invariant,
                             .cost = {.ns = ns[rivals.invariant], .best_ns = ns[rivals.invariant]}};
  for (const auto& [index, name] : rivals.others) {
    if (ns[index] >= found.cost.best_ns) continue;
    found.best = list.trees()[index];
    found.cost.best_ns = ns[index];
    found.cost.choice = name;
  }
  return found;
}

absl::StatusOr<bool> CompareAgain(TreeTimer* timer, double most_seconds,
                                  InvarianceComparison* comparison, double* seconds) {
  if (comparison->cost.choice.empty()) return true;
  const std::vector<kernels::AttentionTree> trees = {comparison->invariant, comparison->best};
  Samples invariant, best;
  double spent = 0;
  for (uint32_t repeat = 1; repeat <= kRepeats; ++repeat) {
    REPRISE_ASSIGN_OR_RETURN(const TreeTimes times,
                             timer->Time(comparison->cell, trees, most_seconds - spent, repeat));
    spent += times.seconds;
    *seconds += times.seconds;
    if (times.ns.empty()) return false;
    invariant.Add(times.ns[0]);
    best.Add(times.ns[1]);
  }
  comparison->cost.ns = invariant.Mean();
  comparison->cost.best_ns = best.Mean();
  return true;
}

}  // namespace reprise::tools
