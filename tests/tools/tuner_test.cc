// SPDX-License-Identifier: Apache-2.0
// Tuning with made-up times: what is measured, what is fitted, and what is said of it.
#include "tools/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/text_width.h"
#include "tools/tune/tree_timer.h"
#include "tools/tune/tune_batches.h"
#include "tools/tune/tune_report.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::AttentionTreeLimits;
using ::reprise::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr AttentionTreeLimits kDealing = {
    .max_splits = 32, .num_shares = 200, .max_prompt_q_tokens = 16, .batch_invariant = false};
constexpr AttentionTreeLimits kNotDealing = {
    .max_splits = 32, .num_shares = 0, .max_prompt_q_tokens = 16, .batch_invariant = false};

// What a device on paper is like besides.
struct OnPaper {
  double seconds = 0.1;            // that a batch takes to measure
  double spread = 0.01;            // of replays
  bool by_batch = false;           // few rows want short splits, not short rows
  double luck = 0;                 // that 512 x 16 has in held-out batches, the first time
  bool cuts_short_prompts = true;  // whether rows of a few query tokens want to be cut
};

// A device that exists on paper: short rows want short splits, long prompts small work items, few
// rows half of the blocks.
class FakeTimer : public TreeTimer {
 public:
  FakeTimer(const TuneBatches& batches, const OnPaper& device)
      : batches_(batches), device_(device) {}

  absl::StatusOr<TreeTimes> Time(size_t cell, std::span<const AttentionTree> trees,
                                 double most_seconds, uint32_t repeat) override {
    repeats_ = std::max(repeats_, repeat);
    if (device_.seconds > most_seconds) return TreeTimes();
    ++times_asked_[cell];
    TreeTimes times{{}, device_.seconds, std::vector<double>(trees.size(), device_.spread)};
    for (const AttentionTree& tree : trees) {
      const kernels::SplitRule& split = tree.rows.leaves[0].split;
      const bool lucky = repeat == 0 && split.min_split_tokens == 512 && split.max_splits == 16 &&
                         batches_.cells[cell].name.starts_with("held out");
      times.ns.push_back(Ns(batches_.cells[cell], tree) * (lucky ? 1 - device_.luck : 1));
    }
    return times;
  }
  size_t num_cells() const { return times_asked_.size(); }
  uint32_t repeats() const { return repeats_; }

 private:
  double Ns(const BenchCell& cell, const AttentionTree& tree) const {
    double ns = 1000;
    for (size_t row = 0; row < cell.rows.size(); ++row) {
      const FeatureValues features = FeaturesOf(cell, 0, row);
      const auto walk = [&](AttentionFeature f) { return features[static_cast<uint32_t>(f)]; };
      const kernels::RowChoice& choice = tree.rows.leaves[tree.rows.LeafOf(walk)];
      const double tokens = walk(AttentionFeature::kVisibleTokens);
      const bool is_short = device_.by_batch ? cell.rows.size() < 4 : tokens < 2000;
      const double wanted = is_short ? 64 : 1024;
      const double far = std::abs(std::log2(choice.split.min_split_tokens / wanted));
      if (cell.rows[row].decodes()) ns += tokens * (1 + 0.1 * far);
      const uint32_t q = walk(AttentionFeature::kQueryTokens) < 200 ? 0 : 4;
      if (!cell.rows[row].decodes()) ns += tokens * (choice.prompt_q_tokens == q ? 10 : 15);
      if (walk(AttentionFeature::kQueryTokens) <= 16 && device_.cuts_short_prompts)
        ns += tokens * std::abs(std::log2(choice.prompt_splits / 8.0));
    }
    const FeatureValues features = FeaturesOf(cell, 0, 0);
    const auto walk = [&](AttentionFeature f) { return features[static_cast<uint32_t>(f)]; };
    const kernels::BatchChoice& choice = tree.batch.leaves[tree.batch.LeafOf(walk)];
    const bool few = cell.rows.size() < 10;
    return ns * ((choice.shares == 100) == few ? 1.0 : 1.3);
  }

  const TuneBatches& batches_;
  const OnPaper device_;
  std::map<size_t, int> times_asked_;
  uint32_t repeats_ = 0;
};

