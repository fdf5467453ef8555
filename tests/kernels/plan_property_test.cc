// SPDX-License-Identifier: Apache-2.0
// What must hold of attention's plan whatever the batch and the tree: random batches, random trees,
// and no oracle that could be wrong in the same way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/attention_tree.h"
#include "kernels/plan/plan.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::AttentionFeature;
using kernels::AttentionTree;
using kernels::AttentionWorkItem;
using kernels::DecodePlace;
using kernels::DecodeRow;
using kernels::DecodeShare;
using kernels::TreeBranch;

constexpr uint32_t kMaxRows = 24, kMaxContext = 6000, kMaxQueryTokens = 40, kBlockSize = 16;
constexpr uint32_t kMaxStepTokens = kMaxRows * kMaxQueryTokens;

struct Row {
  uint32_t context_before = 0, num_tokens = 1;
};

// What a plan lists.
struct Planned {
  std::vector<AttentionWorkItem> decode_items, prefill_items;  // as many as it counts
  std::vector<DecodeRow> rows;                                 // by entry, with a deal
  std::vector<DecodeShare> shares;
};

// Of rules and trees that are drawn at random.
struct Situation {
  uint32_t num_shares = 0;  // 0: items
  uint32_t num_kv_heads = 1;
  uint32_t window = 0;
  uint32_t prefill_q_tokens = 1;
  AttentionTree tree;
};

uint32_t FirstSeen(const Situation& s, uint32_t position) {
  return kernels::FirstSeen(s.window, position);
}

template <typename Choice, typename DrawChoice>
void DrawTree(Random& random, uint32_t first_feature, uint32_t num_features,
              const DrawChoice& draw_choice, kernels::ChoiceTree<Choice>& tree) {
  tree.num_nodes = random.Below(5);
  tree.num_leaves = tree.num_nodes + 1;
  // A chain: each node has a leaf on one side, and on the other the next node.
  for (uint32_t i = 0; i < tree.num_nodes; ++i) {
    const bool last = i + 1 == tree.num_nodes;
    TreeBranch next = last ? TreeBranch::ToLeaf(i + 1) : TreeBranch::ToNode(i + 1);
    TreeBranch leaf = TreeBranch::ToLeaf(i);
    if (random.Below(2) == 0) std::swap(next, leaf);
    tree.nodes[i] = {static_cast<AttentionFeature>(first_feature + random.Below(num_features)),
                     1 + random.Below(1u << (1 + random.Below(13))), leaf, next};
  }
  tree.root = tree.num_nodes == 0 ? TreeBranch::ToLeaf(0) : TreeBranch::ToNode(0);
  for (uint32_t i = 0; i < tree.num_leaves; ++i) tree.leaves[i] = draw_choice();
}

Situation DrawSituation(Random& random, bool dealt) {
  Situation s;
  s.num_shares = dealt ? 1 + random.Below(70) : 0;
  s.num_kv_heads = 1 + random.Below(8);
  s.window = random.Below(2) == 0 ? 0 : 1 + random.Below(3000);
  s.prefill_q_tokens = 1 + random.Below(16);
  const uint32_t unit = dealt ? kernels::kLeafMultiple : 1;
  DrawTree(
      random, 0, 2,
      [&] {
        return kernels::RowChoice{.split = {.min_split_tokens = unit * (1 + random.Below(16)),
                                            .max_splits = 1 + random.Below(32),
                                            .split_multiple = unit * (1 + random.Below(3))},
                                  .prompt_q_tokens = random.Below(s.prefill_q_tokens + 1)};
      },
      s.tree.rows);
  DrawTree(
      random, 2, 4,
      [&] {
        return kernels::BatchChoice{.shares = random.Below(s.num_shares + 1),
                                    .leaf_overhead = kernels::kWeightTokens * random.Below(33)};
      },
      s.tree.batch);
  s.tree.asks_for_batch = kernels::AsksForBatch(s.tree) ? 1 : 0;
  return s;
}

std::vector<Row> DrawRows(Random& random) {
  std::vector<Row> rows(1 + random.Below(kMaxRows));
  const uint32_t longest = 1 + random.Below(kMaxContext - kMaxQueryTokens);
  for (Row& row : rows) {
    row.context_before = random.Below(random.Below(3) == 0 ? 70 : longest);
    if (random.Below(4) == 0) row.num_tokens = 1 + random.Below(kMaxQueryTokens);
  }
  return rows;
}

class PlanPropertyTest : public KernelTest {
 protected:
  int num_batches() const { return is_emulated() ? 40 : 300; }

