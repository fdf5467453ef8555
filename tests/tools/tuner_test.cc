// SPDX-License-Identifier: Apache-2.0
// Tuning with made-up times: what is measured, what is fitted, and what is said of it. And the
// timer that measures on a device.
#include "tools/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated/emulated_device.h"
#include "tests/testing/status_matchers.h"
#include "tools/text_width.h"
#include "tools/tune/tree_choices.h"
#include "tools/tune/tree_timer.h"
#include "tools/tune/tune_batches.h"
#include "tools/tune/tune_report.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::AttentionTreeLimits;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr AttentionTreeLimits kDealing = {
    .max_splits = 32, .num_shares = 200, .max_prompt_q_tokens = 16, .batch_invariant = false};
constexpr AttentionTreeLimits kNotDealing = {
    .max_splits = 32, .num_shares = 0, .max_prompt_q_tokens = 16, .batch_invariant = false};

// ---- batches ----

TEST(TuneBatches, AreFewWhereSizesAreSmallAndFitTheLimits) {
  const TuneGrid grid{.max_rows = 4, .max_context = 100, .max_blocks = 20, .chunk = 20};
  const TuneBatches batches = MakeTuneBatches(grid);
  EXPECT_FALSE(batches.rows.empty());
  EXPECT_FALSE(batches.prompts.empty());
  EXPECT_THAT(batches.deal, IsEmpty());
  EXPECT_GE(batches.held_out.size(), 10u);
  EXPECT_FALSE(batches.held_out_prompts.empty());
  for (const BenchCell& cell : batches.cells) {
    EXPECT_LE(cell.rows.size(), 4u);
    EXPECT_LE(cell.longest(), 100u) << cell.name;
    EXPECT_LE(cell.Blocks(16), 20u) << cell.name;
  }
  EXPECT_OK(CheckCells(batches.cells, 100));  // every name once
}

TEST(TuneBatches, CoverAllSizesEarly) {
  const TuneBatches batches = MakeTuneBatches({.dealt = true});
  EXPECT_EQ(batches.rows.size(), 8 * 17u);
  std::set<size_t> rows;
  std::set<uint32_t> lengths;
  for (size_t i = 0; i < 12; ++i) {
    const BenchCell& cell = batches.cells[batches.rows[i]];
    EXPECT_EQ(cell.kind, BatchKind::kUniform);
    EXPECT_FALSE(cell.mixed());
    rows.insert(cell.rows.size());
    lengths.insert(cell.longest());
  }
  EXPECT_EQ(batches.cells[batches.rows[0]].name, "b1 x 128");
  EXPECT_GE(rows.size(), 4u);
  EXPECT_GE(lengths.size(), 4u);
  std::set<BatchKind> kinds;
  for (size_t i = 0; i < 12; ++i) kinds.insert(batches.cells[batches.deal[i]].kind);
  EXPECT_EQ(kinds.size(), 4u);
}

TEST(TuneBatches, HoldOutWhatIsNotFittedOnByTheSeed) {
  const TuneBatches batches = MakeTuneBatches({.seed = 5});
  EXPECT_EQ(batches.held_out.size(), 30u);
  EXPECT_EQ(batches.held_out_prompts.size(), 8u);
  for (const size_t i : batches.held_out) {
    EXPECT_FALSE(batches.cells[i].mixed());
    for (const size_t fitted : batches.rows)
      EXPECT_NE(batches.cells[i].rows, batches.cells[fitted].rows);
  }
  for (const size_t i : batches.held_out_prompts) EXPECT_TRUE(batches.cells[i].mixed());
  const auto rows_of = [](const TuneBatches& b) { return b.cells[b.held_out[1]].rows; };
  EXPECT_EQ(rows_of(MakeTuneBatches({.seed = 5})), rows_of(batches));
  EXPECT_NE(rows_of(MakeTuneBatches({.seed = 6})), rows_of(batches));
}

TEST(TuneBatches, HaveNoChunksWhereAllRowsDecode) {
  const TuneBatches batches = MakeTuneBatches({.decode_shares = {100}});
  EXPECT_THAT(batches.prompts, IsEmpty());
  EXPECT_THAT(batches.held_out_prompts, IsEmpty());
  for (const BenchCell& cell : batches.cells) EXPECT_FALSE(cell.mixed());
}

