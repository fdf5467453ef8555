// SPDX-License-Identifier: Apache-2.0
// What a step may ask: what validation hands on, that a refusal leaves no trace, and that random
// requests are judged as a plain reading of the contract judges them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A ledger whose blocks count as written in full: the tests of contexts are in remanence_test.cc.
constexpr uint32_t kAnyContext = 1u << 20;
using ::reprise::testing::kDenied;
using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

constexpr uint32_t kMaxRows = 4, kMaxBlocks = 5, kBlockSize = 4, kVocab = 50;
constexpr uint32_t kMaxContext = 18, kMaxStepTokens = 12, kNumBlocks = 24;

// The three that validate and apply steps, without a device.
struct Bench {
  Bench()
      : rows(kMaxRows, kMaxBlocks),
        ledger(kNumBlocks, kAnyContext),
        validator({.block_size = kBlockSize,
                   .vocab_size = kVocab,
                   .max_context_length = kMaxContext,
                   .max_step_tokens = kMaxStepTokens},
                  {}, rows, ledger),
        layout(kernels::StepEntryLayout::For(kMaxRows, kMaxStepTokens, kMaxBlocks)),
        writer(layout, kBlockSize, 0, kVocab, {}, rows),
        entry(layout.bytes) {}

  std::vector<uint32_t> Allocate(SessionId session, uint32_t count) {
    std::vector<uint32_t> blocks;
    EXPECT_OK(ledger.Allocate(session, count, &blocks));
    return blocks;
  }
  absl::Status Check(SessionId session, const StepDraft& draft) {
    checked = draft;  // what is staged views it
    view = std::make_unique<DraftView>(checked, SessionInfo{.id = session}, 1);
    return validator.Validate(view->request(), lists[session]);
  }
  // Validates and applies.
  absl::Status Run(SessionId session, const StepDraft& draft) {
    const absl::Status status = Check(session, draft);
    if (!status.ok()) return status;
    writer.Begin(++sequence, entry.data());
    writer.Add(view->request(), validator.staged(), lists[session]);
    writer.Finish();
    return status;
  }
  std::vector<uint32_t> Counts() const {
    std::vector<uint32_t> counts;
    for (uint32_t block = 0; block < kNumBlocks; ++block)
      counts.push_back(ledger.rows_naming(block));
    return counts;
  }

  RowTable rows;
  engine::BlockLedger ledger;
  StepValidator validator;
  kernels::StepEntryLayout layout;
  StepWriter writer;
  std::vector<std::byte> entry;
  std::map<SessionId, RowList> lists;
  StepDraft checked;
  std::unique_ptr<DraftView> view;
  uint64_t sequence = 0;
};

TEST(StepValidator, StagesChunksFirstThenContinuesInRequestOrder) {
  Bench bench;
  const std::vector<uint32_t> b = bench.Allocate(1, 6);
  ASSERT_OK(bench.Run(1, {.add = {{.row = 8, .blocks = {b[0]}}, {.row = 5, .blocks = {b[1]}}},
                          .chunks = {{.row = 8, .tokens = {1, 2}}, {.row = 5, .tokens = {3}}}}));
  ASSERT_OK(bench.Check(1, {.add = {{.row = 2, .blocks = {b[2], b[3]}, .context_length = 4}},
                            .chunks = {{.row = 2, .tokens = {7, 8, 9}, .sample = false}},
                            .continue_rows = {5, 8}}));
  const StagedStep& staged = bench.validator.staged();
  ASSERT_THAT(staged.runs, SizeIs(3));
  EXPECT_EQ(staged.num_tokens, 5u);
  EXPECT_EQ(staged.num_given_tokens, 3u);
  EXPECT_FALSE(staged.all_single);
  EXPECT_EQ(staged.runs[0].row, 2u);
  EXPECT_EQ(staged.runs[0].ref.add, 0u);
  EXPECT_THAT(staged.runs[0].tokens, ElementsAre(7, 8, 9));
  EXPECT_FALSE(staged.runs[0].sample);
  EXPECT_EQ(staged.runs[0].num_tokens, 3u);
  EXPECT_EQ(staged.runs[0].context_before, 4u);
  EXPECT_EQ(staged.runs[1].row, 5u);
  EXPECT_EQ(staged.runs[1].ref.slot, bench.rows.Find(1, 5));
  EXPECT_TRUE(staged.runs[1].sample);
  EXPECT_THAT(staged.runs[1].tokens, IsEmpty());
  EXPECT_EQ(staged.runs[1].context_before, 1u);
  EXPECT_EQ(staged.runs[2].row, 8u);
  EXPECT_EQ(staged.runs[2].context_before, 2u);
}