  Planned Plan(const Situation& s, const std::vector<Row>& rows) {
    GuardedMemory memory(device(), stream());
    kernels::PlanArgs args;
    kernels::PlanCounts counts{};
    counts.num_rows = static_cast<uint32_t>(rows.size());
    std::vector<kernels::RowEntry> entries;
    for (uint32_t e = 0; e < rows.size(); ++e)
      entries.push_back({.slot = kMaxRows - 1 - e,
                         .flags = kernels::kRowReset,
                         .num_tokens = rows[e].num_tokens,
                         .context_length = rows[e].context_before});
    entries.resize(kMaxRows);
    kernels::StepPlan& plan = args.plan;
    plan.counts = memory.Variable(std::vector{counts});
    plan.entries = memory.Variable(entries);
    plan.given_tokens = memory.Poisoned<uint32_t>(kMaxStepTokens + kMaxRows);
    plan.query_start = memory.Poisoned<uint32_t>(kMaxRows + 1);
    plan.context_before = memory.Poisoned<uint32_t>(kMaxRows);
    for (uint32_t** tokens :
         {&plan.token_id, &plan.token_position, &plan.token_block, &plan.token_offset})
      *tokens = memory.Poisoned<uint32_t>(kMaxStepTokens);
    plan.sampled_entry = memory.Poisoned<uint32_t>(kMaxRows);
    plan.sampled_token = memory.Poisoned<uint32_t>(kMaxRows);
    plan.attention_leaf = memory.Poisoned<uint32_t>(kMaxRows);
    const kernels::AttentionPlanRule rule{.tree = memory.Constant(std::vector{s.tree}),
                                          .num_shares = s.num_shares,
                                          .num_kv_heads = s.num_kv_heads,
                                          .prefill_q_tokens = s.prefill_q_tokens,
                                          .window = s.window};
    plan.decode_items = memory.Poisoned<AttentionWorkItem>(
        s.num_shares == 0 ? kernels::MaxDecodeItems(kMaxRows, rule.max_splits) : 0);
    plan.decode_rows = memory.Poisoned<DecodeRow>(s.num_shares == 0 ? 0 : kMaxRows);
    plan.decode_shares = memory.Poisoned<DecodeShare>(s.num_shares);
    plan.prefill_items =
        memory.Poisoned<AttentionWorkItem>(kernels::MaxPrefillItems(kMaxStepTokens));
    AddResidentRows(memory, args.rows);
    args.attention = rule;
    args.block_size = kBlockSize;
    args.max_rows = kMaxRows;
    EXPECT_OK(kernels::Plan(stream(), kernels(), args));
    memory.Check();
    return Read(memory, plan, rows.size());
  }

 private:
  static void AddResidentRows(GuardedMemory& memory, kernels::ResidentRows& resident) {
    resident.context_length = memory.Poisoned<uint32_t>(kMaxRows);
    resident.last_token = memory.Poisoned<uint32_t>(kMaxRows);
    resident.temperature = memory.Poisoned<float>(kMaxRows);
    resident.seed = memory.Poisoned<uint64_t>(kMaxRows);
    resident.life = memory.Poisoned<kernels::RowLife>(kMaxRows);
    resident.max_blocks_per_row = (kMaxContext + kBlockSize - 1) / kBlockSize;
    resident.block_table =
        memory.Poisoned<uint32_t>(size_t{kMaxRows} * resident.max_blocks_per_row);
  }

  static Planned Read(GuardedMemory& memory, const kernels::StepPlan& plan, size_t num_rows) {
    const kernels::PlanCounts counts = memory.Read(plan.counts)[0];
    Planned planned{memory.Read(plan.decode_items), memory.Read(plan.prefill_items),
                    memory.Read(plan.decode_rows), memory.Read(plan.decode_shares)};
    planned.decode_items.resize(counts.num_decode_items);
    planned.prefill_items.resize(counts.num_prefill_items);
    if (!planned.rows.empty()) planned.rows.resize(num_rows);
    return planned;
  }
};
REPRISE_FOR_EVERY_DEVICE(PlanPropertyTest);

// ---- rows of several query tokens, and of one without a deal ----

// Every query token of every such row once, in order, with the KV that it sees.
void ExpectPrefillItems(const Situation& s, const std::vector<Row>& rows,
                        const std::vector<AttentionWorkItem>& items) {
  size_t i = 0;
  for (uint32_t e = 0; e < rows.size(); ++e) {
    if (rows[e].num_tokens == 1) continue;
    for (uint32_t q = 0; q < rows[e].num_tokens; ++i) {
      ASSERT_LT(i, items.size());
      const AttentionWorkItem& item = items[i];
      ASSERT_EQ(item.entry, e);
      ASSERT_EQ(item.row, kMaxRows - 1 - e);
      ASSERT_EQ(item.q_begin, q);
      ASSERT_GE(item.q_count, 1u);
      ASSERT_LE(item.q_count, s.prefill_q_tokens);
      ASSERT_EQ(item.kv_begin, FirstSeen(s, rows[e].context_before + q));
      ASSERT_EQ(item.num_splits, 1u);
      q += item.q_count;
      ASSERT_LE(q, rows[e].num_tokens);
      ASSERT_EQ(item.kv_end, rows[e].context_before + q);
    }
  }
  EXPECT_EQ(i, items.size());
}

