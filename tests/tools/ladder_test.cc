// SPDX-License-Identifier: Apache-2.0
// The ladder of `reprise bench attention`: which rungs there are, what they decide by, and that all
// of them compute attention.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"
#include "tools/bench/attention_bench.h"
#include "tools/bench/candidates.h"
#include "tools/bench/ladder_trees.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::RowChoice;
using ::testing::ElementsAre;

constexpr kernels::AttentionTreeLimits kLimits = {
    .max_splits = 32, .max_prompt_q_tokens = 16, .batch_invariant = false};

const AttentionCandidateEntry* Find(std::string_view name) {
  for (const AttentionCandidateEntry* rung : LadderCandidates())
    if (rung->name == name) return rung;
  return nullptr;
}

// What a tree chooses for rows of `tokens`, in batches of `rows`.
RowChoice ChoiceOf(const AttentionTree& tree, uint32_t tokens, uint32_t query, uint32_t rows) {
  return tree.rows.leaves[tree.rows.LeafOf([&](AttentionFeature feature) {
    return feature == AttentionFeature::kVisibleTokens ? tokens
           : feature == AttentionFeature::kQueryTokens ? query
                                                       : rows;
  })];
}

TEST(Ladder, EndsWithWhatTheEngineRuns) {
  std::vector<std::string_view> names;
  for (const AttentionCandidateEntry* rung : LadderCandidates()) names.push_back(rung->name);
  EXPECT_THAT(names, ElementsAre("naive", "q-blocks", "two-kernels", "tiles", "frozen",
                                 "partial-graph", "best"));
  for (const AttentionCandidateEntry* rung : LadderCandidates())
    EXPECT_EQ(rung->between_graphs, rung->name == "partial-graph");
  for (const char* name : {"tiles", "partial-graph", "best"}) EXPECT_EQ(Find(name)->tree, nullptr);
}

TEST(LadderTrees, CutNoRowsOrThoseOfSmallBatches) {
  const AttentionTree built_in;
  const CapturedFor captured{.tree = built_in,
                             .max_rows = 64,
                             .max_visible = 4096,
                             .num_kv_heads = 8,
                             .block_size = 48,
                             .num_multiprocessors = 132};
  const engine::NamedAttentionTree whole = WholeRowsTree(captured);
  EXPECT_OK(kernels::CheckAttentionTree(whole.tree, kLimits));
  EXPECT_EQ(ChoiceOf(whole.tree, 4096, 1, 1).split.max_splits, 1u);
  const engine::NamedAttentionTree segments = SegmentsTree(captured);
  EXPECT_OK(kernels::CheckAttentionTree(segments.tree, kLimits));
  EXPECT_FALSE(segments.batch_invariant);
  const kernels::SplitRule small = ChoiceOf(segments.tree, 4096, 1, 16).split;
  EXPECT_EQ(small, (kernels::SplitRule{48, 16, 48}));
  EXPECT_EQ(ChoiceOf(segments.tree, 4096, 1, 17).split.max_splits, 1u);
  EXPECT_OK(engine::ParseAttentionTree(AttentionTreeText(segments)));
}

// Rows of 1,000 tokens or more in splits of 128, but in batches of 20 rows or more.
AttentionTree LiveTree() {
  AttentionTree tree;
  tree.rows.num_nodes = 2;
  tree.rows.num_leaves = 3;
  tree.rows.root = kernels::TreeBranch::ToNode(0);
  tree.rows.nodes[0] = {AttentionFeature::kVisibleTokens, 1000, kernels::TreeBranch::ToLeaf(0),
                        kernels::TreeBranch::ToNode(1)};
  tree.rows.nodes[1] = {AttentionFeature::kBatchRows, 20, kernels::TreeBranch::ToLeaf(1),
                        kernels::TreeBranch::ToLeaf(2)};
  tree.rows.leaves[1].split.min_split_tokens = 128;
  tree.rows.leaves[1].prompt_q_tokens = 4;
  tree.asks_for_batch = 1;
  return tree;
}