TEST(StepValidator, ContinueAllTakesRowsThatSampledInTheOrderOfAdding) {
  Bench bench;
  const std::vector<uint32_t> b = bench.Allocate(1, 4);
  ASSERT_OK(bench.Run(1, {.add = {{.row = 30, .blocks = {b[0]}},
                                  {.row = 10, .blocks = {b[1]}},
                                  {.row = 20, .blocks = {b[2]}},
                                  {.row = 40, .blocks = {b[3]}}},
                          .chunks = {{.row = 20, .tokens = {1}},
                                     {.row = 30, .tokens = {1}},
                                     {.row = 10, .tokens = {1}, .sample = false},
                                     {.row = 40, .tokens = {1}}}}));
  const auto rows_of = [&](const StepDraft& draft) {
    EXPECT_OK(bench.Check(1, draft));
    std::vector<uint32_t> rows;
    for (const StagedRun& run : bench.validator.staged().runs) rows.push_back(run.row);
    bench.validator.Abandon();
    return rows;
  };
  EXPECT_THAT(rows_of({.continue_all = true}), ElementsAre(30, 20, 40));
  EXPECT_TRUE(bench.validator.staged().all_single);
  // Neither dropped rows nor those that a chunk names.
  EXPECT_THAT(
      rows_of({.drop = {20}, .chunks = {{.row = 40, .tokens = {1, 2}}}, .continue_all = true}),
      ElementsAre(40, 30));
}

TEST(StepValidator, SuccessCountsTablesAndAbandonTakesThatBack) {
  Bench bench;
  const std::vector<uint32_t> b = bench.Allocate(1, 6);
  ASSERT_OK(bench.Run(1, {.add = {{.row = 1, .blocks = {b[0], b[1]}}}}));
  const std::vector<uint32_t> before = bench.Counts();
  EXPECT_EQ(bench.ledger.rows_naming(b[0]), 1u);
  const StepDraft draft{.drop = {1},
                        .add = {{.row = 2, .blocks = {b[1], b[2]}}, {.row = 1, .blocks = {b[1]}}},
                        .append = {{.row = 1, .blocks = {b[3]}}}};
  ASSERT_OK(bench.Check(1, draft));
  EXPECT_EQ(bench.ledger.rows_naming(b[0]), 0u);
  EXPECT_EQ(bench.ledger.rows_naming(b[1]), 2u);
  EXPECT_EQ(bench.ledger.rows_naming(b[2]), 1u);
  EXPECT_EQ(bench.ledger.rows_naming(b[3]), 1u);
  bench.validator.Abandon();
  EXPECT_EQ(bench.Counts(), before);
  bench.validator.Abandon();  // nothing is left to take back
  EXPECT_EQ(bench.Counts(), before);
}

TEST(StepValidator, RefusalAtAnyStageLeavesTheLedgerAsItWas) {
  Bench bench;
  const std::vector<uint32_t> b = bench.Allocate(1, 8);
  ASSERT_OK(bench.Run(
      1, {.add = {{.row = 1, .blocks = {b[0], b[1]}}}, .chunks = {{.row = 1, .tokens = {1}}}}));
  const std::vector<uint32_t> before = bench.Counts();
  // Good in everything; each case below spoils what comes last.
  const StepDraft good{.drop = {1},
                       .add = {{.row = 2, .blocks = {b[1], b[2]}}},
                       .append = {{.row = 2, .blocks = {b[3]}}},
                       .chunks = {{.row = 2, .tokens = {1, 2}}}};
  std::vector<StepDraft> bad(6, good);
  bad[0].drop.push_back(1);
  bad[1].add.push_back({.row = 3, .blocks = {b[4], b[4]}});
  bad[2].append.push_back({.row = 9, .blocks = {b[4]}});
  bad[3].chunks.push_back({.row = 2, .tokens = {1}});
  bad[4].continue_rows = {2};
  bad[5].chunks[0].tokens.assign(kMaxStepTokens + 1, 1);
  for (const StepDraft& draft : bad) {
    EXPECT_FALSE(bench.Check(1, draft).ok());
    EXPECT_EQ(bench.Counts(), before);
  }
  EXPECT_OK(bench.Check(1, good));
}