TEST(TuneBatches, HaveRowsOfAFewQueryTokensWhereTheseMayBeCut) {
  const auto few = [](const TuneBatches& batches, const std::vector<size_t>& list) {
    return std::count_if(list.begin(), list.end(), [&](size_t i) {
      const auto& rows = batches.cells[i].rows;
      return std::any_of(rows.begin(), rows.end(), [](const BatchRow& row) {
        return row.query_tokens > 1 && row.query_tokens <= 16;
      });
    });
  };
  const TuneBatches whole = MakeTuneBatches({});
  EXPECT_EQ(few(whole, whole.prompts), 0);
  for (const std::vector<uint32_t>& shares : {std::vector<uint32_t>{50}, {100}}) {
    const TuneBatches batches = MakeTuneBatches({.decode_shares = shares, .cut_prompts = true});
    EXPECT_EQ(few(batches, batches.prompts), 32);
    EXPECT_EQ(few(batches, batches.held_out_prompts), 8);
    EXPECT_OK(CheckCells(batches.cells, 32768));
  }
  EXPECT_OK(CheckCells(MakeTuneBatches({.max_context = 10, .cut_prompts = true}).cells, 10));
}

TEST(TuneBatches, HaveTheStandardCellsInTheirOrder) {
  EXPECT_THAT(MakeTuneBatches({}).standard, IsEmpty());
  const TuneBatches batches = MakeTuneBatches({.standard = true, .seed = 3});
  const std::vector<BenchCell> cells = StandardCells(3);
  ASSERT_EQ(batches.standard.size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(batches.cells[batches.standard[i]].name, cells[i].name);
    EXPECT_EQ(batches.cells[batches.standard[i]].rows, cells[i].rows);
  }
  EXPECT_LT(MakeTuneBatches({.max_context = 4096, .standard = true}).standard.size(), cells.size());
  EXPECT_EQ(MakeTuneBatches({.max_rows = 8, .standard = true}).standard.size(), 8u);
}

TEST(Features, CountWhatThePlanCounts) {
  const BenchCell cell{.name = "x", .rows = {{99, 1}, {40, 10}, {5, 1}}};
  EXPECT_THAT(FeaturesOf(cell, 0, 0), ElementsAre(100, 1, 3, 106, 100, 10));
  EXPECT_THAT(FeaturesOf(cell, 0, 1), ElementsAre(50, 10, 3, 106, 100, 10));
  EXPECT_THAT(FeaturesOf(cell, 20, 1), ElementsAre(29, 10, 3, 26, 20, 10));
  EXPECT_EQ(LongestRow(cell, 0, true), 0u);
  EXPECT_EQ(LongestRow(cell, 0, false), 1u);
}

// ---- choices ----

TEST(Choices, BeginWithTheBuiltInOneAndKeepToTheLimits) {
  const auto splits = SplitCandidates(kDealing);
  EXPECT_EQ(splits.size(), 10u);
  EXPECT_EQ(splits[0], kernels::RowChoice());
  for (const kernels::RowChoice& choice : SplitCandidates({.max_splits = 16}))
    EXPECT_LE(choice.split.max_splits, 16u);
  EXPECT_THAT(PromptCandidates(kDealing, false),
              ElementsAre(PromptChoice{0}, PromptChoice{8}, PromptChoice{4}));
  // Behind the others, which keep their places.
  EXPECT_THAT(PromptCandidates(kDealing, true),
              ElementsAre(PromptChoice{0}, PromptChoice{8}, PromptChoice{4}, PromptChoice{0, 2},
                          PromptChoice{0, 4}, PromptChoice{0, 8}, PromptChoice{0, 16}));
  EXPECT_EQ(PromptCandidates({.max_splits = 8, .max_prompt_q_tokens = 16}, true).size(), 5u);
  EXPECT_THAT(PromptCandidates({.max_prompt_q_tokens = 1}, true), ElementsAre(PromptChoice{0}));
  const auto deal = DealCandidates(kDealing);
  EXPECT_EQ(deal.size(), 20u);
  EXPECT_EQ(deal[0], kernels::BatchChoice());
  for (const uint32_t shares : {0u, 200u, 150u, 100u, 50u})
    EXPECT_EQ(std::count_if(deal.begin(), deal.end(), [&](auto c) { return c.shares == shares; }),
              4);
  EXPECT_EQ(NameOf(deal[0]), "even, overhead 64");
  EXPECT_EQ(NameOf(kernels::BatchChoice{.shares = 200}), "200 blocks, overhead 64");
  EXPECT_EQ(DealCandidates(kNotDealing).size(), 1u);
}

CostTree TwoLeaves(AttentionFeature feature, uint32_t threshold, uint32_t below,
                   uint32_t at_least) {
  CostTree tree;
  tree.num_nodes = 1;
  tree.num_leaves = 2;
  tree.root = kernels::TreeBranch::ToNode(0);
  tree.nodes[0] = {feature, threshold, kernels::TreeBranch::ToLeaf(0),
                   kernels::TreeBranch::ToLeaf(1)};
  tree.leaves[0].index = below;
  tree.leaves[1].index = at_least;
  return tree;
}

