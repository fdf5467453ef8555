// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/tune/tree_choices.h"
#include "tools/tune/tree_list.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;

// Parts of the budget, by their sum over the stages that there are.
constexpr double kSplitsWeight = 4, kPromptsWeight = 1.5, kDealWeight = 3, kHeldOutWeight = 2.5,
                 kHeldOutPromptsWeight = 1, kStandardWeight = 1.5, kStandardPromptsWeight = 0.5,
                 kInvarianceWeight = 1;

// What another choice must gain where replays differ: a part of their spread, by the root of the
// number of batches. About twice the error of a mean of differences of medians of five replays.
constexpr double kGainOfSpread = 0.5;

template <typename Choice>
uint32_t LeafFor(const kernels::ChoiceTree<Choice>& tree, const FeatureValues& features) {
  return tree.LeafOf(
      [&](AttentionFeature feature) { return features[static_cast<uint32_t>(feature)]; });
}

// The leaf of the rows' tree that most visible tokens come to, of rows that decode or do not.
uint32_t MainLeaf(const AttentionTree& tree, const BenchCell& cell, uint32_t window, bool decodes) {
  std::vector<uint64_t> tokens(tree.rows.num_leaves);
  for (size_t row = 0; row < cell.rows.size(); ++row) {
    if (cell.rows[row].decodes() != decodes) continue;
    const FeatureValues features = FeaturesOf(cell, window, row);
    tokens[LeafFor(tree.rows, features)] +=
        features[static_cast<uint32_t>(AttentionFeature::kVisibleTokens)];
  }
  return static_cast<uint32_t>(std::max_element(tokens.begin(), tokens.end()) - tokens.begin());
}

void AddRegret(double value, const std::string& batch, Regret* regret) {
  if (regret->values.empty() || value > regret->values.Max()) regret->worst = batch;
  regret->values.Add(value);
}

class Tuner {
 public:
  Tuner(const TuneBatches& batches, const kernels::AttentionTreeLimits& limits, uint32_t window,
        const TunerOptions& options, TreeTimer* timer, const TuneProgressFn& progress)
      : batches_(batches),
        limits_(limits),
        window_(window),
        options_(options),
        timer_(*timer),
        progress_(progress),
        tunes_prompts_(!batches.prompts.empty() &&
                       PromptCandidates(limits, options.cut_prompts).size() > 1),
        tunes_deal_(!batches.deal.empty() && DealCandidates(limits).size() > 1) {}

  absl::StatusOr<TunedTree> Run() {
    REPRISE_RETURN_IF_ERROR(TuneSplits());
    if (tunes_prompts_) REPRISE_RETURN_IF_ERROR(TunePrompts());
    if (tunes_deal_) REPRISE_RETURN_IF_ERROR(TuneDeal());
    NameTree();
    REPRISE_RETURN_IF_ERROR(MeasureStandardCells());
    REPRISE_RETURN_IF_ERROR(HoldOut());
    if (tunes_prompts_) REPRISE_RETURN_IF_ERROR(HoldOutPrompts());
    REPRISE_RETURN_IF_ERROR(MeasureInvariance());
    return std::move(tuned_);
  }

 private:
  // Times of one batch, by tree.
  struct Measured {
    size_t cell = 0;
    std::vector<double> ns;
  };

  // ---- measuring ----

  double Budget(double weight) const {
    const double all =
        kSplitsWeight + kHeldOutWeight + kInvarianceWeight +
        (batches_.standard.empty() ? 0.0 : kStandardWeight + kStandardPromptsWeight) +
        (tunes_prompts_ ? kPromptsWeight + kHeldOutPromptsWeight : 0.0) +
        (tunes_deal_ ? kDealWeight : 0.0);
    return options_.budget_seconds * weight / all;
  }

  void Report(const TuneStage& stage, size_t done, size_t total, size_t cell, double until) const {
    // At the pace of this stage, but no longer than it may take.
    double left = std::max(0.0, until - spent_);
    if (stage.num_batches != 0)
      left = std::min(
          left, stage.seconds / static_cast<double>(done) * static_cast<double>(total - done));
    progress_({.stage = stage.name,
               .done = done,
               .total = total,
               .batch = batches_.cells[cell].name,
               .seconds_left = left + options_.budget_seconds - until});
  }

