// SPDX-License-Identifier: Apache-2.0
// What holds for attention's plan whatever the batch: everything is done exactly once, loads are
// level, and a row is cut the same among any neighbours. step_test.cc compares every word of the
// plan with an oracle; here are the properties that the oracle has to have, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/plan/plan.h"
#include "runtime/device.h"
#include "tests/testing/cases/step_cases.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::DecodePlace;

constexpr uint32_t kMaxRows = 40;
constexpr uint32_t kMaxChunk = 90;
constexpr uint32_t kMaxContext = 20000;
constexpr uint32_t kBlockSize = 16;

constexpr uint32_t kTileMembers = 4;
constexpr uint32_t kGroups = 3;

struct BatchRow {
  uint32_t context_before = 0, num_tokens = 1;
  uint32_t group = 0, prefix_tokens = 0;  // shared with the others of the group; group 0: none
};
using PlannedBatch = std::vector<BatchRow>;

// The plan on the host device, whose memory is ours: all its lists, as vectors.
class HostPlan {
 public:
  explicit HostPlan(const kernels::AttentionPlanRule& rule, const kernels::AttentionTree& tree)
      : tree_(tree) {
    device_ = *runtime::Device::Create({.kind = runtime::DeviceKind::kHost, .host_threads = 1});
    stream_ = *device_->CreateStream();
    kernels_ = *kernels::KernelSet::Load(*device_, runtime::DType::kF32);
    args_.attention = rule;
    args_.attention.tree = &tree_;
    args_.block_size = kBlockSize;
    args_.max_rows = kMaxRows;
    constexpr size_t kTokens = size_t{kMaxRows} * kMaxChunk;
    kernels::StepPlan& plan = args_.plan;
    plan.counts = &counts_;
    plan.given_rows = Room(given_rows_, kMaxRows);
    plan.entries = Room(entries_, kMaxRows);
    plan.given_tokens = Room(words_[0], kTokens + kMaxRows);
    plan.query_start = Room(words_[1], kMaxRows + 1);
    plan.context_before = Room(words_[2], kMaxRows);
    plan.token_id = Room(words_[3], kTokens);
    plan.token_position = Room(words_[4], kTokens);
    plan.token_block = Room(words_[5], kTokens);
    plan.token_offset = Room(words_[6], kTokens);
    plan.sampled_entry = Room(words_[7], kMaxRows);
    plan.sampled_token = Room(words_[8], kMaxRows);
    plan.attention_leaf = Room(words_[9], kMaxRows);
    kernels::AttentionLists& lists = plan.attention[0];
    lists.decode_items = Room(decode_items, kernels::MaxDecodeItems(kMaxRows, rule.max_splits));
    plan.prefix = Room(members, kMaxRows);
    lists.prefix_members = Room(tile_members, kMaxRows);
    lists.decode_rows = Room(decode_rows, 2 * kMaxRows);
    lists.decode_shares = Room(decode_shares, rule.num_shares);
    lists.prefill_items =
        Room(prefill_items, kernels::MaxPrefillItems(kMaxRows, kTokens, rule.max_splits));
    kernels::ResidentRows& rows = args_.rows;
    rows.context_length = Room(words_[10], kMaxRows);
    rows.last_token = Room(words_[11], kMaxRows);
    rows.life = Room(life_, kMaxRows);
    rows.max_blocks_per_row = (kMaxContext + kMaxChunk) / kBlockSize + 1;
    rows.block_table = Room(words_[12], size_t{kMaxRows} * rows.max_blocks_per_row);
  }

  void Run(const PlannedBatch& batch) {
    counts_ = {};
    counts_.sequence = 1;
    counts_.num_rows = static_cast<uint32_t>(batch.size());
    for (uint32_t e = 0; e < batch.size(); ++e) {
      const bool given = batch[e].num_tokens != 1;
      args_.rows.context_length[e] = batch[e].context_before;
      given_rows_[e] = {.slot = e,
                        .flags = kernels::kRowSample | (given ? kernels::kRowTokensGiven : 0u),
                        .num_tokens = batch[e].num_tokens,
                        .given_offset = 0};
    }
    for (uint32_t group = 1; group <= kGroups; ++group) ListMembers(batch, group);
    ASSERT_OK(Plan(*stream_, *kernels_, args_));
    ASSERT_OK(stream_->Synchronize());
  }

