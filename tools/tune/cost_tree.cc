// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/cost_tree.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/check.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::TreeBranch;

// Differences below this are rounding.
constexpr double kSame = 1e-12;

struct Split {
  AttentionFeature feature = AttentionFeature::kVisibleTokens;
  uint32_t threshold = 0;
  double gain = 0;  // sum of costs
};

// A leaf, or once it is split, a node.
struct Grown {
  std::vector<size_t> samples;
  uint32_t candidate = 0;
  double cost = 0;  // sum of the candidate's
  std::optional<Split> best;
  std::unique_ptr<Grown> below, at_least;

  bool is_leaf() const { return below == nullptr; }
};

struct Choice {
  uint32_t candidate = 0;
  double cost = 0;
};
// Of sums of costs. The first, unless another is cheaper by more than `least_gain`.
Choice Cheapest(const std::vector<double>& sums, double least_gain) {
  Choice choice{0, sums[0] - least_gain};
  for (uint32_t c = 1; c < sums.size(); ++c)
    if (sums[c] < choice.cost - kSame) choice = {c, sums[c]};
  if (choice.candidate == 0) choice.cost = sums[0];
  return choice;
}

// Where to part a from b, a < b: in (a, b].
uint32_t Threshold(uint32_t a, uint32_t b) {
  const double middle = std::sqrt(static_cast<double>(a) * static_cast<double>(b));
  return std::clamp(static_cast<uint32_t>(std::ceil(middle)), a + 1, b);
}

class Fitter {
 public:
  Fitter(std::span<const CostSample> samples, const CostTreeOptions& options)
      : samples_(samples), options_(options), num_candidates_(samples[0].cost.size()) {
    for (const CostSample& sample : samples) REPRISE_CHECK(sample.cost.size() == num_candidates_);
    REPRISE_CHECK(options.max_leaves >= 1 && options.max_leaves <= kernels::kMaxTreeLeaves);
    std::vector<size_t> all(samples.size());
    std::iota(all.begin(), all.end(), 0u);
    root_ = Leaf(std::move(all));
  }

  CostTree Fit() {
    for (size_t leaves = 1; leaves < options_.max_leaves; ++leaves) {
      Grown* const best = BestLeaf(root_.get(), nullptr);
      const double least = options_.min_gain * static_cast<double>(samples_.size());
      if (best == nullptr || best->best->gain <= least + kSame) break;
      Grow(best);
    }
    CostTree tree;
    tree.num_leaves = 0;
    tree.root = Write(*root_, tree);
    return tree;
  }

 private:
  std::unique_ptr<Grown> Leaf(std::vector<size_t> samples) const {
    auto leaf = std::make_unique<Grown>();
    std::vector<double> sums(num_candidates_);
    for (const size_t s : samples) Add(s, 1, sums);
    const Choice choice = CheapestOf(sums, samples.size());
    leaf->candidate = choice.candidate;
    leaf->cost = choice.cost;
    leaf->samples = std::move(samples);
    for (const AttentionFeature feature : options_.features) FindSplit(feature, leaf.get());
    return leaf;
  }

  Choice CheapestOf(const std::vector<double>& sums, size_t num_samples) const {
    return Cheapest(sums, options_.min_gain * static_cast<double>(num_samples));
  }

  void Add(size_t sample, double sign, std::vector<double>& sums) const {
    for (size_t c = 0; c < num_candidates_; ++c) sums[c] += sign * samples_[sample].cost[c];
  }

  uint32_t Value(size_t sample, AttentionFeature feature) const {
    return samples_[sample].features[static_cast<uint32_t>(feature)];
  }

  // The best split of a leaf by one feature, where it gains more than what was found before.
  void FindSplit(AttentionFeature feature, Grown* leaf) const {
    std::vector<size_t> order = leaf->samples;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return Value(a, feature) < Value(b, feature); });
    std::vector<double> low(num_candidates_), high(num_candidates_);
    for (const size_t s : order) Add(s, 1, high);
    for (size_t i = 1; i < order.size(); ++i) {
      Add(order[i - 1], 1, low);
      Add(order[i - 1], -1, high);
      const uint32_t a = Value(order[i - 1], feature), b = Value(order[i], feature);
      if (a == b || i < options_.min_samples || order.size() - i < options_.min_samples) continue;
      const double gain =
          leaf->cost - CheapestOf(low, i).cost - CheapestOf(high, order.size() - i).cost;
      if (gain > (leaf->best ? leaf->best->gain : 0.0) + kSame)
        leaf->best = Split{feature, Threshold(a, b), gain};
    }
  }

  static Grown* BestLeaf(Grown* at, Grown* best) {
    if (!at->is_leaf()) return BestLeaf(at->at_least.get(), BestLeaf(at->below.get(), best));
    if (!at->best || (best != nullptr && at->best->gain <= best->best->gain + kSame)) return best;
    return at;
  }

  void Grow(Grown* leaf) const {
    std::vector<size_t> below, at_least;
    for (const size_t s : leaf->samples)
      (Value(s, leaf->best->feature) < leaf->best->threshold ? below : at_least).push_back(s);
    leaf->below = Leaf(std::move(below));
    leaf->at_least = Leaf(std::move(at_least));
  }

  static TreeBranch Write(const Grown& at, CostTree& tree) {
    if (at.is_leaf()) {
      tree.leaves[tree.num_leaves].index = at.candidate;
      return TreeBranch::ToLeaf(tree.num_leaves++);
    }
    const uint32_t index = tree.num_nodes++;
    kernels::TreeNode node{at.best->feature, at.best->threshold, {}, {}};
    node.below = Write(*at.below, tree);
    node.at_least = Write(*at.at_least, tree);
    tree.nodes[index] = node;
    return TreeBranch::ToNode(index);
  }

  const std::span<const CostSample> samples_;
  const CostTreeOptions& options_;
  const size_t num_candidates_;
  std::unique_ptr<Grown> root_;
};

}  // namespace

std::vector<double> CostsOf(std::span<const double> times) {
  const double best = *std::min_element(times.begin(), times.end());
  std::vector<double> costs;
  costs.reserve(times.size());
  for (const double time : times) costs.push_back(std::log(time / best));
  return costs;
}

CostTree FitCostTree(std::span<const CostSample> samples, const CostTreeOptions& options) {
  return samples.empty() ? CostTree() : Fitter(samples, options).Fit();
}

uint32_t LeafOf(const CostTree& tree, const FeatureValues& features) {
  return tree.LeafOf(
      [&](AttentionFeature feature) { return features[static_cast<uint32_t>(feature)]; });
}

double MeanCost(const CostTree& tree, std::span<const CostSample> samples) {
  double sum = 0;
  for (const CostSample& sample : samples)
    sum += sample.cost[tree.leaves[LeafOf(tree, sample.features)].index];
  return samples.empty() ? 0.0 : sum / static_cast<double>(samples.size());
}

}  // namespace reprise::tools