  // Measures a list for as long as the budget of this and earlier stages lasts.
  absl::StatusOr<std::vector<Measured>> Measure(const char* name, const std::vector<size_t>& cells,
                                                const std::vector<AttentionTree>& trees,
                                                double weight) {
    std::vector<Measured> measured;
    TuneStage stage{.name = name, .num_candidates = trees.size()};
    Samples spread;
    promised_ += Budget(weight);
    for (size_t i = 0; i < cells.size(); ++i) {
      Report(stage, i, cells.size(), cells[i], promised_);
      const double most =
          measured.empty() ? std::numeric_limits<double>::infinity() : promised_ - spent_;
      REPRISE_ASSIGN_OR_RETURN(TreeTimes times, timer_.Time(cells[i], trees, most, 0));
      spent_ += times.seconds;
      stage.seconds += times.seconds;
      if (times.ns.empty()) {
        ++stage.num_left_out;
        continue;
      }
      const BenchCell& cell = batches_.cells[cells[i]];
      ++stage.num_batches;
      stage.most_rows = std::max(stage.most_rows, static_cast<uint32_t>(cell.rows.size()));
      stage.longest = std::max(stage.longest, cell.longest());
      measured.push_back({cells[i], std::move(times.ns)});
      for (const double of_tree : times.spread) spread.Add(of_tree);
    }
    stage.spread = spread.Percentile(50);
    tuned_.stages.push_back(stage);
    return measured;
  }

  // ---- fitting ----

  // decodes: of which rows the features are.
  std::vector<CostSample> SamplesOf(const std::vector<Measured>& measured, bool decodes) const {
    std::vector<CostSample> samples;
    for (const Measured& batch : measured) {
      const BenchCell& cell = batches_.cells[batch.cell];
      const size_t row = LongestRow(cell, window_, decodes);
      samples.push_back({FeaturesOf(cell, window_, row), CostsOf(batch.ns)});
    }
    return samples;
  }

  CostTree Fit(const std::vector<CostSample>& samples,
               std::vector<AttentionFeature> features) const {
    const TuneStage& stage = tuned_.stages.back();
    const double noise = samples.empty() ? 0.0
                                         : kGainOfSpread * stage.spread /
                                               std::sqrt(static_cast<double>(samples.size()));
    return FitCostTree(samples, {.features = std::move(features),
                                 .max_leaves = options_.max_leaves,
                                 .min_gain = std::max(options_.min_gain, noise)});
  }
  // Says of the last stage what a tree that was fitted to it costs; returns the tree.
  const CostTree& Fitted(const CostTree& tree, const std::vector<CostSample>& samples) {
    TuneStage& stage = tuned_.stages.back();
    stage.mean_cost = MeanCost(tree, samples);
    stage.mean_cost_first = MeanCost(CostTree(), samples);
    return tree;
  }

  // The parts of rows that the tuned tree has.
  const FittedParts& OfRows() const { return options_.batch_invariant ? invariant_ : asking_; }

  absl::Status TuneSplits() {
    if (batches_.rows.empty()) return NoBatchFits();
    REPRISE_ASSIGN_OR_RETURN(
        const std::vector<Measured> measured,
        Measure("splits", batches_.rows, SplitTrees(parts_, limits_), kSplitsWeight));
    split_samples_ = SamplesOf(measured, /*decodes=*/true);
    invariant_.splits = Fit(split_samples_, {AttentionFeature::kVisibleTokens});
    asking_.splits =
        Fit(split_samples_, {AttentionFeature::kVisibleTokens, AttentionFeature::kBatchRows,
                             AttentionFeature::kDecodeTokens, AttentionFeature::kLongestDecode});
    parts_.splits = Fitted(OfRows().splits, split_samples_);
    return absl::OkStatus();
  }

  absl::Status TunePrompts() {
    REPRISE_ASSIGN_OR_RETURN(
        const std::vector<Measured> measured,
        Measure("prompts", batches_.prompts, PromptTrees(parts_, limits_, options_.cut_prompts),
                kPromptsWeight));
    prompt_samples_ = SamplesOf(measured, /*decodes=*/false);
    invariant_.prompts =
        Fit(prompt_samples_, {AttentionFeature::kVisibleTokens, AttentionFeature::kQueryTokens});
    asking_.prompts =
        Fit(prompt_samples_, {AttentionFeature::kVisibleTokens, AttentionFeature::kQueryTokens,
                              AttentionFeature::kBatchRows, AttentionFeature::kDecodeTokens,
                              AttentionFeature::kPromptTokens});
    parts_.prompts = Fitted(OfRows().prompts, prompt_samples_);
    return absl::OkStatus();
  }

  absl::Status TuneDeal() {
    REPRISE_ASSIGN_OR_RETURN(
        const std::vector<Measured> measured,
        Measure("deal", batches_.deal, DealTrees(parts_, limits_), kDealWeight));
    deal_samples_ = SamplesOf(measured, /*decodes=*/true);
    parts_.deal =
        Fitted(Fit(deal_samples_, {AttentionFeature::kBatchRows, AttentionFeature::kDecodeTokens,
                                   AttentionFeature::kLongestDecode}),
               deal_samples_);
    invariant_.deal = asking_.deal = parts_.deal;
    return absl::OkStatus();
  }