absl::StatusOr<TunedTree> TuneOnPaper(const TuneGrid& grid, const AttentionTreeLimits& limits,
                                      const TunerOptions& options, const OnPaper& device = {},
                                      size_t* num_cells = nullptr) {
  const TuneBatches batches = MakeTuneBatches(grid);
  FakeTimer timer(batches, device);
  auto tuned = TuneTree(batches, limits, 0, options, &timer, [](const TuneProgress& at) {
    EXPECT_LT(at.done, at.total);
    EXPECT_GE(at.seconds_left, 0);
  });
  if (num_cells != nullptr) *num_cells = timer.num_cells();
  EXPECT_LE(timer.repeats(), 3u);
  return tuned;
}

TEST(Tuner, FindsWhatADeviceWants) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned, TuneOnPaper({.dealt = true}, kDealing, {}));
  const AttentionTree& tree = tuned.tree.tree;
  EXPECT_OK(kernels::CheckAttentionTree(tree, kDealing));
  EXPECT_TRUE(kernels::IsBatchInvariant(tree));
  const auto row = [&](uint32_t tokens, uint32_t query) {
    return tree.rows.leaves[tree.rows.LeafOf([&](AttentionFeature feature) {
      return feature == AttentionFeature::kVisibleTokens ? tokens : query;
    })];
  };
  EXPECT_EQ(row(500, 1).split.min_split_tokens, 64u);
  EXPECT_EQ(row(9000, 1).split.min_split_tokens, 1024u);
  EXPECT_EQ(row(4000, 64).prompt_q_tokens, 0u);
  EXPECT_EQ(row(4000, 512).prompt_q_tokens, 4u);
  const auto shares = [&](uint32_t rows) {
    return tree.batch.leaves[tree.batch.LeafOf([&](AttentionFeature) { return rows; })].shares;
  };
  EXPECT_EQ(tree.batch.nodes[0].feature, AttentionFeature::kBatchRows);
  EXPECT_EQ(shares(4), 100u);
  EXPECT_EQ(shares(64), 0u);
}

TEST(Tuner, SaysHowFarLeavesAreFromTheBestChoice) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned, TuneOnPaper({.dealt = true}, kDealing, {}));
  EXPECT_EQ(tuned.stages.size(), 6u);
  EXPECT_EQ(tuned.leaves.size(),
            tuned.tree.tree.rows.num_leaves + tuned.tree.tree.batch.num_leaves);
  size_t rows = 0, batch = 0;
  for (const LeafReport& leaf : tuned.leaves) {
    (leaf.tree == "rows" ? rows : batch) += leaf.regret.values.count();
    EXPECT_GT(leaf.fitted_on, 0u) << leaf.leaf;
    if (!leaf.regret.values.empty()) {
      EXPECT_GE(leaf.regret.values.Min(), 0.0);
      EXPECT_THAT(leaf.regret.worst, HasSubstr("held out"));
    }
  }
  EXPECT_EQ(rows, 38u);  // with the batches of prompts
  EXPECT_EQ(batch, 30u);
  EXPECT_EQ(tuned.regret.values.count(), 38u);
  EXPECT_LT(tuned.regret.values.Mean(), 0.1);
  EXPECT_LT(tuned.of_before.Mean(), -0.1);  // the built-in tree is slower on this device
  EXPECT_FALSE(tuned.of_invariant.has_value());
}

TEST(Tuner, KeepsTheBuiltInChoiceOfWhatIsNotTuned) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned,
                       TuneOnPaper({.decode_shares = {100}}, kNotDealing, {}));
  EXPECT_EQ(tuned.stages.size(), 3u);
  EXPECT_EQ(tuned.tree.tree.batch, AttentionTree().batch);
  for (uint32_t i = 0; i < tuned.tree.tree.rows.num_leaves; ++i)
    EXPECT_EQ(tuned.tree.tree.rows.leaves[i].prompt_q_tokens, 0u);
}

TEST(Tuner, KeepsToItsBudgetAndItsLeaves) {
  size_t few = 0, many = 0;
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned,
                       TuneOnPaper({}, kNotDealing, {.budget_seconds = 10, .max_leaves = 1},
                                   {.seconds = 0.5}, &few));
  EXPECT_LE(few, 22u);
  EXPECT_GE(few, 12u);
  EXPECT_GT(tuned.stages[0].num_left_out, 100u);
  EXPECT_EQ(tuned.tree.tree.rows.num_leaves, 1u);
  ASSERT_OK(
      TuneOnPaper({}, kNotDealing, {.budget_seconds = 1000}, {.seconds = 0.5}, &many).status());
  EXPECT_GT(many, 150u);
  // What every stage measures at least.
  ASSERT_OK_AND_ASSIGN(const TunedTree least,
                       TuneOnPaper({}, kNotDealing, {.budget_seconds = 1}, {.seconds = 100}, &few));
  EXPECT_EQ(few, least.stages.size() - 1);  // the last one has no batches of its own
}

