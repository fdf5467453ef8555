// SPDX-License-Identifier: Apache-2.0
// The tree by which attention's plan decides: given at the start, replaced while steps run.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowPlan;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::reprise::testing::TokenOf;

using ::reprise::testing::kInvalid;
using ::reprise::testing::kPrecondition;

constexpr char kOneLeaf[] = R"({"leaf": "default"})";
// Short rows in splits of 64 tokens, the others in splits of 128.
constexpr char kRows[] = R"({"ask": "visible_tokens", "below": 100,
    "then": {"leaf": "short", "min_split_tokens": 64},
    "else": {"leaf": "long", "min_split_tokens": 128}})";
// The same work, cut and dealt otherwise.
constexpr char kBatch[] = R"({"ask": "batch_rows", "below": 2,
    "then": {"leaf": "one row", "leaf_overhead": 0},
    "else": {"ask": "longest_decode", "below": 60,
             "then": {"leaf": "short rows", "leaf_overhead": 256},
             "else": {"leaf": "long rows", "leaf_overhead": 512}}})";

std::string Text(const char* rows, const char* batch, const char* more = "") {
  return absl::StrCat(R"({"schema": "reprise-attention-tree/1", )", more, R"("rows": )", rows,
                      R"(, "batch": )", batch, "}");
}

class AttentionTreeTest : public testing::EngineTest {
 protected:
  testing::TestEngineOptions LongOptions() const {
    auto options = Options();
    options.model.max_position_embeddings = 1024;
    options.engine.max_context_length = 1024;
    options.engine.mixed_buckets = {64, 512};
    return options;
  }
  TestEngine MakeLongEngine(const std::string& tree, bool batch_invariant = true) const {
    auto options = LongOptions();
    options.engine.attention_tree = tree;
    options.engine.batch_invariant = batch_invariant;
    return MakeTestEngine(options);
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(AttentionTreeTest);

RowPlan Plan(uint32_t row) {
  return {.row = row, .prompt = RandomPrompt(100 + row, 3 + 55 * (row % 4))};
}

TEST_P(AttentionTreeTest, StartsWithTheDefault) {
  const TestEngine tiny = MakeLongEngine("");
  const AttentionTreeInfo info = tiny.engine->attention_tree();
  EXPECT_EQ(info.version, 1u);
  EXPECT_TRUE(info.batch_invariant);
  EXPECT_EQ(info.row_leaves, std::vector<std::string>{"default"});
  EXPECT_EQ(info.batch_leaves, std::vector<std::string>{"default"});
  // What it says is a tree, and the same one.
  EXPECT_OK(tiny.engine->SetAttentionTree(info.text));
  EXPECT_EQ(tiny.engine->attention_tree().text, info.text);
}

TEST_P(AttentionTreeTest, StepsNameTheLeafThatTheyCameTo) {
  const TestEngine tiny = MakeLongEngine(Text(kRows, kBatch));
  EXPECT_EQ(tiny.engine->attention_tree().batch_leaves,
            (std::vector<std::string>{"one row", "short rows", "long rows"}));
  EngineDriver driver(*tiny.engine);
  driver.Start(Plan(0), 40);
  EXPECT_EQ(driver.Step({.continue_rows = {0}}).report.attention_leaf, 0u);
  driver.Start(Plan(4), 40);
  EXPECT_EQ(driver.Step({.continue_rows = {0, 4}}).report.attention_leaf, 1u);
  driver.Start(Plan(2), 40);
  const StepResult& result = driver.Step({.continue_rows = {0, 2}});
  EXPECT_EQ(result.report.attention_leaf, 2u);
  EXPECT_EQ(result.report.attention_tree, 1u);
}

TEST_P(AttentionTreeTest, DecidesForAllLayersWhereTheirWindowsDiffer) {
  auto options = LongOptions();
  options.model.architecture = "ministral";
  options.model.sliding_window = 30;
  options.model.slides = {true, false};
  const auto tree_for = [](uint32_t window) {
    return Text(kRows, kBatch, absl::StrCat(R"("made_for": {"window": )", window, "}, ").c_str());
  };
  options.engine.attention_tree = tree_for(30);
  const TestEngine tiny = MakeTestEngine(options);
  EXPECT_OK(tiny.engine->SetAttentionTree(tree_for(0)));
  EXPECT_THAT(tiny.engine->SetAttentionTree(tree_for(31)).status(),
              StatusIs(kPrecondition, "made for window 31, got 0 and 30"));
  EngineDriver driver(*tiny.engine);
  driver.Start(Plan(0), 40);
  driver.Start(Plan(2), 40);
  // Of the longer row's 113 tokens the layer that slides sees 30.
  EXPECT_EQ(driver.Step({.continue_rows = {0, 2}}).report.attention_leaf, 2u);
}

TEST_P(AttentionTreeTest, RefusesNonsenseAtTheStartAndLater) {
  auto options = LongOptions();
  const TestEngine tiny = MakeTestEngine(options);
  const auto expect_refused = [&](const std::string& text, absl::StatusCode code,
                                  const std::string& words) {
    EXPECT_THAT(tiny.engine->SetAttentionTree(text).status(), StatusIs(code, words));
    options.engine.attention_tree = text;
    models::ModelSource source;
    source.directory = tiny.directory->path();
    EXPECT_THAT(DecodeEngine::Create(*tiny.device, source, options.engine).status(),
                StatusIs(code, words));
  };
  expect_refused("{", kInvalid, "attention tree: not JSON");
  expect_refused(Text(R"({"leaf": "x", "max_splits": 33})", kOneLeaf), kInvalid,
                 "rows: leaf \"x\": max_splits is 33; allowed: 1 to 32");
  expect_refused(Text(kOneLeaf, R"({"leaf": "y", "shares": 100000})"), kInvalid,
                 "batch: leaf \"y\": shares is 100000");
  expect_refused(Text(kOneLeaf, kRows), kInvalid, "batch.then: got key \"min_split_tokens\"");
  expect_refused(Text(kOneLeaf, kOneLeaf, R"("made_for": {"head_dim": 7}, )"), kPrecondition,
                 "made for head_dim 7, got 8");
  expect_refused(Text(kBatch, kOneLeaf), kInvalid, "got key \"leaf_overhead\"");
  expect_refused(Text(R"({"ask": "batch_rows", "below": 4, "then": {"leaf": "a"},
                          "else": {"leaf": "b", "min_split_tokens": 64}})",
                      kOneLeaf),
                 kPrecondition, "rows are asked for a feature of the batch");
  expect_refused(Text(kOneLeaf, kOneLeaf, R"("batch_invariant": false, )"), kPrecondition,
                 "it says that it is not batch invariant");
  EXPECT_EQ(tiny.engine->attention_tree().version, 1u);
}