  void NameTree() {
    const AttentionTree tree = JoinParts(parts_, limits_);
    tuned_.tree = NameLeaves(tree);
    if (limits_.num_shares == 0) tuned_.tree.batch_leaves = {"all"};
    tuned_.tree.batch_invariant = options_.batch_invariant;
    const std::vector<std::string> row_ways = WaysToRowLeaves(tree);
    const std::vector<std::string> batch_ways = WaysToBatchLeaves(tree);
    for (size_t i = 0; i < row_ways.size(); ++i)
      tuned_.leaves.push_back({"rows", tuned_.tree.row_leaves[i], row_ways[i], 0, {}});
    for (size_t i = 0; i < batch_ways.size(); ++i)
      tuned_.leaves.push_back({"batch", tuned_.tree.batch_leaves[i], batch_ways[i], 0, {}});
    for (const auto* samples : {&split_samples_, &prompt_samples_})
      for (const CostSample& sample : *samples)
        ++tuned_.leaves[LeafFor(tree.rows, sample.features)].fitted_on;
    for (const CostSample& sample : deal_samples_)
      ++BatchLeaf(LeafFor(tree.batch, sample.features)).fitted_on;
  }
  LeafReport& BatchLeaf(uint32_t leaf) {
    return tuned_.leaves[tuned_.tree.tree.rows.num_leaves + leaf];
  }

  // ---- held-out batches ----

  // What the tree takes by the lowest of `indices` and itself, less 1.
  static double RegretOf(const std::vector<double>& ns, const std::vector<size_t>& indices) {
    double best = ns[0];
    for (const size_t i : indices) best = std::min(best, ns[i]);
    return ns[0] / best - 1;
  }

  absl::Status HoldOut() {
    const AttentionTree& tree = tuned_.tree.tree;
    TreeList list;
    list.Add(tree);  // the first
    const size_t before = list.Add(AttentionTree());
    const std::vector<size_t> splits = list.AddAll(SplitTrees(parts_, limits_));
    const std::vector<size_t> deal = list.AddAll(DealTrees(parts_, limits_));
    std::vector<size_t> all = splits;
    all.insert(all.end(), deal.begin(), deal.end());
    const InvarianceRivals rivals = AddRivals(/*splits=*/true, /*prompts=*/false, &list);
    if (!options_.batch_invariant) tuned_.of_invariant.emplace();
    REPRISE_ASSIGN_OR_RETURN(const std::vector<Measured> measured,
                             Measure("held out", batches_.held_out, list.trees(), kHeldOutWeight));
    for (const Measured& batch : measured) {
      const BenchCell& cell = batches_.cells[batch.cell];
      const uint32_t row_leaf = MainLeaf(tree, cell, window_, /*decodes=*/true);
      const uint32_t batch_leaf = LeafFor(tree.batch, FeaturesOf(cell, window_, 0));
      AddRegret(RegretOf(batch.ns, splits), cell.name, &tuned_.leaves[row_leaf].regret);
      if (tunes_deal_)
        AddRegret(RegretOf(batch.ns, deal), cell.name, &BatchLeaf(batch_leaf).regret);
      AddRegret(RegretOf(batch.ns, all), cell.name, &tuned_.regret);
      tuned_.of_before.Add(std::log(batch.ns[0] / batch.ns[before]));
      if (tuned_.of_invariant)
        tuned_.of_invariant->Add(std::log(batch.ns[0] / batch.ns[rivals.invariant]));
      FindBest(batch, rivals, list, /*standard=*/false);
    }
    return absl::OkStatus();
  }

  absl::Status HoldOutPrompts() {
    const AttentionTree& tree = tuned_.tree.tree;
    TreeList list;
    list.Add(tree);
    const size_t before = list.Add(AttentionTree());
    const std::vector<size_t> prompts =
        list.AddAll(PromptTrees(parts_, limits_, options_.cut_prompts));
    const InvarianceRivals rivals = AddRivals(/*splits=*/false, /*prompts=*/true, &list);
    REPRISE_ASSIGN_OR_RETURN(const std::vector<Measured> measured,
                             Measure("held out, with prompts", batches_.held_out_prompts,
                                     list.trees(), kHeldOutPromptsWeight));
    for (const Measured& batch : measured) {
      const BenchCell& cell = batches_.cells[batch.cell];
      const uint32_t leaf = MainLeaf(tree, cell, window_, /*decodes=*/false);
      const double regret = RegretOf(batch.ns, prompts);
      AddRegret(regret, cell.name, &tuned_.leaves[leaf].regret);
      AddRegret(regret, cell.name, &tuned_.regret);
      tuned_.of_before.Add(std::log(batch.ns[0] / batch.ns[before]));
      FindBest(batch, rivals, list, /*standard=*/false);
    }
    return absl::OkStatus();
  }