TEST(Tuner, AsksRowsForTheBatchOnlyWhenItMay) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned,
                       TuneOnPaper({}, kNotDealing, {.batch_invariant = false}));
  EXPECT_FALSE(tuned.tree.batch_invariant);
  ASSERT_TRUE(tuned.of_invariant.has_value());
  EXPECT_EQ(tuned.of_invariant->count(), 30u);
  const nlohmann::json notes = TuneNotes(tuned, {{"command", "x"}}, {{"seed", 1}});
  EXPECT_EQ(notes["of_batch_invariant"]["batches"], 30);
  EXPECT_THAT(TuneText(tuned, kNoWidth), HasSubstr("asking rows for the batch: "));
}

TEST(Tuner, SaysWhatInvarianceCostsInEveryBatch) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned,
                       TuneOnPaper({.standard = true}, kNotDealing, {}, {.by_batch = true}));
  EXPECT_TRUE(kernels::IsBatchInvariant(tuned.tree.tree));
  size_t standard = 0, costly = 0;
  for (const InvarianceCost& cost : tuned.invariance) {
    standard += cost.standard ? 1 : 0;
    EXPECT_GE(cost.Cost(), 0.0) << cost.batch;
    EXPECT_EQ(cost.choice.empty(), cost.Cost() == 0.0) << cost.batch;
    costly += cost.standard && cost.Cost() > 0.09 && cost.choice == "64 x 16" ? 1 : 0;
  }
  EXPECT_EQ(standard, 21u);
  EXPECT_EQ(tuned.invariance.size(), 21u + 38u);
  EXPECT_GE(costly, 3u);
  EXPECT_STREQ(tuned.stages.back().name, "invariance");
  EXPECT_EQ(tuned.stages.back().num_batches, tuned.invariance.size());
  const std::string text = TuneText(tuned, kNoWidth);
  for (const char* part : {"invariant us", "b128 ShareGPT-like", "31 x 1k + 2k on 8k",
                           "cost of invariance: held-out batches, 38: ", "standard cells, 21: "})
    EXPECT_THAT(text, HasSubstr(part));
  const nlohmann::json notes = TuneNotes(tuned, {{"command", "x"}}, {{"seed", 1}});
  EXPECT_EQ(notes["invariance"].size(), 59u);
  EXPECT_GE(notes["invariance"][0]["us"], notes["invariance"][0]["best_us"]);
  EXPECT_LT(AttentionTreeText(tuned.tree, notes.dump()).size(), engine::kMaxAttentionTreeBytes / 2);
}

// Where rows alone decide, following the batch gains nothing; and a choice that was lucky once does
// not count as better.
TEST(Tuner, TakesNoLuckForTheCostOfInvariance) {
  for (const double luck : {0.0, 0.3}) {
    ASSERT_OK_AND_ASSIGN(const TunedTree tuned,
                         TuneOnPaper({.standard = true}, kNotDealing, {}, {.luck = luck}));
    size_t followed = 0;
    for (const InvarianceCost& cost : tuned.invariance) {
      EXPECT_LT(cost.Cost(), 0.03) << cost.batch << ", " << cost.choice;
      followed += cost.choice == "512 x 16" ? 1 : 0;
    }
    EXPECT_EQ(followed != 0, luck != 0);
  }
}

// Batches that have no faster choice take no time, so a short budget leaves out the others alone.
TEST(Tuner, SaysHowManyFasterChoicesItHadNoTimeFor) {
  constexpr char kLeftOut[] = " with a faster choice left out for want of time";
  ASSERT_OK_AND_ASSIGN(const TunedTree hurried,
                       TuneOnPaper({}, kNotDealing, {.budget_seconds = 10}, {.luck = 0.3}));
  EXPECT_GT(hurried.invariance_left_out, 10u);
  EXPECT_EQ(hurried.stages.back().num_left_out, hurried.invariance_left_out);
  size_t held_out = 0;
  for (const TuneStage& stage : hurried.stages)
    if (std::string_view(stage.name).starts_with("held out")) held_out += stage.num_batches;
  EXPECT_EQ(hurried.invariance.size() + hurried.invariance_left_out, held_out);
  EXPECT_THAT(TuneText(hurried, kNoWidth),
              HasSubstr("; " + std::to_string(hurried.invariance_left_out) + kLeftOut));
  EXPECT_EQ(TuneNotes(hurried, {}, {})["invariance_left_out"], hurried.invariance_left_out);
  ASSERT_OK_AND_ASSIGN(const TunedTree unhurried, TuneOnPaper({}, kNotDealing, {}, {.luck = 0.3}));
  EXPECT_EQ(unhurried.invariance_left_out, 0u);
  EXPECT_THAT(TuneText(unhurried, kNoWidth), Not(HasSubstr(kLeftOut)));
}