TEST(StepValidator, ErrorsSayWhatGotAndAllowed) {
  Bench bench;
  const std::vector<uint32_t> b = bench.Allocate(1, 6);
  const std::vector<uint32_t> others = bench.Allocate(2, 2);
  ASSERT_OK(bench.Run(1, {.add = {{.row = 1, .blocks = {b[0]}}, {.row = 2, .blocks = {b[1]}}},
                          .chunks = {{.row = 1, .tokens = {1}}}}));
  const auto check = [&](const StepDraft& draft) { return bench.Check(1, draft); };
  EXPECT_THAT(check({}), StatusIs(kInvalid, "the step names no row"));
  EXPECT_THAT(check({.drop = {7}}), StatusIs(kNotFound, "row 7"));
  EXPECT_THAT(check({.add = {{.row = 3, .blocks = {others[0]}}}}), StatusIs(kDenied, "row 3"));
  EXPECT_THAT(check({.add = {{.row = 3, .blocks = {kNumBlocks}}}}),
              StatusIs(kRange, "block 24 does not exist; allowed: 1 to 23"));
  EXPECT_THAT(
      check({.add = {{.row = 3,
                      .blocks = {b[2]},
                      .sampling = {.temperature = std::numeric_limits<float>::quiet_NaN()}}}}),
      StatusIs(kInvalid, "temperature is nan; allowed: finite, at least 0"));
  EXPECT_THAT(check({.chunks = {{.row = 1, .tokens = {kVocab}}}}),
              StatusIs(kInvalid, "token id 50; allowed: less than 50"));
  EXPECT_THAT(check({.chunks = {{.row = 1, .tokens = {1, 2, 3, 4}}}}),
              StatusIs(kRange, "context of 5 tokens; its block table has room for 4"));
  EXPECT_THAT(check({.add = {{.row = 3}, {.row = 4}, {.row = 5}}}),
              StatusIs(kExhausted, "adds 3 rows; 2 of max_rows 4 are free"));
  EXPECT_THAT(check({.continue_rows = {2}}), StatusIs(kPrecondition, "row 2"));
  EXPECT_THAT(check({.append = {{.row = 1}}}), StatusIs(kInvalid, "0 blocks"));
}

// ---- a plain reading of the contract ----

// One session's or several sessions' rows, as tables of block ids.
struct ModelRow {
  std::vector<uint32_t> table;
  uint32_t context = 0;
  bool sampled = false;
};
using ModelKey = std::pair<SessionId, uint32_t>;
struct Model {
  std::map<ModelKey, ModelRow> rows;
  std::map<uint32_t, SessionId> holder;  // of held blocks

  int Naming(uint32_t block) const {
    int n = 0;
    for (const auto& [unused, row] : rows)
      n += static_cast<int>(std::count(row.table.begin(), row.table.end(), block));
    return n;
  }
};

bool GoodTable(const Model& m, SessionId session, const std::vector<uint32_t>& table) {
  if (table.size() > kMaxBlocks) return false;
  if (std::set<uint32_t>(table.begin(), table.end()).size() != table.size()) return false;
  return std::all_of(table.begin(), table.end(), [&](uint32_t block) {
    const auto it = m.holder.find(block);
    return it != m.holder.end() && it->second == session;
  });
}

// Runs `n` tokens of a row; false when it may not.
bool RunRow(Model& m, const ModelKey& key, size_t n, bool sample, size_t* step_tokens) {
  ModelRow& row = m.rows.at(key);
  const size_t end = row.context + n;
  if (n == 0 || end > kMaxContext || end > row.table.size() * kBlockSize) return false;
  for (size_t i = row.context / kBlockSize; i * kBlockSize < end; ++i)
    if (m.Naming(row.table[i]) != 1) return false;
  row.context = static_cast<uint32_t>(end);
  row.sampled = sample;
  *step_tokens += n;
  return true;
}