  const kernels::PlanCounts& counts() const { return counts_; }
  const kernels::AttentionTree& tree() const { return tree_; }

  std::vector<kernels::AttentionWorkItem> decode_items, prefill_items;
  std::vector<kernels::DecodeRow> decode_rows;
  std::vector<kernels::DecodeShare> decode_shares;
  std::vector<kernels::PrefixMember> members;
  std::vector<uint32_t> tile_members;

 private:
  void ListMembers(const PlannedBatch& batch, uint32_t group) {
    const auto count = static_cast<uint32_t>(std::count_if(
        batch.begin(), batch.end(), [&](const BatchRow& row) { return row.group == group; }));
    uint32_t index = 0;
    for (uint32_t e = 0; e < batch.size(); ++e) {
      if (batch[e].group != group) continue;
      members[counts_.num_prefix_members++] = {
          .entry = e, .tokens = batch[e].prefix_tokens, .index = index++, .count = count};
    }
  }
  template <typename T>
  static T* Room(std::vector<T>& values, size_t n) {
    values.resize(n);
    return values.data();
  }

  const kernels::AttentionTree tree_;
  kernels::PlanCounts counts_ = {};
  kernels::PlanArgs args_;
  std::vector<kernels::RowEntry> given_rows_, entries_;
  std::vector<kernels::RowLife> life_;
  std::vector<uint32_t> words_[13];
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::unique_ptr<runtime::Stream> stream_;
};

// Lengths as serving has them: short ones, long ones, borders of blocks and leaves; some chunks.
PlannedBatch RandomBatch(Random& random) {
  PlannedBatch batch(1 + random.Below(kMaxRows));
  for (BatchRow& row : batch) {
    const uint32_t border = 64u * (1 + random.Below(40));
    const uint32_t contexts[] = {random.Below(200), random.Below(3000), random.Below(kMaxContext),
                                 border - 1, border};
    row.context_before = contexts[random.Below(5)];
    if (random.Below(4) == 0) row.num_tokens = 2 + random.Below(kMaxChunk - 1);
    if (random.Below(6) == 0) row.num_tokens = 2 + random.Below(8);  // to verify
  }
  // Few prefixes, so that rows of equal lengths come with and without.
  const bool shares = random.Below(2) == 0;
  for (BatchRow& row : batch) {
    row.group = shares ? random.Below(kGroups + 1) : 0;
    row.prefix_tokens = row.group == 0 ? 0 : 16 * (3u << row.group);
  }
  return batch;
}

uint32_t FirstSeen(uint32_t window, uint32_t position) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

// What a row is cut into, to be the same in every batch.
using Cuts = std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<uint32_t>>;
void ExpectSameCuts(const BatchRow& row, const std::vector<uint32_t>& cuts, Cuts& all) {
  const auto [found, is_new] =
      all.emplace(std::tuple(row.context_before, row.num_tokens, row.prefix_tokens), cuts);
  if (!is_new) {
    EXPECT_EQ(found->second, cuts);
  }
}

// ---- items ----

void ExpectDecodeItemsCover(const HostPlan& plan, const PlannedBatch& batch, uint32_t window,
                            Cuts& cuts) {
  std::vector<std::vector<kernels::AttentionWorkItem>> of_row(batch.size());
  for (uint32_t i = 0; i < plan.counts().num_decode_items[0]; ++i)
    of_row.at(plan.decode_items[i].entry).push_back(plan.decode_items[i]);
  for (size_t e = 0; e < batch.size(); ++e) {
    ASSERT_EQ(of_row[e].empty(), batch[e].num_tokens != 1);
    uint32_t at = FirstSeen(window, batch[e].context_before), split = 0;
    std::vector<uint32_t> ends;
    for (const kernels::AttentionWorkItem& item : of_row[e]) {
      EXPECT_EQ(item.kv_begin, at);
      EXPECT_LT(item.kv_begin, item.kv_end);
      EXPECT_EQ(item.split, split++);
      EXPECT_EQ(item.num_splits, of_row[e].size());
      at = item.kv_end;
      ends.push_back(at);
    }
    if (batch[e].num_tokens == 1) {
      EXPECT_EQ(at, batch[e].context_before + 1);
    }
    ExpectSameCuts(batch[e], ends, cuts);
  }
}