// Every KV position that a row sees once, in order.
void ExpectDecodeItems(const Situation& s, const std::vector<Row>& rows,
                       const std::vector<AttentionWorkItem>& items) {
  size_t i = 0;
  for (uint32_t e = 0; e < rows.size(); ++e) {
    if (rows[e].num_tokens != 1) continue;
    uint32_t position = FirstSeen(s, rows[e].context_before);
    for (uint32_t split = 0; position < rows[e].context_before + 1; ++split, ++i) {
      ASSERT_LT(i, items.size());
      const AttentionWorkItem& item = items[i];
      ASSERT_EQ(item.entry, e);
      ASSERT_EQ(item.row, kMaxRows - 1 - e);
      ASSERT_EQ(item.q_begin, 0u);
      ASSERT_EQ(item.q_count, 1u);
      ASSERT_EQ(item.split, split);
      ASSERT_LE(item.num_splits, kernels::SplitRule().max_splits);
      ASSERT_EQ(item.kv_begin, position);
      ASSERT_GT(item.kv_end, item.kv_begin);
      position = item.kv_end;
      if (position == rows[e].context_before + 1) {
        ASSERT_EQ(item.num_splits, split + 1);
      }
    }
    ASSERT_EQ(position, rows[e].context_before + 1);
  }
  EXPECT_EQ(i, items.size());
}

TEST_P(PlanPropertyTest, ItemsCoverEveryQueryTokenAndEveryKvPositionOnce) {
  Random random(1);
  for (int batch = 0; batch < num_batches() && !HasFailure(); ++batch) {
    SCOPED_TRACE("batch " + std::to_string(batch));
    const Situation s = DrawSituation(random, /*dealt=*/batch % 3 == 2);
    const std::vector<Row> rows = DrawRows(random);
    const Planned planned = Plan(s, rows);
    ExpectPrefillItems(s, rows, planned.prefill_items);
    if (s.num_shares == 0) ExpectDecodeItems(s, rows, planned.decode_items);
  }
}

// ---- the deal ----

uint64_t LeafWeight(const DecodeRow& row, uint32_t leaf, uint32_t overhead) {
  const uint32_t begin = row.origin + leaf * row.leaf_tokens;
  const uint32_t tokens = std::min(row.leaf_tokens, row.kv_end - begin);
  const uint32_t whole = (tokens + kernels::kLeafMultiple - 1) / kernels::kLeafMultiple;
  return (whole * kernels::kLeafMultiple + overhead) / kernels::kWeightTokens;
}

// Leaves of a row cover what it sees, and begin where the kernel can.
void ExpectLeaves(const Situation& s, const std::vector<Row>& rows, const Planned& planned) {
  for (uint32_t e = 0; e < rows.size(); ++e) {
    const DecodeRow& row = planned.rows[e];
    if (rows[e].num_tokens != 1) {
      ASSERT_EQ(row.num_leaves, 0u);
      continue;
    }
    ASSERT_EQ(row.row, kMaxRows - 1 - e);
    ASSERT_EQ(row.kv_begin, FirstSeen(s, rows[e].context_before));
    ASSERT_EQ(row.kv_end, rows[e].context_before + 1);
    ASSERT_EQ(row.origin % kernels::kLeafMultiple, 0u);
    ASSERT_EQ(row.leaf_tokens % kernels::kLeafMultiple, 0u);
    ASSERT_LE(row.origin, row.kv_begin);
    ASSERT_LT(row.kv_begin - row.origin, kernels::kLeafMultiple);
    ASSERT_LE(row.num_leaves, kernels::SplitRule().max_splits);
    ASSERT_LT(row.origin + (row.num_leaves - 1) * row.leaf_tokens, row.kv_end);
    ASSERT_GE(row.origin + row.num_leaves * row.leaf_tokens, row.kv_end);
  }
}

// All leaves in the order in which they are dealt.
std::vector<DecodePlace> AllLeaves(const Situation& s, const Planned& planned) {
  std::vector<DecodePlace> all;
  for (uint32_t e = 0; e < planned.rows.size(); ++e)
    for (uint32_t head = 0; head < s.num_kv_heads; ++head)
      for (uint32_t leaf = 0; leaf < planned.rows[e].num_leaves; ++leaf)
        all.push_back({e, head, leaf, 0});
  return all;
}

