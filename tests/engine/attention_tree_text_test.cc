// SPDX-License-Identifier: Apache-2.0
#include "engine/attention_tree_text.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/cases/step_cases.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;

using ::reprise::testing::kInvalid;
using ::reprise::testing::kPrecondition;

constexpr char kText[] = R"({
  "schema": "reprise-attention-tree/1",
  "made_for": {"device": "some GPU", "heads": 32, "kv_heads": 8, "head_dim": 128,
               "block_size": 16, "window": 0, "dtype": "bf16"},
  "rows": {"ask": "visible_tokens", "below": 2048,
           "then": {"leaf": "short", "min_split_tokens": 64},
           "else": {"leaf": "long", "min_split_tokens": 512, "max_splits": 16,
                    "split_multiple": 128, "prompt_q_tokens": 8}},
  "batch": {"ask": "decode_tokens", "below": 100000,
            "then": {"ask": "batch_rows", "below": 4,
                     "then": {"leaf": "few", "shares": 132},
                     "else": {"leaf": "small", "leaf_overhead": 128}},
            "else": {"leaf": "large"}},
  "notes": {"anything": [1, 2]}
})";

AttentionSite Site() {
  return {.device = "some GPU",
          .num_heads = 32,
          .kv = {.num_kv_heads = 8, .head_dim = 128, .block_size = 16}};
}
constexpr kernels::AttentionTreeLimits kLimits = {.num_shares = 264, .max_prompt_q_tokens = 16};

absl::Status Parse(
    std::initializer_list<std::pair<const absl::string_view, absl::string_view>> replace) {
  return ParseAttentionTree(absl::StrReplaceAll(kText, replace)).status();
}

TEST(ParseAttentionTree, ReadsBothTreesAndWhatTheyWereMadeFor) {
  ASSERT_OK_AND_ASSIGN(const NamedAttentionTree named, ParseAttentionTree(kText));
  const kernels::AttentionTree& tree = named.tree;
  EXPECT_EQ(named.row_leaves, (std::vector<std::string>{"short", "long"}));
  EXPECT_EQ(named.batch_leaves, (std::vector<std::string>{"few", "small", "large"}));
  EXPECT_EQ(tree.rows.leaves[0].split, (kernels::SplitRule{64, 32, 64}));
  EXPECT_EQ(tree.rows.leaves[1],
            (kernels::RowChoice{.split = {512, 16, 128}, .prompt_q_tokens = 8}));
  EXPECT_EQ(tree.batch.leaves[0], (kernels::BatchChoice{.shares = 132}));
  EXPECT_EQ(tree.batch.leaves[1], (kernels::BatchChoice{.leaf_overhead = 128}));
  EXPECT_EQ(tree.batch.leaves[2], kernels::BatchChoice{});
  EXPECT_EQ(tree.asks_for_batch, 1u);
  const auto row_leaf = [&](uint32_t visible) {
    return tree.rows.LeafOf([&](kernels::AttentionFeature) { return visible; });
  };
  EXPECT_EQ(row_leaf(2047), 0u);
  EXPECT_EQ(row_leaf(2048), 1u);
  const auto batch_leaf = [&](uint32_t rows, uint32_t tokens) {
    return tree.batch.LeafOf([&](kernels::AttentionFeature feature) {
      return feature == kernels::AttentionFeature::kBatchRows ? rows : tokens;
    });
  };
  EXPECT_EQ(batch_leaf(3, 99999), 0u);
  EXPECT_EQ(batch_leaf(4, 99999), 1u);
  EXPECT_EQ(batch_leaf(3, 100000), 2u);
  EXPECT_OK(CheckTreeFits(named, Site(), kLimits));
}