TEST(LadderTrees, FreezeWhatIsChosenForTheLongestRowAtCapture) {
  const AttentionTree tree = LiveTree();
  CapturedFor captured{.tree = tree, .max_rows = 8, .max_visible = 1500};
  const engine::NamedAttentionTree frozen = FrozenTree(captured);
  EXPECT_OK(kernels::CheckAttentionTree(frozen.tree, kLimits));
  EXPECT_TRUE(frozen.batch_invariant);
  // 1,500 tokens in splits of 128 are 12; a short row is cut into as many, as far as tiles go.
  for (const uint32_t tokens : {10u, 1500u, 9000u})
    EXPECT_EQ(ChoiceOf(frozen.tree, tokens, 1, 100).split, (kernels::SplitRule{64, 12, 64}));
  EXPECT_EQ(ChoiceOf(frozen.tree, 10, 7, 1).prompt_q_tokens, 4u);
  captured.max_rows = 20;
  EXPECT_EQ(ChoiceOf(FrozenTree(captured).tree, 10, 1, 1).split.max_splits, 6u);
  captured.max_visible = 999;
  EXPECT_EQ(ChoiceOf(FrozenTree(captured).tree, 10, 1, 1).split.max_splits, 4u);
}

const AttentionShape kShape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64};
const std::vector<BenchCell> kCells = {
    {.name = "decodes", .rows = {{199, 1}, {20, 1}}},
    {.name = "mixed", .rows = {{129, 1}, {33, 3}}},
};
constexpr AttentionBenchOptions kOptions = {
    .max_context = 256, .rounds = 1, .replays = 2, .calls = 2, .pool_bytes = 1 << 16};

TEST(Ladder, EveryRungMatchesTheReferenceOnTheHostAndOnUnits) {
  std::vector<std::unique_ptr<runtime::Device>> devices;
  ASSERT_OK_AND_ASSIGN(devices.emplace_back(), runtime::Device::Create({}));
  for (const runtime::MatrixUnit unit : {runtime::MatrixUnit::kMma, runtime::MatrixUnit::kMfma}) {
    auto emulated = testing::MakeTestDevice({.dtype = runtime::DType::kBf16, .emulated = unit});
    if (emulated.ok()) devices.push_back(*std::move(emulated));
  }
  for (const auto& device : devices) {
    SCOPED_TRACE(device->properties().name);
    ASSERT_OK_AND_ASSIGN(const auto bench, AttentionBench::Create(*device, kShape, kCells,
                                                                  LadderCandidates(), kOptions));
    for (size_t cell = 0; cell < kCells.size(); ++cell) {
      CellTimes times;
      ASSERT_OK(bench->Check(cell, &times)) << kCells[cell].name;
      for (const SubjectTimes& candidate : times.candidates)
        EXPECT_LE(candidate.check->worst, candidate.check->allowed);
    }
  }
}

// Rungs that split rows must compute by what their own tree says, not by the run's.
TEST(Ladder, OwnTreesAreThoseOfTheCandidates) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, AttentionBench::Create(*device, kShape, kCells,
                                                                LadderCandidates(), kOptions));
  for (size_t i = 0; i < bench->candidates().size(); ++i) {
    const AttentionCandidateEntry& candidate = *bench->candidates()[i];
    EXPECT_EQ(bench->OwnTree(i) != nullptr, candidate.tree != nullptr) << candidate.name;
  }
  // 256 tokens are one split of the built-in rule.
  EXPECT_EQ(bench->OwnTree(4)->tree.rows.leaves[0].split.max_splits, 1u);
  CellTimes times;
  ASSERT_OK(bench->Check(1, &times));
  EXPECT_EQ(times.leaves, (TakenLeaves{.batch = 0, .rows = {2}}));  // by the run's tree
}

TEST(Ladder, PartialGraphCapturesNoCallOfAttention) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  const auto graphs = [&](std::string_view name) -> size_t {
    auto bench = AttentionBench::Create(*device, kShape, kCells, {Find(name)}, kOptions);
    CellTimes times;
    const auto go_on = [](uint32_t) { return absl::OkStatus(); };
    EXPECT_TRUE(bench.ok() && (*bench)->Measure(0, go_on, &times).ok());
    EXPECT_GT(times.candidates[0].MedianNs(), 0.0);
    EXPECT_OK((*bench)->Sustain(0, 0.01, nullptr, go_on, &times));
    return (*bench)->num_graphs();
  };
  // The page walk, its plan for the leaves, 32 plans; then the calls, or one plan and a piece.
  EXPECT_EQ(graphs("best"), 4u);
  EXPECT_EQ(graphs("partial-graph"), 5u);
}

}  // namespace
}  // namespace reprise::tools