// Item i is a split of a row of several query tokens: it begins where the one before it ends.
void ExpectSplitFollows(const HostPlan& plan, uint32_t i, const BatchRow& row, uint32_t window) {
  const kernels::AttentionWorkItem& item = plan.prefill_items[i];
  EXPECT_EQ(item.q_begin, 0u);
  EXPECT_EQ(item.q_count, row.num_tokens);
  EXPECT_LE(item.num_splits * row.num_tokens, kernels::AttentionPlanRule{}.max_splits);
  EXPECT_LT(item.kv_begin, item.kv_end);
  if (item.split == 0) {
    EXPECT_EQ(item.kv_begin, FirstSeen(window, row.context_before));
  } else {
    const kernels::AttentionWorkItem& before = plan.prefill_items[i - 1];
    EXPECT_EQ(before.entry, item.entry);
    EXPECT_EQ(before.split + 1, item.split);
    EXPECT_EQ(before.kv_end, item.kv_begin);
    EXPECT_EQ(item.kv_begin % 64, 0u);
  }
  if (item.split + 1 == item.num_splits) {
    EXPECT_EQ(item.kv_end, row.context_before + row.num_tokens);
  }
}

// Returns how many of them are splits.
uint32_t ExpectPrefillItemsCover(const HostPlan& plan, const PlannedBatch& batch, uint32_t window,
                                 uint32_t most) {
  std::vector<uint32_t> done(batch.size());
  uint32_t splits = 0;
  for (uint32_t i = 0; i < plan.counts().num_prefill_items[0]; ++i) {
    const kernels::AttentionWorkItem& item = plan.prefill_items[i];
    if (item.num_splits > 1) {
      ExpectSplitFollows(plan, i, batch[item.entry], window);
      done[item.entry] = item.q_count;
      ++splits;
      continue;
    }
    EXPECT_EQ(item.q_begin, done.at(item.entry));
    EXPECT_GE(item.q_count, 1u);
    EXPECT_LE(item.q_count, most);
    const uint32_t position = batch[item.entry].context_before + item.q_begin;
    EXPECT_EQ(item.kv_begin, FirstSeen(window, position));
    EXPECT_EQ(item.kv_end, position + item.q_count);
    done[item.entry] += item.q_count;
  }
  for (size_t e = 0; e < batch.size(); ++e)
    EXPECT_EQ(done[e], batch[e].num_tokens == 1 ? 0 : batch[e].num_tokens);
  return splits;
}

// ---- a deal ----

uint32_t WeightOf(const kernels::DecodeRow& row, uint32_t leaf, uint32_t overhead) {
  const uint32_t begin = row.origin + (row.first_leaf + leaf) * row.leaf_tokens;
  const uint32_t tokens = std::min(row.leaf_tokens, row.kv_end - begin);
  return (tokens + 63) / 64 * 4 + overhead / 16;
}

uint32_t NumTiles(const HostPlan& plan, const kernels::AttentionPlanRule& rule) {
  uint32_t tiles = 0;
  for (uint32_t m = 0; m < plan.counts().num_prefix_members && rule.tile_members != 0; ++m)
    tiles += plan.members[m].index % rule.tile_members == 0;
  return tiles;
}