TEST(ParseAttentionTree, ReadsBackWhatWasWritten) {
  for (const bool batch_invariant : {true, false}) {
    NamedAttentionTree named{.tree = kernels::BushyTree(batch_invariant),
                             .row_leaves = {"a", "b", "c", "d"},
                             .batch_leaves = {"v", "w", "x", "y", "z"},
                             .batch_invariant = batch_invariant,
                             .device = "host",
                             .block_size = 16,
                             .dtype = runtime::DType::kF16};
    const std::string text = AttentionTreeText(named, R"({"regret": 0.01})");
    ASSERT_OK_AND_ASSIGN(const NamedAttentionTree read, ParseAttentionTree(text));
    // Leaves and nodes may be in another order; the text is the same then.
    EXPECT_EQ(AttentionTreeText(read, R"({"regret": 0.01})"), text);
    EXPECT_EQ(read.device, "host");
    EXPECT_FALSE(read.num_heads.has_value());
    EXPECT_EQ(read.dtype, runtime::DType::kF16);
    EXPECT_EQ(read.batch_invariant, batch_invariant);
  }
  ASSERT_OK_AND_ASSIGN(const NamedAttentionTree standard,
                       ParseAttentionTree(AttentionTreeText(NamedAttentionTree())));
  EXPECT_EQ(standard.tree, kernels::AttentionTree());
}

TEST(ParseAttentionTree, RefusesNonsenseByName) {
  EXPECT_THAT(ParseAttentionTree("").status(), StatusIs(kInvalid, "attention tree: not JSON"));
  EXPECT_THAT(ParseAttentionTree("[1]").status(), StatusIs(kInvalid, "allowed a JSON object"));
  EXPECT_THAT(ParseAttentionTree("{}").status(), StatusIs(kInvalid, "schema: got nothing"));
  EXPECT_THAT(ParseAttentionTree(std::string((64 << 10) + 1, ' ')).status(),
              StatusIs(kInvalid, "got 65537 bytes, allowed 65536"));
  EXPECT_THAT(Parse({{"tree/1", "tree/2"}}),
              StatusIs(kInvalid, "schema: got \"reprise-attention-tree/2\", allowed"));
  EXPECT_THAT(Parse({{"\"notes\"", "\"remarks\""}}), StatusIs(kInvalid, "got key \"remarks\""));
  EXPECT_THAT(Parse({{"visible_tokens", "visible_token"}}),
              StatusIs(kInvalid, "rows.ask: got \"visible_token\", allowed visible_tokens, query"));
  EXPECT_THAT(Parse({{"2048", "0"}}), StatusIs(kInvalid, "rows.below: got 0, allowed an integer"));
  EXPECT_THAT(Parse({{"2048", "4294967296"}}), StatusIs(kInvalid, "rows.below: got 4294967296"));
  EXPECT_THAT(Parse({{"2048", "2048.5"}}), StatusIs(kInvalid, "rows.below: got 2048.5"));
  EXPECT_THAT(Parse({{"\"then\": {\"leaf\": \"few\"", "\"than\": {\"leaf\": \"few\""}}),
              StatusIs(kInvalid, "batch.then: got key \"than\", allowed ask, below, then, else"));
  EXPECT_THAT(Parse({{"\"else\": {\"leaf\": \"large\"}", "\"else\": null"}}),
              StatusIs(kInvalid, "batch.else: got nothing, allowed a node or a leaf"));
  EXPECT_THAT(Parse({{"{\"leaf\": \"large\"}", "7"}}),
              StatusIs(kInvalid, "batch.else: got 7, allowed a node or a leaf"));
  EXPECT_THAT(Parse({{"\"leaf\": \"few\"", "\"leaf\": \"small\""}}),
              StatusIs(kInvalid, "batch.then.else.leaf: got \"small\", allowed a name of its own"));
  EXPECT_THAT(Parse({{"\"leaf\": \"few\", ", ""}}),
              StatusIs(kInvalid, "batch.then.then.leaf: got nothing, allowed a name"));
  EXPECT_THAT(
      Parse({{"\"shares\": 132", "\"blocks\": 132"}}),
      StatusIs(kInvalid, "batch.then.then: got key \"blocks\", allowed leaf, shares, leaf_ov"));
  EXPECT_THAT(Parse({{"\"max_splits\": 16", "\"max_splits\": -1"}}),
              StatusIs(kInvalid, "rows.else.max_splits: got -1"));
  EXPECT_THAT(Parse({{"\"heads\": 32", "\"heads\": \"many\""}}),
              StatusIs(kInvalid, "made_for.heads: got \"many\""));
  EXPECT_THAT(Parse({{"\"bf16\"", "\"bf8\""}}),
              StatusIs(kInvalid, "made_for.dtype: got \"bf8\", allowed bf16, f16, f32"));
  EXPECT_THAT(Parse({{"\"block_size\"", "\"page_size\""}}),
              StatusIs(kInvalid, "made_for: got key \"page_size\""));
  EXPECT_THAT(Parse({{"\"rows\": {", "\"rows\": [{"}, {"\"batch\"", "}], \"batch\""}}).code(),
              kInvalid);
}