TEST(Choices, OfPartsMakeOneTreeThatFilesCanHold) {
  FittedParts parts;
  EXPECT_EQ(JoinParts(parts, kDealing), AttentionTree());
  parts.splits = TwoLeaves(AttentionFeature::kVisibleTokens, 512, 1, 2);
  parts.prompts = TwoLeaves(AttentionFeature::kQueryTokens, 64, 1, 2);
  parts.deal = TwoLeaves(AttentionFeature::kBatchRows, 9, 3, 4);
  const AttentionTree tree = JoinParts(parts, kDealing);
  EXPECT_OK(kernels::CheckAttentionTree(tree, kDealing));
  const engine::NamedAttentionTree named = NameLeaves(tree);
  ASSERT_OK_AND_ASSIGN(const auto read, engine::ParseAttentionTree(AttentionTreeText(named)));
  EXPECT_EQ(read.tree, tree);
  EXPECT_THAT(named.row_leaves,
              ElementsAre("64 x 16", "64 x 32", "256 x 32, prompts 8", "256 x 32, prompts 4"));
  EXPECT_THAT(WaysToRowLeaves(tree), ElementsAre("visible_tokens < 512, query_tokens < 2",
                                                 "visible_tokens >= 512, query_tokens < 2",
                                                 "2 <= query_tokens < 64", "query_tokens >= 64"));
  EXPECT_THAT(WaysToBatchLeaves(tree), ElementsAre("batch_rows < 9", "batch_rows >= 9"));
}

TEST(Choices, PromptsThatAreCutKeepToTheBuiltInSplit) {
  FittedParts parts;
  parts.splits.leaves[0].index = 1;
  parts.prompts.leaves[0].index = 4;
  const AttentionTree tree = JoinParts(parts, kNotDealing);
  EXPECT_OK(kernels::CheckAttentionTree(tree, kNotDealing));
  EXPECT_THAT(NameLeaves(tree).row_leaves, ElementsAre("64 x 16", "256 x 32, prompts cut in 4"));
  EXPECT_THAT(WaysToRowLeaves(tree), ElementsAre("query_tokens < 2", "query_tokens >= 2"));
  EXPECT_EQ(NameOf(PromptChoice{8, 1}), "prompts 8");
  EXPECT_EQ(NameOf(PromptChoice{}), "prompts whole");
  EXPECT_EQ(PromptTrees(parts, kNotDealing, false).size(), 3u);
  EXPECT_EQ(PromptTrees(parts, kNotDealing, true)[4], tree);
}

TEST(Choices, PromptsOfOneLeafNeedNoNode) {
  FittedParts parts;
  parts.splits = TwoLeaves(AttentionFeature::kVisibleTokens, 512, 1, 1);
  parts.prompts.leaves[0].index = 1;
  const AttentionTree tree = JoinParts(parts, kNotDealing);
  EXPECT_EQ(tree.rows.num_nodes, 1u);
  EXPECT_EQ(tree.rows.leaves[0].prompt_q_tokens, 8u);
  EXPECT_THAT(NameLeaves(tree).row_leaves,
              ElementsAre("64 x 16, prompts 8", "64 x 16, prompts 8 (2)"));
}

// ---- tuning ----

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

// ---- on a device ----

class TimerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, runtime::Device::Create({}));
    const AttentionShape shape{
        .num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .dtype = runtime::DType::kF32};
    ASSERT_OK_AND_ASSIGN(
        bench_, AttentionBench::Create(
                    *device_, shape, MakeCells({.rows = {1, 3}, .contexts = {64, 256}}),
                    {&AttentionCandidates()[0]}, {.max_context = 256, .pool_bytes = 1 << 16}));
    trees_.resize(2);
    trees_[1].rows.leaves[0].split.min_split_tokens = 64;
    ASSERT_OK_AND_ASSIGN(journal_, Journal::Open("", {}));
  }
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<AttentionBench> bench_;
  std::unique_ptr<Journal> journal_;
  std::vector<AttentionTree> trees_;
};

absl::Status GoOn() { return absl::OkStatus(); }