// Drop, add, append; false when one of them may not.
bool ChangeRows(Model& m, SessionId session, const StepDraft& d) {
  for (const uint32_t row : d.drop)
    if (m.rows.erase({session, row}) == 0) return false;
  std::set<uint32_t> added, appended;
  for (const StepDraft::Add& add : d.add) {
    if (m.rows.contains({session, add.row}) || m.rows.size() >= kMaxRows) return false;
    if (!GoodTable(m, session, add.blocks)) return false;
    const float t = add.sampling.temperature;
    if (!(t >= 0.0f && t <= std::numeric_limits<float>::max())) return false;
    if (add.context_length > add.blocks.size() * kBlockSize || add.context_length >= kMaxContext)
      return false;
    m.rows[{session, add.row}] = {.table = add.blocks, .context = add.context_length};
  }
  for (const StepDraft::Append& append : d.append) {
    const auto it = m.rows.find({session, append.row});
    if (it == m.rows.end() || append.blocks.empty()) return false;
    if (!appended.insert(append.row).second) return false;
    std::vector<uint32_t>& table = it->second.table;
    table.insert(table.end(), append.blocks.begin(), append.blocks.end());
    if (!GoodTable(m, session, table)) return false;
  }
  return true;
}

// The model after the step, or nothing when the step is to be refused.
std::optional<Model> Apply(Model m, SessionId session, const StepDraft& d,
                           const std::vector<uint32_t>& order) {
  if (!ChangeRows(m, session, d)) return std::nullopt;
  size_t tokens = 0, num_run = 0;
  std::set<uint32_t> ran;
  const auto is_added = [&](uint32_t row) {
    return std::any_of(d.add.begin(), d.add.end(), [&](const auto& add) { return add.row == row; });
  };
  for (const StepDraft::Chunk& chunk : d.chunks) {
    const ModelKey key{session, chunk.row};
    if (!m.rows.contains(key) || !ran.insert(chunk.row).second) return std::nullopt;
    for (const uint32_t token : chunk.tokens)
      if (token >= kVocab) return std::nullopt;
    if (!RunRow(m, key, chunk.tokens.size(), chunk.sample, &tokens)) return std::nullopt;
    ++num_run;
  }
  std::vector<uint32_t> continues = d.continue_rows;
  if (d.continue_all) {
    if (!continues.empty()) return std::nullopt;
    for (const uint32_t row : order) {
      const auto it = m.rows.find({session, row});
      if (it != m.rows.end() && it->second.sampled && !ran.contains(row) && !is_added(row))
        continues.push_back(row);
    }
  }
  for (const uint32_t row : continues) {
    const ModelKey key{session, row};
    if (!m.rows.contains(key) || !ran.insert(row).second) return std::nullopt;
    if (!m.rows.at(key).sampled) return std::nullopt;
    if (!RunRow(m, key, 1, true, &tokens)) return std::nullopt;
    ++num_run;
  }
  if (tokens > kMaxStepTokens) return std::nullopt;
  if (num_run + d.drop.size() + d.add.size() + d.append.size() == 0) return std::nullopt;
  return m;
}

// Requests that are often good and often wrong in one thing: most rows and blocks are what they
// should be, some are anything.
class RandomDrafts {
 public:
  explicit RandomDrafts(uint64_t seed) : random_(seed) {}

  StepDraft Next(const Model& model, SessionId session) {
    resident_.clear();
    absent_.clear();
    free_blocks_.clear();
    for (uint32_t row = 0; row < 7; ++row)
      (model.rows.contains({session, row}) ? resident_ : absent_).push_back(row);
    for (const auto& [block, holder] : model.holder)
      if (holder == session && model.Naming(block) == 0) free_blocks_.push_back(block);
    StepDraft d;
    if (One(6)) d.drop.push_back(Row(resident_));
    for (uint32_t n = One(3) ? 1 + random_.Below(2) : 0; n > 0; --n) Add(&d);
    if (One(5)) d.append.push_back({.row = Row(resident_), .blocks = Blocks(2)});
    for (uint32_t n = random_.Below(3); n > 0; --n) Chunk(&d);
    if (One(6)) d.continue_rows.push_back(Row(resident_));
    d.continue_all = One(3);
    if (d.continue_all && !One(10)) d.continue_rows.clear();
    return d;
  }