TEST(Tuner, LeavesTheStandardCellsOutWhereItIsNotAsked) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned, TuneOnPaper({}, kNotDealing, {}));
  EXPECT_EQ(tuned.invariance.size(), 38u);
  EXPECT_THAT(TuneText(tuned, kNoWidth), Not(HasSubstr("invariant us")));
}

// What a row of so many query tokens is cut into.
uint32_t PromptSplits(const AttentionTree& tree, uint32_t query) {
  return tree.rows
      .leaves[tree.rows.LeafOf([&](AttentionFeature feature) {
        return feature == AttentionFeature::kVisibleTokens ? 4000u : query;
      })]
      .prompt_splits;
}

TEST(Tuner, CutsPromptsOnlyWhenItMay) {
  ASSERT_OK_AND_ASSIGN(const TunedTree whole, TuneOnPaper({}, kNotDealing, {}));
  for (const uint32_t query : {2u, 4u, 16u, 300u})
    EXPECT_EQ(PromptSplits(whole.tree.tree, query), 1u);
  ASSERT_OK_AND_ASSIGN(const TunedTree cut,
                       TuneOnPaper({.cut_prompts = true}, kNotDealing, {.cut_prompts = true}));
  EXPECT_OK(kernels::CheckAttentionTree(cut.tree.tree, kNotDealing));
  for (const uint32_t query : {2u, 4u, 16u}) EXPECT_EQ(PromptSplits(cut.tree.tree, query), 8u);
  EXPECT_EQ(PromptSplits(cut.tree.tree, 300), 1u);
  EXPECT_EQ(PromptSplits(cut.tree.tree, 1), 1u);
  EXPECT_EQ(cut.tree.tree.rows.leaves[0].prompt_splits, 1u);
}

// On a device that is busy with something else, the gain of a choice has to stand out.
TEST(Tuner, TrustsNoGainThatReplaysDifferBy) {
  ASSERT_OK_AND_ASSIGN(const TunedTree calm, TuneOnPaper({}, kNotDealing, {}));
  EXPECT_GT(calm.tree.tree.rows.num_leaves, 1u);
  EXPECT_EQ(TuneWarning(calm), "");
  ASSERT_OK_AND_ASSIGN(const TunedTree busy, TuneOnPaper({}, kNotDealing, {}, {.spread = 20}));
  EXPECT_EQ(busy.tree.tree, AttentionTree());
  EXPECT_THAT(TuneWarning(busy), HasSubstr("replays of one candidate differ by 2000"));
}

TEST(Tuner, RefusesToFitOnNothing) {
  EXPECT_THAT(TuneOnPaper({.max_blocks = 0}, kNotDealing, {}),
              StatusIs(absl::StatusCode::kOutOfRange, "batches: got none that fits"));
}

TEST(Tuner, SaysWhatItFound) {
  ASSERT_OK_AND_ASSIGN(const TunedTree tuned, TuneOnPaper({.dealt = true}, kDealing, {}));
  const std::string text = TuneText(tuned, kNoWidth);
  for (const char* part :
       {"visible_tokens < ", "batch_rows >= ", "100 blocks, overhead 64", "splits 136 batches x 10",
        "held out: 38 batches, ", "less time than by the built-in tree"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  const nlohmann::json notes = TuneNotes(tuned, {{"command", "x"}}, {{"seed", 1}});
  EXPECT_EQ(notes["made_by"]["command"], "x");
  EXPECT_EQ(notes["leaves"].size(), tuned.leaves.size());
  EXPECT_EQ(notes["regret"]["batches"], 38);
  EXPECT_LT(notes["of_built_in"]["mean_change"].get<double>(), 0);
  EXPECT_LT(AttentionTreeText(tuned.tree, notes.dump()).size(), engine::kMaxAttentionTreeBytes / 2);
}

}  // namespace
}  // namespace reprise::tools