TEST_F(TimerTest, MeasuresEveryTreeOnceAndKeepsItInTheJournal) {
  BenchTreeTimer timer(bench_.get(), journal_.get(), 2, GoOn);
  ASSERT_OK_AND_ASSIGN(const TreeTimes times, timer.Time(3, trees_, 60, 0));
  ASSERT_EQ(times.ns.size(), 2u);
  EXPECT_GT(times.ns[0], 0.0);
  EXPECT_GT(times.seconds, 0.0);
  EXPECT_EQ(timer.num_measured(), 2u);
  ASSERT_OK_AND_ASSIGN(const TreeTimes again, timer.Time(3, trees_, 60, 0));
  EXPECT_EQ(again.ns, times.ns);
  EXPECT_EQ(timer.num_measured(), 2u);
  ASSERT_OK_AND_ASSIGN(const TreeTimes repeated, timer.Time(3, trees_, 60, 1));
  EXPECT_NE(repeated.ns, times.ns);
  EXPECT_EQ(timer.num_measured(), 4u);
  BenchTreeTimer later(bench_.get(), journal_.get(), 2, GoOn);
  ASSERT_OK_AND_ASSIGN(const TreeTimes read, later.Time(3, trees_, 0, 0));  // costs no time
  EXPECT_EQ(read.ns, times.ns);
  EXPECT_NEAR(read.seconds, times.seconds, 1e-9);
  EXPECT_EQ(later.num_measured(), 0u);
}

TEST_F(TimerTest, CapturesNoGraphForATree) {
  ASSERT_OK_AND_ASSIGN(const PreparedCell prepared, bench_->Prepare(1));
  const size_t graphs = bench_->num_graphs();
  ASSERT_OK(
      bench_->TimeTrees(prepared, trees_, 3, [](uint32_t) { return absl::OkStatus(); }).status());
  EXPECT_EQ(bench_->num_graphs(), graphs);
}

TEST_F(TimerTest, LeavesOutWhatWouldTakeTooLong) {
  BenchTreeTimer timer(bench_.get(), journal_.get(), 1000, GoOn);
  ASSERT_OK_AND_ASSIGN(const TreeTimes times, timer.Time(0, trees_, 1e-6, 0));
  EXPECT_THAT(times.ns, IsEmpty());
  EXPECT_GT(times.seconds, 0.0);  // it took to find out
  // A larger batch is not even looked at.
  ASSERT_OK_AND_ASSIGN(const TreeTimes larger, timer.Time(3, trees_, 1e-6, 0));
  EXPECT_THAT(larger.ns, IsEmpty());
  EXPECT_EQ(larger.seconds, 0.0);
  EXPECT_EQ(journal_->num_entries(), 0u);
}

TEST_F(TimerTest, StopsWhereItIsInterrupted) {
  int replays = 0;
  BenchTreeTimer timer(bench_.get(), journal_.get(), 5, [&] {
    return ++replays == 3 ? absl::CancelledError("enough") : absl::OkStatus();
  });
  EXPECT_THAT(timer.Time(0, trees_, 60, 0), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(journal_->num_entries(), 0u);
}

// ---- on a device that deals rows ----

TEST(DealingDevice, TakesEveryCandidateAndComputesTheSame) {
  auto device = testing::CreateEmulatedDevice(runtime::MatrixUnit::kMma, {.host_threads = 4});
  if (!device.ok()) GTEST_SKIP() << "needs the emulator: " << device.status();
  const AttentionShape shape{.num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
  const AttentionBenchOptions options{.max_context = 256, .calls = 1, .pool_bytes = 1 << 12};
  const std::vector<BenchCell> cells = {{.name = "x", .rows = {{199, 1}, {20, 1}, {70, 1}}}};
  engine::NamedAttentionTree tree;
  ASSERT_OK_AND_ASSIGN(
      const auto bench,
      AttentionBench::Create(**device, shape, cells, {&AttentionCandidates()[0]}, options));
  const AttentionTreeLimits limits = bench->tree_limits();
  if (limits.num_shares == 0) GTEST_SKIP() << "needs the bulk decode kernel";
  EXPECT_EQ(DealCandidates(limits).size(), 20u);
  std::vector<AttentionTree> trees;
  for (const kernels::BatchChoice& choice : DealCandidates(limits)) {
    trees.emplace_back().batch.leaves[0] = choice;
    EXPECT_OK(kernels::CheckAttentionTree(trees.back(), limits));
  }
  ASSERT_OK_AND_ASSIGN(const PreparedCell prepared, bench->Prepare(0));
  ASSERT_OK_AND_ASSIGN(const auto samples, bench->TimeTrees(prepared, trees, 1, [](uint32_t) {
    return absl::OkStatus();
  }));
  for (const Samples& of_tree : samples) EXPECT_EQ(of_tree.count(), 1u);
  for (const AttentionTree& candidate : trees) {
    tree.tree = candidate;
    ASSERT_OK_AND_ASSIGN(
        const auto other,
        AttentionBench::Create(**device, shape, cells, {&AttentionCandidates()[0]}, options, tree));
    CellTimes times;
    ASSERT_OK(other->Check(0, &times)) << NameOf(candidate.batch.leaves[0]);
  }
}

}  // namespace
}  // namespace reprise::tools