  // ---- the cost of invariance ----

  InvarianceRivals AddRivals(bool splits, bool prompts, TreeList* list) const {
    InvarianceRivals rivals{.invariant = list->Add(JoinParts(invariant_, limits_)), .others = {}};
    const auto add = [&](const std::vector<AttentionTree>& trees, const auto& candidates) {
      for (size_t c = 0; c < trees.size(); ++c)
        rivals.others.emplace_back(list->Add(trees[c]), NameOf(candidates[c]));
    };
    if (splits) add(SplitTrees(parts_, limits_), SplitCandidates(limits_));
    if (prompts)
      add(PromptTrees(parts_, limits_, options_.cut_prompts),
          PromptCandidates(limits_, options_.cut_prompts));
    rivals.others.emplace_back(list->Add(JoinParts(asking_, limits_)), "by a tree of the batch");
    return rivals;
  }

  void FindBest(const Measured& batch, const InvarianceRivals& rivals, const TreeList& list,
                bool standard) {
    comparisons_.push_back(FindBestChoice(batch.cell, batch.ns, rivals, list));
    comparisons_.back().cost.batch = batches_.cells[batch.cell].name;
    comparisons_.back().cost.standard = standard;
  }

  // Those with prompts have other rivals.
  absl::Status MeasureStandardCells() {
    for (const bool prompts : {false, true}) {
      std::vector<size_t> cells;
      for (const size_t cell : batches_.standard)
        if (batches_.cells[cell].mixed() == prompts) cells.push_back(cell);
      if (cells.empty()) continue;
      TreeList list;
      const InvarianceRivals rivals = AddRivals(/*splits=*/true, prompts && tunes_prompts_, &list);
      REPRISE_ASSIGN_OR_RETURN(
          const std::vector<Measured> measured,
          Measure(prompts ? "standard cells, with prompts" : "standard cells", cells, list.trees(),
                  prompts ? kStandardPromptsWeight : kStandardWeight));
      for (const Measured& batch : measured) FindBest(batch, rivals, list, /*standard=*/true);
    }
    return absl::OkStatus();
  }

  absl::Status MeasureInvariance() {
    promised_ += Budget(kInvarianceWeight);
    TuneStage stage{.name = "invariance", .num_candidates = 2};
    for (size_t i = 0; i < comparisons_.size(); ++i) {
      Report(stage, i, comparisons_.size(), comparisons_[i].cell, promised_);
      double seconds = 0;
      REPRISE_ASSIGN_OR_RETURN(const bool compared, CompareAgain(&timer_, promised_ - spent_,
                                                                 &comparisons_[i], &seconds));
      spent_ += seconds;
      stage.seconds += seconds;
      ++(compared ? stage.num_batches : stage.num_left_out);
      if (compared) tuned_.invariance.push_back(std::move(comparisons_[i].cost));
    }
    tuned_.invariance_left_out = stage.num_left_out;
    tuned_.stages.push_back(stage);
    return absl::OkStatus();
  }

  const TuneBatches& batches_;
  const kernels::AttentionTreeLimits limits_;
  const uint32_t window_;
  const TunerOptions options_;
  TreeTimer& timer_;
  const TuneProgressFn& progress_;
  const bool tunes_prompts_, tunes_deal_;
  double spent_ = 0;                // seconds
  double promised_ = 0;             // of the budget, to the stages so far
  FittedParts parts_;               // of the tuned tree
  FittedParts invariant_, asking_;  // of that which asks rows for themselves, or for the batch too
  std::vector<InvarianceComparison> comparisons_;
  std::vector<CostSample> split_samples_, prompt_samples_, deal_samples_;
  TunedTree tuned_;
};

}  // namespace

absl::Status NoBatchFits() {
  return absl::OutOfRangeError(
      "batches: got none that fits; allowed: more --max-memory, or smaller KV blocks");
}

absl::StatusOr<TunedTree> TuneTree(const TuneBatches& batches,
                                   const kernels::AttentionTreeLimits& limits, uint32_t window,
                                   const TunerOptions& options, TreeTimer* timer,
                                   const TuneProgressFn& progress) {
  return Tuner(batches, limits, window, options, timer, progress).Run();
}

}  // namespace reprise::tools
