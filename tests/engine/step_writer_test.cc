// SPDX-License-Identifier: Apache-2.0
// What a checked step looks like in its ring entry, and what it does to the host's mirror.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StepDraft;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A ledger whose blocks count as written in full: the tests of contexts are in remanence_test.cc.
constexpr uint32_t kAnyContext = 1u << 20;
constexpr std::byte kUntouched{0xa5};
constexpr size_t kGuardBytes = 256;

// A ring entry as the device reads it.
struct Entry {
  kernels::StepHeader header;
  std::vector<kernels::RowEntry> rows;
  std::vector<kernels::TableUpdate> updates;
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> blocks;  // of all updates
  std::vector<kernels::PrefixMember> members;

  std::vector<uint32_t> BlocksOf(const kernels::TableUpdate& update) const {
    return {blocks.begin() + update.offset, blocks.begin() + update.offset + update.count};
  }
};

template <typename T>
std::vector<T> Read(const std::byte* from, size_t count) {
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), from, count * sizeof(T));
  return values;
}

class Bench {
 public:
  explicit Bench(uint32_t max_rows = 4, uint32_t max_step_tokens = 16, uint32_t max_blocks = 6,
                 uint32_t min_shared_tokens = 1)
      : layout_(kernels::StepEntryLayout::For(max_rows, max_step_tokens, max_blocks)),
        rows(max_rows, max_blocks),
        ledger(200, kAnyContext),
        validator_({.block_size = 4,
                    .vocab_size = 50,
                    .max_context_length = 4 * max_blocks,
                    .max_step_tokens = max_step_tokens},
                   {}, rows, ledger),
        writer_(layout_, 4, min_shared_tokens, 50, {}, rows) {
    std::vector<uint32_t> all;
    EXPECT_OK(ledger.Allocate(1, 199, &all));
  }

  // Runs a step of session 1 and reads the ring entry back; the rows that ran go to `ran`.
  Entry Write(const StepDraft& draft, uint64_t sequence = 1) {
    const DraftView view(draft, SessionInfo{.id = 1}, 1);
    EXPECT_OK(validator_.Validate(view.request(), list));
    std::vector<std::byte> bytes(layout_.bytes + kGuardBytes, kUntouched);
    writer_.Begin(sequence, bytes.data());
    writer_.Add(view.request(), validator_.staged(), list);
    writer_.Finish();
    ran.clear();
    for (const StagedRun& run : validator_.staged().runs) ran.push_back(run.row);
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(layout_.bytes), bytes.end(),
                            [](std::byte b) { return b == kUntouched; }))
        << "wrote beyond the ring entry";
    return Parse(bytes.data());
  }

 private:
  Entry Parse(const std::byte* bytes) const {
    Entry entry;
    std::memcpy(&entry.header, bytes, sizeof(entry.header));
    for (uint32_t block = 1; block < kernels::kFetchBlocks; ++block)
      EXPECT_EQ(std::memcmp(bytes + layout_.Header(block), bytes, sizeof(entry.header)), 0)
          << "header of block " << block;
    entry.rows = Read<kernels::RowEntry>(bytes + layout_.rows, entry.header.num_rows);
    entry.updates =
        Read<kernels::TableUpdate>(bytes + layout_.table_updates, entry.header.num_table_updates);
    entry.tokens = Read<uint32_t>(bytes + layout_.tokens, entry.header.num_given_tokens);
    const size_t num_blocks = std::accumulate(
        entry.updates.begin(), entry.updates.end(), size_t{0},
        [](size_t n, const kernels::TableUpdate& update) { return n + update.count; });
    entry.blocks = Read<uint32_t>(bytes + layout_.blocks, num_blocks);
    // Parts must not run into each other.
    EXPECT_LE(layout_.rows + entry.rows.size() * sizeof(kernels::RowEntry), layout_.table_updates);
    EXPECT_LE(layout_.table_updates + entry.updates.size() * sizeof(kernels::TableUpdate),
              layout_.tokens);
    EXPECT_LE(layout_.tokens + entry.tokens.size() * 4, layout_.blocks);
    EXPECT_LE(layout_.blocks + num_blocks * 4, layout_.bytes);
    entry.members = Read<kernels::PrefixMember>(bytes + layout_.prefix_members,
                                                entry.header.num_prefix_members);
    return entry;
  }

  const kernels::StepEntryLayout layout_;

 public:
  RowTable rows;
  engine::BlockLedger ledger;
  RowList list;
  std::vector<uint32_t> ran;

 private:
  StepValidator validator_;
  StepWriter writer_;
};