// Every row sees every token once: in leaves of its own, or in those of one tile that it is a
// member of. Returns how many rows are in tiles.
uint32_t ExpectTilesCoverPrefixes(const HostPlan& plan, const PlannedBatch& batch,
                                  const kernels::AttentionPlanRule& rule) {
  std::vector<uint32_t> tiled(batch.size());  // tokens
  const auto num_rows = static_cast<uint32_t>(batch.size());
  for (uint32_t t = num_rows; t < num_rows + NumTiles(plan, rule); ++t) {
    const kernels::DecodeRow& tile = plan.decode_rows[t];
    if (tile.num_leaves == 0) continue;
    EXPECT_TRUE(tile.is_tile());
    EXPECT_LE(tile.num_members, rule.tile_members);
    EXPECT_EQ(tile.first_leaf, 0u);
    EXPECT_EQ(tile.kv_begin, 0u);
    EXPECT_EQ(tile.kv_end % 64, 0u);
    EXPECT_EQ(tile.num_leaves, (tile.kv_end + tile.leaf_tokens - 1) / tile.leaf_tokens);
    bool has_table = false;
    for (uint32_t m = tile.query; m < tile.query + tile.num_members; ++m) {
      const uint32_t e = plan.tile_members[m];
      if (e == kernels::kNoMember) continue;
      EXPECT_EQ(batch.at(e).group, batch[plan.members[tile.query].entry].group);
      EXPECT_EQ(tiled[e], 0u) << "entry " << e << " is in two tiles";
      EXPECT_EQ(plan.decode_rows[e].first_leaf, tile.num_leaves);
      tiled[e] = tile.kv_end;
      has_table |= tile.row == e;  // slots are entries here
    }
    EXPECT_TRUE(has_table);
  }
  uint32_t count = 0;
  for (uint32_t e = 0; e < batch.size(); ++e) {
    const kernels::DecodeRow& row = plan.decode_rows[e];
    if (row.num_leaves == 0) continue;
    const uint32_t begin = FirstSeen(rule.windows[0], batch[e].context_before);
    EXPECT_LE(row.num_leaves, kernels::AttentionPlanRule{}.max_splits);
    EXPECT_EQ(row.kv_end, batch[e].context_before + 1);
    EXPECT_EQ(row.kv_begin, tiled[e] != 0 ? tiled[e] : begin);
    EXPECT_EQ(row.origin + row.first_leaf * row.leaf_tokens, row.kv_begin / 64 * 64);
    EXPECT_EQ(row.num_own_leaves(),
              (row.kv_end - row.kv_begin / 64 * 64 + row.leaf_tokens - 1) / row.leaf_tokens);
    EXPECT_LE(tiled[e], batch[e].prefix_tokens);
    if (tiled[e] != 0) {
      EXPECT_GE(batch[e].prefix_tokens, rule.min_tile_tokens);
    }
    count += tiled[e] != 0;
  }
  return count;
}

// What is dealt, of every KV head.
struct DealtSums {
  uint64_t rows = 0, leaves = 0, weight = 0;
  bool all_short = true;
};

// What a share of the deal may weigh but for one leaf. Where the tree leaves it to the plan how
// many blocks take part, they are a quarter of the grid for few leaves, as many as there are short
// rows, or at least 15/16 of the grid.
uint64_t FairWeight(const kernels::AttentionPlanRule& rule, const kernels::BatchChoice& choice,
                    const DealtSums& sums) {
  uint64_t least = choice.shares != 0 ? choice.shares : 15 * rule.num_shares / 16;
  if (choice.shares == 0 && sums.rows != 0 && sums.all_short) least = std::min(least, sums.rows);
  if (choice.shares == 0 && sums.leaves <= rule.num_shares / 4)
    least = std::max(1u, rule.num_shares / 4);
  return (sums.weight + least - 1) / least;
}