 private:
  static constexpr float kTemperatures[5] = {-1.0f, 0.7f, -0.0f,
                                             std::numeric_limits<float>::infinity(),
                                             std::numeric_limits<float>::quiet_NaN()};
  bool One(uint32_t in) { return random_.Below(in) == 0; }
  // One of these, each at most once a step; now and then any row.
  uint32_t Row(std::vector<uint32_t>& from) {
    if (from.empty() || One(12)) return random_.Below(7);
    const auto at = from.begin() + random_.Below(static_cast<uint32_t>(from.size()));
    const uint32_t row = *at;
    if (One(2)) from.erase(at);
    return row;
  }
  std::vector<uint32_t> Blocks(uint32_t most) {
    std::vector<uint32_t> blocks;
    for (uint32_t n = 1 + random_.Below(most) - (One(8) ? 1 : 0); n > 0; --n) {
      if (free_blocks_.empty() || One(15)) {
        blocks.push_back(random_.Below(kNumBlocks + 2));
        continue;
      }
      const auto at =
          free_blocks_.begin() + random_.Below(static_cast<uint32_t>(free_blocks_.size()));
      blocks.push_back(*at);
      free_blocks_.erase(at);
    }
    return blocks;
  }
  void Add(StepDraft* d) {
    d->add.push_back({.row = Row(absent_), .blocks = Blocks(3)});
    StepDraft::Add& add = d->add.back();
    if (One(4)) add.context_length = random_.Below(9);
    if (One(30)) add.context_length = kMaxContext - random_.Below(2);
    if (One(20)) add.sampling.temperature = kTemperatures[random_.Below(5)];
    if (One(2)) resident_.push_back(add.row);  // the chunks below may name it
  }
  void Chunk(StepDraft* d) {
    d->chunks.push_back({.row = Row(resident_), .sample = !One(3)});
    for (uint32_t n = random_.Below(5) + (One(9) ? 0 : 1); n > 0; --n)
      d->chunks.back().tokens.push_back(random_.Below(kVocab + (One(40) ? 1 : 0)));
  }

  testing::Random random_;
  std::vector<uint32_t> resident_, absent_, free_blocks_;
};

TEST(StepValidator, JudgesRandomStepsAsAPlainReadingOfTheContractDoes) {
  int num_good = 0, num_bad = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Bench bench;
    Model model;
    std::map<SessionId, std::vector<uint32_t>> order;  // resident rows in the order of adding
    for (const SessionId session : {1u, 2u})
      for (const uint32_t block : bench.Allocate(session, session == 1 ? 13 : 8))
        model.holder[block] = session;
    RandomDrafts drafts(seed);
    for (int i = 0; i < 250; ++i) {
      const SessionId session = i % 5 == 0 ? 2 : 1;
      const StepDraft draft = drafts.Next(model, session);
      const std::vector<uint32_t> counts = bench.Counts();
      const std::optional<Model> after = Apply(model, session, draft, order[session]);
      const absl::Status status = bench.Run(session, draft);
      ASSERT_EQ(status.ok(), after.has_value())
          << "seed " << seed << ", step " << i << ": " << status.ToString();
      if (!after.has_value()) {
        ++num_bad;
        ASSERT_EQ(bench.Counts(), counts) << status.ToString();
        continue;
      }
      ++num_good;
      model = *after;
      for (const uint32_t row : draft.drop) std::erase(order[session], row);
      for (const StepDraft::Add& add : draft.add) order[session].push_back(add.row);
      for (const auto& [key, row] : model.rows) {
        const uint32_t slot = bench.rows.Find(key.first, key.second);
        ASSERT_NE(slot, kNoSlot);
        const RowState& state = bench.rows.state(slot);
        ASSERT_EQ(state.context_length, row.context);
        ASSERT_EQ(state.can_continue, row.sampled);
        const auto table = bench.rows.table(slot).first(state.table_length);
        ASSERT_EQ(std::vector<uint32_t>(table.begin(), table.end()), row.table);
      }
      for (uint32_t block = 1; block < kNumBlocks; ++block)
        ASSERT_EQ(bench.ledger.rows_naming(block), static_cast<uint32_t>(model.Naming(block)));
    }
  }
  EXPECT_GT(num_good, 1000);
  EXPECT_GT(num_bad, 2000);
}

}  // namespace
}  // namespace reprise::engine