TEST_P(AttentionTreeTest, TheRowsPartIsThatOfTheStart) {
  const TestEngine tiny = MakeLongEngine(Text(kRows, kOneLeaf));
  EXPECT_THAT(tiny.engine->SetAttentionTree(Text(kOneLeaf, kOneLeaf)).status(),
              StatusIs(kPrecondition, "its part about rows is another"));
  ASSERT_OK_AND_ASSIGN(const uint64_t version, tiny.engine->SetAttentionTree(Text(kRows, kBatch)));
  EXPECT_EQ(version, 2u);
  EXPECT_EQ(tiny.engine->attention_tree().version, 2u);

  const TestEngine free = MakeLongEngine("", /*batch_invariant=*/false);
  EXPECT_OK(free.engine->SetAttentionTree(Text(kRows, kOneLeaf)));
  EXPECT_OK(
      free.engine->SetAttentionTree(Text(R"({"ask": "batch_rows", "below": 4, "then": {"leaf": "a"},
               "else": {"leaf": "b", "min_split_tokens": 64}})",
                                         kOneLeaf, R"("batch_invariant": false, )")));
  EXPECT_EQ(free.engine->attention_tree().version, 3u);
}

// Rows cut otherwise are other bits: that a tree is looked at at all, and from which step on.
TEST_P(AttentionTreeTest, ATreeIsInForceFromTheNextStepOn) {
  const TestEngine tiny = MakeLongEngine("", /*batch_invariant=*/false);
  constexpr char kHundred[] = R"({"leaf": "hundred", "min_split_tokens": 64})";
  const auto generate = [&](const char* first, const char* second) {
    EngineDriver driver(*tiny.engine);
    driver.Start({.row = 1, .prompt = RandomPrompt(7, 500)}, 21);
    EXPECT_OK(tiny.engine->SetAttentionTree(Text(first, kOneLeaf)));
    driver.ContinueAll(10);
    EXPECT_OK(tiny.engine->SetAttentionTree(Text(second, kOneLeaf)));
    driver.ContinueAll(10);
    return driver.tokens(1);
  };
  const std::vector<Token> all = generate(kOneLeaf, kOneLeaf);
  const std::vector<Token> changed = generate(kOneLeaf, kHundred);
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + 11, changed.begin()));
  EXPECT_NE(all, changed);
}