// A chain of nodes: as many as there is room for, and one more.
TEST(ParseAttentionTree, RefusesTreesThatAreTooLarge) {
  const auto chain = [](int nodes) {
    std::string tree = R"({"leaf": "last"})";
    for (int i = 0; i < nodes; ++i)
      tree = absl::StrCat(R"({"ask": "query_tokens", "below": 3, "then": {"leaf": "l)", i,
                          R"("}, "else": )", tree, "}");
    return absl::StrCat(
        R"({"schema": "reprise-attention-tree/1", "batch": {"leaf": "all"}, "rows": )", tree, "}");
  };
  EXPECT_OK(ParseAttentionTree(chain(15)).status());
  EXPECT_THAT(ParseAttentionTree(chain(16)).status(),
              StatusIs(kInvalid, "got one more node, allowed 15"));
  EXPECT_THAT(ParseAttentionTree(chain(100)).status(),
              StatusIs(kInvalid, "nests deeper than allowed"));
}

TEST(CheckTreeFits, RefusesATreeThatWasMadeForSomethingElse) {
  ASSERT_OK_AND_ASSIGN(const NamedAttentionTree named, ParseAttentionTree(kText));
  AttentionSite site = Site();
  site.device = "host";
  EXPECT_THAT(CheckTreeFits(named, site, kLimits),
              StatusIs(kPrecondition, "made for device 'some GPU', got 'host'"));
  site = Site();
  site.num_heads = 16;
  EXPECT_THAT(CheckTreeFits(named, site, kLimits),
              StatusIs(kPrecondition, "made for heads 32, got 16"));
  site = Site();
  site.kv.block_size = 32;
  EXPECT_THAT(CheckTreeFits(named, site, kLimits),
              StatusIs(kPrecondition, "made for block_size 16, got 32"));
  site = Site();
  site.windows = {4096, 8192};
  EXPECT_THAT(CheckTreeFits(named, site, kLimits),
              StatusIs(kPrecondition, "made for window 0, got 4096 and 8192"));
  site = Site();
  site.windows = {4096, 0};  // of some of its layers
  EXPECT_OK(CheckTreeFits(named, site, kLimits));
  site = Site();
  site.kv.dtype = runtime::DType::kF16;
  EXPECT_THAT(CheckTreeFits(named, site, kLimits),
              StatusIs(kPrecondition, "made for dtype bf16, got f16"));
  kernels::AttentionTreeLimits few = kLimits;
  few.num_shares = 100;
  EXPECT_THAT(CheckTreeFits(named, Site(), few),
              StatusIs(kInvalid, "batch: leaf \"few\": shares is 132; allowed: 0 to 100"));
}

TEST(CheckTreeFits, BindsATreeByWhatItSaysOfItself) {
  NamedAttentionTree named{.tree = kernels::BushyTree(/*batch_invariant=*/false),
                           .row_leaves = {"a", "b", "c", "d"},
                           .batch_leaves = {"v", "w", "x", "y", "z"}};
  kernels::AttentionTreeLimits limits = kLimits;
  limits.batch_invariant = false;
  EXPECT_THAT(CheckTreeFits(named, Site(), limits),
              StatusIs(kPrecondition, "rows are asked for a feature of the batch"));
  named.batch_invariant = false;
  EXPECT_OK(CheckTreeFits(named, Site(), limits));
  EXPECT_THAT(CheckTreeFits(named, Site(), kLimits),
              StatusIs(kPrecondition, "it says that it is not batch invariant"));
}

}  // namespace
}  // namespace reprise::engine