// Every leaf of every KV head in exactly one share, in order.
void ExpectDealIsWholeAndLevel(const HostPlan& plan, const PlannedBatch& batch,
                               const kernels::AttentionPlanRule& rule) {
  const kernels::BatchChoice& choice = plan.tree().batch.leaves[plan.counts().attention_leaf];
  const uint32_t taking = choice.shares != 0 ? choice.shares : rule.num_shares;
  size_t share = 0;
  DealtSums sums;
  uint32_t largest = 0;
  std::vector<uint64_t> weights(rule.num_shares);
  const auto next_share = [&](const DecodePlace& place) {
    while (share < rule.num_shares && plan.decode_shares[share].end == place) ++share;
  };
  const auto num_rows = static_cast<uint32_t>(batch.size());
  const uint32_t end = num_rows + NumTiles(plan, rule);
  for (uint32_t e = 0; e < end; ++e) {
    const kernels::DecodeRow& row = plan.decode_rows[e];
    if (e < num_rows) {
      EXPECT_EQ(row.num_leaves == 0, batch[e].num_tokens != 1);
    }
    for (uint32_t head = 0; head < rule.num_kv_heads; ++head) {
      sums.rows += row.num_leaves != 0;
      sums.leaves += row.num_own_leaves();
      sums.all_short &= row.kv_end - row.kv_begin / 64 * 64 <= 512;
      for (uint32_t leaf = 0; leaf < row.num_own_leaves(); ++leaf) {
        const DecodePlace place{e, head, leaf, 0};
        next_share(place);
        ASSERT_LT(share, taking) << "entry " << e << ", head " << head << ", leaf " << leaf;
        if (weights[share] == 0) {
          EXPECT_EQ(plan.decode_shares[share].begin, place);
        }
        const uint32_t weight = WeightOf(row, leaf, choice.leaf_overhead);
        weights[share] += weight;
        sums.weight += weight;
        largest = std::max(largest, weight);
      }
    }
  }
  next_share({end, 0, 0, 0});
  EXPECT_EQ(share, rule.num_shares);
  for (uint32_t s = 0; s < taking; ++s)
    EXPECT_LE(weights[s], FairWeight(rule, choice, sums) + largest) << "share " << s;
}

void ExpectSameLeaves(const HostPlan& plan, const PlannedBatch& batch, Cuts& cuts) {
  for (size_t e = 0; e < batch.size(); ++e) {
    const kernels::DecodeRow& row = plan.decode_rows[e];
    ExpectSameCuts(batch[e],
                   {row.kv_begin, row.kv_end, row.origin, row.num_leaves == 0 ? 0 : row.leaf_tokens,
                    row.num_leaves, row.first_leaf},
                   cuts);
  }
}

// num_shares, window
class PlanPropertyTest : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {};

TEST_P(PlanPropertyTest, EverythingIsDoneOnceLoadsAreLevelAndRowsAreCutAlone) {
  const auto [num_shares, window] = GetParam();
  for (const bool bushy : {false, true}) {
    kernels::AttentionTree tree = bushy ? kernels::BushyTree(true) : kernels::AttentionTree();
    kernels::AttentionPlanRule rule{.num_shares = num_shares,
                                    .num_kv_heads = 3,
                                    .tile_members = kTileMembers,
                                    .min_tile_tokens = 97,  // more than the shortest prefix has
                                    .prefill_q_tokens = 16,
                                    .windows = {window}};
    HostPlan plan(rule, tree);
    Random random(17 + num_shares + window);
    Cuts cuts;
    uint32_t splits = 0, tiled = 0;
    for (int i = 0; i < 300 && !HasFailure(); ++i) {
      SCOPED_TRACE("batch " + std::to_string(i) + (bushy ? ", bushy" : ""));
      const PlannedBatch batch = RandomBatch(random);
      ASSERT_NO_FATAL_FAILURE(plan.Run(batch));
      splits += ExpectPrefillItemsCover(plan, batch, window, rule.prefill_q_tokens);
      if (num_shares == 0) {
        ExpectDecodeItemsCover(plan, batch, window, cuts);
      } else {
        ExpectDealIsWholeAndLevel(plan, batch, rule);
        tiled += ExpectTilesCoverPrefixes(plan, batch, rule);
        ExpectSameLeaves(plan, batch, cuts);
      }
    }
    // The default tree cuts no row of several query tokens.
    EXPECT_EQ(splits > 100, bushy) << splits;
    EXPECT_EQ(tiled > 25, num_shares != 0) << tiled;
  }
}