// Four tokens given behind a history of 292, as drafted ones are to be verified, alone or beside
// rows that decode, again and again: what is sampled after each four.
std::vector<Token> Verify(engine::DecodeEngine& engine, bool beside_others) {
  EngineDriver driver(engine);
  StepDraft draft{.chunks = {{.row = 9, .tokens = {5, 6, 7, 8}}}};
  if (beside_others) {
    for (const uint32_t row : {1u, 3u}) driver.Start(Plan(row), 20);
    draft.continue_rows = {3, 1};
  }
  driver.Start({.row = 9, .prompt = RandomPrompt(77, 292)}, 80);
  std::vector<Token> sampled;
  while (sampled.size() < 16) sampled.push_back(TokenOf(driver.Step(draft).rows.front()));
  return sampled;
}

TEST_P(AttentionTreeTest, RowsOfAFewTokensAreCutWhereTheTreeSaysSo) {
  const TestEngine plain = MakeLongEngine("");
  const TestEngine cut = MakeLongEngine(
      Text(R"({"leaf": "cut", "min_split_tokens": 64, "prompt_splits": 8})", kOneLeaf));
  const std::vector<Token> whole = Verify(*plain.engine, false);
  const std::vector<Token> in_splits = Verify(*cut.engine, false);
  EXPECT_NE(in_splits, whole) << "summed in another order";
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(in_splits[i].logprob(), whole[i].logprob(),
                GetParam().dtype == runtime::DType::kF32 ? 1e-4 : 0.1);
  }
  EXPECT_EQ(Verify(*cut.engine, true), in_splits);
}

// Another thread replaces the tree all the time; rows keep their bits, and steps know which tree
// they ran with.
TEST_P(AttentionTreeTest, ReplacingItUnderLoadChangesNoBits) {
  const TestEngine tiny = MakeLongEngine(Text(kRows, kOneLeaf));
  std::vector<std::vector<Token>> alone;
  for (uint32_t row = 0; row < 4; ++row) {
    EngineDriver driver(*tiny.engine);
    alone.push_back(driver.Generate(Plan(row), 30));
  }
  std::atomic<bool> stop = false;
  std::thread replacing([&] {
    while (!stop) {
      for (const char* const batch : {kBatch, kOneLeaf})
        EXPECT_OK(tiny.engine->SetAttentionTree(Text(kRows, batch)));
    }
  });
  uint64_t version = 0;
  // Until the tree has been replaced below the rows, however slow the other thread is.
  for (int life = 0; life < 1000 && version <= 2; ++life) {
    EngineDriver driver(*tiny.engine);
    for (uint32_t row = 0; row < 4; ++row) driver.Start(Plan(row), 30);
    while (driver.tokens(3).size() < 30) {
      StepDraft draft;
      for (uint32_t row = 0; row < 4; ++row)
        if (driver.tokens(row).size() < 30) draft.continue_rows.push_back(row);
      const StepReport report = driver.Step(draft).report;
      EXPECT_GE(report.attention_tree, version);
      version = report.attention_tree;
      // Even versions are kBatch's.
      if (version % 2 == 0) {
        EXPECT_NE(report.attention_leaf, 1u);
      } else {
        EXPECT_EQ(report.attention_leaf, 0u);
      }
    }
    for (uint32_t row = 0; row < 4; ++row) EXPECT_EQ(driver.tokens(row), alone[row]) << row;
  }
  stop = true;
  replacing.join();
  EXPECT_GT(version, 2u);
}

}  // namespace
}  // namespace reprise::engine