// Of rows that run one token, group by group, in request order.
TEST(StepWriter, ListsTheMembersOfEveryGroupThatRuns) {
  Bench bench(6, 16, 6);
  const auto add = [](uint32_t row, uint32_t own) {
    return StepDraft::Add{.row = row, .blocks = {1, 2, own}, .context_length = 8};
  };
  StepDraft step{.add = {add(1, 10), add(2, 11), add(3, 12), add(4, 13), add(5, 14), add(6, 15)},
                 .prefixes = {{.group = 7, .num_blocks = 2, .rows = {1, 3, 6, 5}},
                              {.group = 2, .num_blocks = 1, .rows = {2}}}};
  for (const uint32_t row : {1u, 2u, 3u, 4u, 5u, 6u})
    step.chunks.push_back({.row = row, .tokens = {3}});
  step.chunks[4].tokens = {3, 4};
  const Entry entry = bench.Write(step);
  ASSERT_THAT(entry.members, SizeIs(4));
  const auto expect = [&](size_t m, kernels::PrefixMember want) {
    EXPECT_EQ(entry.members[m].entry, want.entry);
    EXPECT_EQ(entry.members[m].tokens, want.tokens);
    EXPECT_EQ(entry.members[m].index, want.index);
    EXPECT_EQ(entry.members[m].count, want.count);
  };
  expect(0, {.entry = 1, .tokens = 4, .index = 0, .count = 1});
  expect(1, {.entry = 0, .tokens = 8, .index = 0, .count = 3});
  expect(2, {.entry = 2, .tokens = 8, .index = 1, .count = 3});
  expect(3, {.entry = 5, .tokens = 8, .index = 2, .count = 3});
  // They stay in their groups.
  EXPECT_THAT(bench.Write({.continue_rows = {6, 4, 5}}, 2).members, SizeIs(2));
  EXPECT_THAT(bench.Write({.continue_rows = {6, 4, 5}, .prefixes = {{.rows = {5, 6}}}}, 3).members,
              IsEmpty());
}

// The others go alone anyway.
TEST(StepWriter, ListsNoMembersOfShorterPrefixesThanAreReadOnce) {
  const auto members = [](uint32_t min_shared_tokens) {
    Bench bench(4, 16, 6, min_shared_tokens);
    StepDraft step{.prefixes = {{.group = 1, .num_blocks = 2, .rows = {1, 2}},
                                {.group = 2, .num_blocks = 1, .rows = {3}}}};
    for (const uint32_t row : {1u, 2u, 3u}) {
      step.add.push_back({.row = row, .blocks = {1, 2, 10 + row}, .context_length = 8});
      step.chunks.push_back({.row = row, .tokens = {3}});
    }
    return bench.Write(step).members.size();
  };
  EXPECT_EQ(members(4), 3u);
  EXPECT_EQ(members(5), 2u);
  EXPECT_EQ(members(8), 2u);
  EXPECT_EQ(members(9), 0u);
  EXPECT_EQ(members(0), 0u);
}