TEST(PlanRule, PrefillItemsHoldAsManyQueryTokensAsTheirRowsAllow) {
  for (const int32_t rows : {kernels::kPrefillRows, kernels::kPrefillGroupRows}) {
    EXPECT_EQ(kernels::PrefillQueryTokens(3, rows), static_cast<uint32_t>(rows / 3));
    EXPECT_EQ(kernels::PrefillQueryTokens(1, rows), static_cast<uint32_t>(rows));
    EXPECT_EQ(kernels::PrefillQueryTokens(2 * rows, rows), 1u);
  }
}

// A batch of equal rows, and what becomes of it on 264 blocks: those that work have as many leaves
// each; 0: not as many.
struct EvenBatch {
  uint32_t rows, tokens, working, leaves;
};

TEST(PlanEvenness, EqualRowsComeOutEven) {
  constexpr EvenBatch kBatches[] = {
      {1, 1, 8, 1},       {1, 1024, 32, 1},   {8, 128, 64, 1},     // a leaf each
      {8, 512, 128, 1},   {16, 512, 256, 1},                       // short rows, a leaf each
      {16, 384, 232, 0},                                           // of uneven leaves
      {20, 512, 160, 2},  {16, 128, 128, 1},                       // whole
      {32, 1024, 256, 4}, {31, 1024, 248, 4}, {33, 1024, 264, 4},  // whole rows
      {8, 4096, 256, 4},  {16, 1024, 256, 2}, {40, 1024, 256, 5},  // parts of rows
      {1, 4096, 128, 1},  {30, 1024, 264, 0}, {39, 1024, 264, 0}};
  const kernels::AttentionPlanRule rule{
      .num_shares = 264, .num_kv_heads = 8, .prefill_q_tokens = 16};
  HostPlan plan(rule, kernels::AttentionTree());
  for (const EvenBatch& even : kBatches) {
    SCOPED_TRACE(std::to_string(even.rows) + " rows of " + std::to_string(even.tokens));
    const PlannedBatch batch(even.rows, {.context_before = even.tokens - 1});
    ASSERT_NO_FATAL_FAILURE(plan.Run(batch));
    ExpectDealIsWholeAndLevel(plan, batch, rule);
    const uint32_t of_row = plan.decode_rows[0].num_leaves;
    const auto place = [&](const DecodePlace& p) {
      return (p.entry * rule.num_kv_heads + p.kv_head) * of_row + p.leaf;
    };
    uint32_t working = 0;
    for (const kernels::DecodeShare& share : plan.decode_shares) {
      if (share.begin == share.end) continue;
      ++working;
      if (even.leaves != 0) {
        EXPECT_EQ(place(share.end) - place(share.begin), even.leaves);
      }
    }
    EXPECT_EQ(working, even.working);
  }
}

// Few leaves lie in the first blocks; one long row among short ones is cut as if it were alone.
TEST(PlanEvenness, UnequalRowsTakeWhatTheyNeed) {
  const kernels::AttentionPlanRule rule{
      .num_shares = 264, .num_kv_heads = 8, .prefill_q_tokens = 16};
  HostPlan plan(rule, kernels::AttentionTree());
  ASSERT_NO_FATAL_FAILURE(plan.Run(PlannedBatch(1, {.context_before = 1023})));
  for (size_t s = rule.num_shares / 4; s < rule.num_shares; ++s)
    EXPECT_TRUE(plan.decode_shares[s].begin == plan.decode_shares[s].end) << s;
  PlannedBatch batch(5, {.context_before = 63});
  batch[2].context_before = 2239;
  ASSERT_NO_FATAL_FAILURE(plan.Run(batch));
  for (const kernels::DecodeShare& share : plan.decode_shares) {
    if (share.begin == share.end || share.begin.entry != 2 || share.end.entry != 2) continue;
    EXPECT_EQ(share.begin.kv_head * 9 + share.begin.leaf + 1,
              share.end.kv_head * 9 + share.end.leaf);
  }
}

INSTANTIATE_TEST_SUITE_P(, PlanPropertyTest,
                         ::testing::Combine(::testing::Values(0u, 6u, 264u),
                                            ::testing::Values(0u, 500u)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "_shares_window_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace reprise::testing