// Shares are runs of `all` that follow each other; their weights.
void ExpectDealt(const std::vector<DecodePlace>& all, const Planned& planned, uint32_t overhead,
                 std::vector<uint64_t>* weights) {
  size_t next = 0;
  for (const DecodeShare& share : planned.shares) {
    uint64_t weight = 0;
    const size_t first = next;
    // Where a share ends is a leaf, or the end: it is found behind where it begins.
    while (next < all.size() && !(share.end == all[next])) {
      const DecodePlace& at = all[next++];
      weight += LeafWeight(planned.rows[at.entry], at.leaf, overhead);
    }
    if (first < all.size() && next > first) {
      ASSERT_TRUE(share.begin == all[first]);
      ASSERT_EQ(share.row.kv_end, planned.rows[all[first].entry].kv_end);
      ASSERT_EQ(share.row.row, planned.rows[all[first].entry].row);
    }
    if (next == first) {
      ASSERT_TRUE(share.begin == share.end);
    }
    weights->push_back(weight);
  }
  ASSERT_EQ(next, all.size());
}

TEST_P(PlanPropertyTest, EveryLeafIsDealtOnceAndSharesWeighNearlyTheSame) {
  Random random(2);
  for (int batch = 0; batch < num_batches() && !HasFailure(); ++batch) {
    SCOPED_TRACE("batch " + std::to_string(batch));
    Situation s = DrawSituation(random, /*dealt=*/true);
    // One leaf, so that the test needs no walk of its own.
    s.tree.batch = AttentionTree().batch;
    s.tree.batch.leaves[0] = {.shares = random.Below(s.num_shares + 1),
                              .leaf_overhead = kernels::kWeightTokens * random.Below(33)};
    s.tree.asks_for_batch = 0;
    const kernels::BatchChoice choice = s.tree.batch.leaves[0];
    const uint64_t taking = choice.shares != 0 ? choice.shares : s.num_shares;
    const std::vector<Row> rows = DrawRows(random);
    const Planned planned = Plan(s, rows);
    ASSERT_NO_FATAL_FAILURE(ExpectLeaves(s, rows, planned));
    const std::vector<DecodePlace> all = AllLeaves(s, planned);
    std::vector<uint64_t> weights;
    ASSERT_NO_FATAL_FAILURE(ExpectDealt(all, planned, choice.leaf_overhead, &weights));
    uint64_t total = 0, largest = 0;
    for (const DecodePlace& at : all) {
      const uint64_t weight = LeafWeight(planned.rows[at.entry], at.leaf, choice.leaf_overhead);
      total += weight;
      largest = std::max(largest, weight);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i >= taking) {
        EXPECT_EQ(weights[i], 0u);
        continue;
      }
      // |weight - mean| below a leaf's weight, and what rounding adds; times `taking`.
      const auto off = static_cast<int64_t>(weights[i] * taking) - static_cast<int64_t>(total);
      EXPECT_LT(std::abs(off), static_cast<int64_t>((largest + 1) * taking)) << "share " << i;
    }
  }
}

// ---- a row alone, and among others ----

// Everything of an item but where it stands.
std::vector<uint32_t> CutOf(const AttentionWorkItem& item) {
  return {item.q_begin, item.q_count, item.kv_begin, item.kv_end, item.split, item.num_splits};
}
std::vector<uint32_t> CutOf(const DecodeRow& row) {
  return {row.kv_begin, row.kv_end, row.origin, row.leaf_tokens, row.num_leaves};
}

// By entry.
std::map<uint32_t, std::vector<std::vector<uint32_t>>> CutsOf(const Planned& planned) {
  std::map<uint32_t, std::vector<std::vector<uint32_t>>> cuts;
  for (const AttentionWorkItem& item : planned.decode_items)
    cuts[item.entry].push_back(CutOf(item));
  for (const AttentionWorkItem& item : planned.prefill_items)
    cuts[item.entry].push_back(CutOf(item));
  for (uint32_t e = 0; e < planned.rows.size(); ++e)
    if (planned.rows[e].num_leaves != 0) cuts[e].push_back(CutOf(planned.rows[e]));
  return cuts;
}

TEST_P(PlanPropertyTest, ARowIsCutTheSameAmongAnyNeighbours) {
  Random random(3);
  for (int batch = 0; batch < num_batches() / 3 && !HasFailure(); ++batch) {
    SCOPED_TRACE("batch " + std::to_string(batch));
    const Situation s = DrawSituation(random, /*dealt=*/batch % 2 == 0);
    ASSERT_TRUE(kernels::IsBatchInvariant(s.tree));
    const std::vector<Row> rows = DrawRows(random);
    const auto among_others = CutsOf(Plan(s, rows));
    for (uint32_t e = 0; e < rows.size(); e += 1 + random.Below(6)) {
      const auto alone = CutsOf(Plan(s, {rows[e]}));
      ASSERT_EQ(alone.at(0), among_others.at(e)) << "row " << e;
    }
  }
}

}  // namespace
}  // namespace reprise::testing