TEST(StepWriter, WritesAddedRowsWithTheirInitialState) {
  Bench bench;
  const Entry entry =
      bench.Write({.add = {{.row = 7,
                            .blocks = {5, 3, 9},
                            .context_length = 8,
                            .sampling = {.temperature = 0.5f, .seed = 0x123456789abcdef0}}},
                   .chunks = {{.row = 7, .tokens = {41, 2, 33}, .sample = true}}},
                  77);
  EXPECT_EQ(entry.header.sequence, 77u);
  EXPECT_EQ(entry.header.num_tokens, 3u);
  EXPECT_THAT(entry.tokens, ElementsAre(41, 2, 33));
  ASSERT_THAT(entry.rows, SizeIs(1));
  const kernels::RowEntry& row = entry.rows[0];
  EXPECT_EQ(row.slot, bench.rows.Find(1, 7));
  EXPECT_EQ(row.flags, kernels::kRowReset | kernels::kRowTokensGiven | kernels::kRowSample);
  EXPECT_EQ(row.num_tokens, 3u);
  EXPECT_EQ(row.given_offset, 0u);
  EXPECT_EQ(row.context_length, 8u);
  EXPECT_EQ(row.temperature, 0.5f);
  EXPECT_EQ(row.seed, 0x123456789abcdef0u);
  ASSERT_THAT(entry.updates, SizeIs(1));
  EXPECT_EQ(entry.updates[0].slot, row.slot);
  EXPECT_EQ(entry.updates[0].first, 0u);
  EXPECT_THAT(entry.BlocksOf(entry.updates[0]), ElementsAre(5, 3, 9));

  const RowState& state = bench.rows.state(row.slot);
  EXPECT_EQ(state.context_length, 11u);
  EXPECT_EQ(state.table_length, 3u);
  EXPECT_TRUE(state.can_continue);
  EXPECT_FALSE(state.needs_reset);
  EXPECT_THAT(bench.ran, ElementsAre(7));
}

TEST(StepWriter, SteadyStateCarriesNeitherTokensNorTablesNorState) {
  Bench bench;
  bench.Write({.add = {{.row = 1, .blocks = {5}}, {.row = 2, .blocks = {6}}},
               .chunks = {{.row = 1, .tokens = {3}}, {.row = 2, .tokens = {4}}}});
  const Entry entry = bench.Write({.continue_all = true}, 2);
  EXPECT_THAT(entry.updates, IsEmpty());
  EXPECT_THAT(entry.tokens, IsEmpty());
  ASSERT_THAT(entry.rows, SizeIs(2));
  EXPECT_EQ(entry.header.num_tokens, 2u);
  for (const kernels::RowEntry& row : entry.rows) {
    EXPECT_EQ(row.flags, kernels::kRowSample);
    EXPECT_EQ(row.num_tokens, 1u);
  }
  EXPECT_EQ(entry.rows[0].slot, bench.rows.Find(1, 1));
  EXPECT_EQ(entry.rows[1].slot, bench.rows.Find(1, 2));
  EXPECT_THAT(bench.ran, ElementsAre(1, 2));
  EXPECT_EQ(bench.rows.state(entry.rows[0].slot).context_length, 2u);
}

TEST(StepWriter, InitialStateWaitsForTheFirstStepThatRunsTheRow) {
  Bench bench;
  Entry entry = bench.Write({.add = {{.row = 4,
                                      .blocks = {8},
                                      .context_length = 2,
                                      .sampling = {.temperature = 1.5f, .seed = 6}}}});
  EXPECT_THAT(entry.rows, IsEmpty());
  EXPECT_THAT(bench.ran, IsEmpty());
  EXPECT_TRUE(bench.rows.state(bench.rows.Find(1, 4)).needs_reset);
  entry = bench.Write({.chunks = {{.row = 4, .tokens = {9}, .sample = false}}}, 2);
  ASSERT_THAT(entry.rows, SizeIs(1));
  EXPECT_EQ(entry.rows[0].flags, kernels::kRowReset | kernels::kRowTokensGiven);
  EXPECT_EQ(entry.rows[0].context_length, 2u);
  EXPECT_EQ(entry.rows[0].temperature, 1.5f);
  EXPECT_EQ(entry.rows[0].seed, 6u);
  EXPECT_FALSE(bench.rows.state(entry.rows[0].slot).can_continue);
  entry = bench.Write({.chunks = {{.row = 4, .tokens = {9}}}}, 3);
  EXPECT_EQ(entry.rows[0].flags, kernels::kRowTokensGiven | kernels::kRowSample);
}

