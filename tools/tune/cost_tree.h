// SPDX-License-Identifier: Apache-2.0
// Fits a small decision tree to measured costs: which candidate to choose, by numbers that can be
// counted on the device. Pure; knows neither attention nor files.
#ifndef REPRISE_TOOLS_TUNE_COST_TREE_H_
#define REPRISE_TOOLS_TUNE_COST_TREE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/decision_tree.h"

namespace reprise::tools {

// By AttentionFeature.
using FeatureValues = std::array<uint32_t, kernels::kNumAttentionFeatures>;

// One batch, on which all candidates were timed.
struct CostSample {
  FeatureValues features = {};
  std::vector<double> cost;  // by candidate: CostsOf its times
};

// log(time / best time), by candidate: 0 for the best. times: at least one, all above 0.
std::vector<double> CostsOf(std::span<const double> times);

// A leaf of a fitted tree: the candidate of the lowest mean cost over the samples that come to it,
// or the first where that costs hardly more.
struct ChosenCandidate {
  uint32_t index = 0;

  constexpr bool operator==(const ChosenCandidate&) const = default;
};
using CostTree = kernels::ChoiceTree<ChosenCandidate>;

struct CostTreeOptions {
  std::vector<kernels::AttentionFeature> features;  // that nodes may ask for
  size_t max_leaves = 6;                            // 1 to kernels::kMaxTreeLeaves
  // What a split must take off the mean cost over all samples, and what another candidate than the
  // first must take off the mean cost over those of its leaf; 0.005: half a percent of time.
  double min_gain = 0.005;
  // That come to each side of a split, so that no leaf is one sample's noise.
  size_t min_samples = 2;
};

// Splits the leaf whose best split gains most until no split gains more than min_gain, or there are
// max_leaves. Of splits that gain the same: the earlier leaf, then feature, then the lower
// threshold; of candidates that cost the same: the earlier. A threshold lies at the geometric
// middle of the two values that it parts. Nodes and leaves come in the order of a walk that takes
// the lower side first. Without samples: the first candidate. REQUIRES: every sample has the cost
// of as many candidates.
CostTree FitCostTree(std::span<const CostSample> samples, const CostTreeOptions& options);

// The leaf that features come to.
uint32_t LeafOf(const CostTree& tree, const FeatureValues& features);
// The mean cost over samples of what the tree chooses for them; 0 without samples.
double MeanCost(const CostTree& tree, std::span<const CostSample> samples);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_COST_TREE_H_