TEST(StepWriter, AppendsBehindTheTableThatIsThere) {
  Bench bench;
  Entry entry = bench.Write({.add = {{.row = 1, .blocks = {10, 11}}, {.row = 2}},
                             .append = {{.row = 2, .blocks = {12}}, {.row = 1, .blocks = {13}}}});
  ASSERT_THAT(entry.updates, SizeIs(3));  // row 2 was added with no blocks
  EXPECT_EQ(entry.updates[1].slot, bench.rows.Find(1, 2));
  EXPECT_EQ(entry.updates[1].first, 0u);
  EXPECT_THAT(entry.BlocksOf(entry.updates[1]), ElementsAre(12));
  EXPECT_EQ(entry.updates[2].slot, bench.rows.Find(1, 1));
  EXPECT_EQ(entry.updates[2].first, 2u);
  EXPECT_THAT(entry.BlocksOf(entry.updates[2]), ElementsAre(13));
  entry = bench.Write({.append = {{.row = 1, .blocks = {14, 15}}}}, 2);
  ASSERT_THAT(entry.updates, SizeIs(1));
  EXPECT_EQ(entry.updates[0].first, 3u);
  EXPECT_THAT(entry.BlocksOf(entry.updates[0]), ElementsAre(14, 15));
  const uint32_t at = bench.rows.Find(1, 1);
  EXPECT_THAT(bench.rows.table(at).first(bench.rows.state(at).table_length),
              ElementsAre(10, 11, 13, 14, 15));
}

TEST(StepWriter, DropsBeforeItAdds) {
  Bench bench(1);
  bench.Write({.add = {{.row = 1, .blocks = {10, 11}}}, .chunks = {{.row = 1, .tokens = {5}}}});
  const Entry entry = bench.Write({.drop = {1},
                                   .add = {{.row = 1, .blocks = {12}}},
                                   .chunks = {{.row = 1, .tokens = {6}, .sample = false}}},
                                  2);
  ASSERT_THAT(entry.rows, SizeIs(1));
  EXPECT_EQ(entry.rows[0].flags, kernels::kRowReset | kernels::kRowTokensGiven);
  EXPECT_EQ(entry.rows[0].context_length, 0u);
  EXPECT_THAT(entry.BlocksOf(entry.updates[0]), ElementsAre(12));
  EXPECT_EQ(bench.list.count, 1u);
  EXPECT_EQ(bench.rows.state(bench.list.first).context_length, 1u);
}

// The entry is laid out for the limits: the largest step there is must fit to the byte.
TEST(StepWriter, LargestStepFitsItsRingEntry) {
  constexpr uint32_t kRows = 8, kTokens = 24, kBlocks = 7;
  Bench bench(kRows, kTokens, kBlocks);
  StepDraft draft;
  uint32_t next = 1;
  const auto take = [&](uint32_t count) {
    std::vector<uint32_t> blocks(count);
    std::iota(blocks.begin(), blocks.end(), next);
    next += count;
    return blocks;
  };
  for (uint32_t row = 0; row < kRows; ++row) {
    draft.add.push_back({.row = row, .blocks = take(kBlocks - 2)});
    draft.append.push_back({.row = row, .blocks = take(2)});
    draft.chunks.push_back({.row = row, .tokens = {row, row + 1, row + 2}});
  }
  const Entry entry = bench.Write(draft);
  EXPECT_EQ(entry.header.num_rows, kRows);
  EXPECT_EQ(entry.header.num_tokens, kTokens);
  EXPECT_EQ(entry.header.num_given_tokens, kTokens);
  ASSERT_EQ(entry.header.num_table_updates, 2 * kRows);
  ASSERT_EQ(entry.blocks.size(), kRows * kBlocks);
  for (uint32_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(entry.rows[row].given_offset, 3 * row);
    EXPECT_EQ(entry.tokens[3 * row + 2], row + 2);
    EXPECT_EQ(entry.BlocksOf(entry.updates[row]), draft.add[row].blocks);
    EXPECT_EQ(entry.BlocksOf(entry.updates[kRows + row]), draft.append[row].blocks);
  }
  // And once more, with every row replaced.
  draft.drop.resize(kRows);
  std::iota(draft.drop.begin(), draft.drop.end(), 0);
  EXPECT_EQ(bench.Write(draft, 2).header.num_table_updates, 2 * kRows);
}

}  // namespace
}  // namespace reprise::engine
