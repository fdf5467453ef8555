// SPDX-License-Identifier: Apache-2.0
// Rows that share their first blocks, in whole engines: what a declaration may say, and that a row
// goes on as it would alone, to the bit, whoever is in its group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "tests/engine/joint.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::runtime::MatrixUnit;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

constexpr uint32_t kBlockSize = 16, kSharedBlocks = 8, kShared = kSharedBlocks * kBlockSize;
constexpr uint32_t kGroup = 9;

// Rows 1, 2, ... over one prefix, each with some tokens of its own.
class SharingRows {
 public:
  explicit SharingRows(DecodeEngine& engine) : driver(engine) {
    shared = driver.Allocate(kSharedBlocks);
    // Whoever writes the prefix need not stay.
    driver.Step({.add = {{.row = 100, .blocks = shared}},
                 .chunks = {{.row = 100, .tokens = RandomPrompt(1, kShared), .sample = false}}});
    driver.Step({.drop = {100}});
  }

  void Add(uint32_t row) {
    std::vector<uint32_t> blocks = shared;
    for (const uint32_t block : driver.AllocateFor(60)) blocks.push_back(block);
    driver.Step({.add = {{.row = row, .blocks = blocks, .context_length = kShared}},
                 .chunks = {{.row = row, .tokens = RandomPrompt(row, 2 + row)}}});
  }

  EngineDriver driver;
  std::vector<uint32_t> shared;
};

class PrefixGroupTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override { MakeEngine(1); }

  // Skips the test where there is no such device. window: of the second layer; 0: none.
  void MakeEngine(uint32_t min_shared_tokens, int64_t window = 0) {
    TestEngineOptions options{.dtype = GetParam().dtype};
    options.model = {.architecture = "ministral",
                     .hidden_size = 64,
                     .num_layers = 2,
                     .num_heads = 4,
                     .head_dim = 64,
                     .sliding_window = window};
    if (window != 0) options.model.slides = {false, true};
    options.engine.block_size = kBlockSize;
    options.engine.min_shared_tokens = min_shared_tokens;
    options.engine.kv_cache_bytes = uint64_t{16} << 20;
    options.engine.decode_buckets = {4};
    options.engine.mixed_buckets = {256};
    options.engine.max_steps_per_request = 4;
    made_.engine.reset();  // before its device
    auto device = testing::MakeTestDevice(GetParam());
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    made_ = MakeTestEngine(options, *std::move(device));
  }

  // The tokens of `of` over a few steps of rows 1 to 1 + others, in one group or in none.
  std::vector<Token> Serve(uint32_t others, bool grouped, uint32_t of = 1,
                           ExecutionMode mode = ExecutionMode::kReplay) {
    SharingRows rows(*made_.engine);
    StepDraft first{.continue_all = true, .mode = mode};
    StepDraft::Prefix prefix{.group = kGroup, .num_blocks = kSharedBlocks};
    // Row 1 in different places of the group.
    for (uint32_t row = 1 + others; row >= 1; --row) {
      rows.Add(row);
      prefix.rows.push_back(row);
    }
    if (grouped) first.prefixes = {prefix};
    rows.driver.Step(first);
    for (int i = 0; i < 3; ++i) rows.driver.Step({.continue_all = true, .mode = mode});
    return rows.driver.tokens(of);
  }

  bool has_tiles() const { return GetParam().dtype == DType::kBf16; }

  TestEngine made_;
};
INSTANTIATE_TEST_SUITE_P(EveryDevice, PrefixGroupTest,
                         ::testing::Values(KernelTestParam{DeviceKind::kHost, DType::kF32},
                                           KernelTestParam{DeviceKind::kCuda, DType::kBf16},
                                           KernelTestParam{.dtype = DType::kBf16,
                                                           .emulated = MatrixUnit::kMma}),
                         testing::NameOfParam);

TEST_P(PrefixGroupTest, RowsGoOnAsTheyWouldAlone) {
  const std::vector<Token> alone = Serve(2, /*grouped=*/false), got = Serve(2, /*grouped=*/true);
  ASSERT_EQ(got.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(got[i].id, alone[i].id);
    EXPECT_NEAR(got[i].logprob(), alone[i].logprob(), 0.05);
  }
  // Where tiles read the prefix, rounding shows it; elsewhere nothing is done otherwise.
  EXPECT_EQ(got == alone, !has_tiles());
}

TEST_P(PrefixGroupTest, ARowsBitsDoNotDependOnItsGroup) {
  const std::vector<Token> got = Serve(2, /*grouped=*/true);
  EXPECT_EQ(Serve(0, /*grouped=*/true), got);
  EXPECT_EQ(Serve(1, /*grouped=*/true), got);
  EXPECT_EQ(Serve(2, /*grouped=*/true, /*of=*/1, ExecutionMode::kEager), got);
}

// The layer that sees all reads the prefix once; the one whose window has left it does not.
TEST_P(PrefixGroupTest, EveryLayerSharesWhatItSees) {
  MakeEngine(1, /*window=*/100);
  const std::vector<Token> alone = Serve(2, /*grouped=*/false), got = Serve(2, /*grouped=*/true);
  ASSERT_EQ(got.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(got[i].logprob(), alone[i].logprob(), 0.05);
  EXPECT_EQ(got == alone, !has_tiles());
  EXPECT_EQ(Serve(0, /*grouped=*/true), got);
  EXPECT_EQ(Serve(2, /*grouped=*/true, /*of=*/1, ExecutionMode::kEager), got);
}

// Rows that run their last prompt tokens in the first step are members from the second on, as they
// would be in four requests.
TEST_P(PrefixGroupTest, SeveralStepsOfARequestReadItLikewise) {
  const auto serve = [&](uint32_t num_steps) {
    SharingRows rows(*made_.engine);
    rows.Add(1);
    rows.Add(2);
    StepDraft step{.chunks = {{.row = 2, .tokens = {5, 6, 7}}},
                   .continue_rows = {1},
                   .prefixes = {{.group = kGroup, .num_blocks = kSharedBlocks, .rows = {2, 1}}},
                   .num_steps = num_steps};
    rows.driver.Step(step);
    for (uint32_t i = num_steps; i < 4; ++i) rows.driver.Step({.continue_rows = {2, 1}});
    return std::pair(rows.driver.tokens(1), rows.driver.tokens(2));
  };
  EXPECT_EQ(serve(4), serve(1));
  EXPECT_EQ(serve(3), serve(1));
}

std::vector<Token> First(size_t count, const std::vector<Token>& tokens) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

// Rows join and leave a group while others run; a row that has left is attended alone.
// Group numbers are a session's own: rows of two sessions are in one launch, in groups of one
// number.
TEST_P(PrefixGroupTest, GroupsOfTwoSessionsInOneLaunchDoNotMix) {
  const std::vector<Token> alone = Serve(2, /*grouped=*/true);
  SharingRows first(*made_.engine), second(*made_.engine);
  const StepDraft::Prefix of_three{.group = kGroup, .num_blocks = kSharedBlocks, .rows = {3, 2, 1}};
  const StepDraft::Prefix of_one{.group = kGroup, .num_blocks = kSharedBlocks, .rows = {2}};
  for (uint32_t row = 3; row >= 1; --row) first.Add(row);
  second.Add(2);
  std::vector<Token> tokens = first.driver.tokens(1), others = second.driver.tokens(2);
  for (int i = 0; i < 4; ++i) {
    StepDraft mine{.continue_all = true}, theirs{.continue_all = true};
    if (i == 0) {
      mine.prefixes = {of_three};
      theirs.prefixes = {of_one};
    }
    const std::vector<StepResult> results =
        i % 2 == 0 ? Joint({&second.driver, &first.driver}, {theirs, mine}).Run()
                   : Joint({&first.driver, &second.driver}, {mine, theirs}).Run();
    const size_t of_first = i % 2 == 0 ? 1 : 0;
    for (const RowOutcome& row : results[of_first].rows)
      if (row.row == 1) tokens.push_back(testing::TokenOf(row));
    others.push_back(testing::TokenOf(results[1 - of_first].rows.at(0)));
  }
  EXPECT_EQ(tokens, alone);
  EXPECT_EQ(others, Serve(2, /*grouped=*/true, /*of=*/2));
}

TEST_P(PrefixGroupTest, RowsJoinAndLeave) {
  const StepDraft::Prefix none{.rows = {3}};
  const auto group = [](uint32_t row) {
    return StepDraft::Prefix{.group = kGroup, .num_blocks = kSharedBlocks, .rows = {row}};
  };
  SharingRows rows(*made_.engine);
  EngineDriver& driver = rows.driver;
  rows.Add(1);
  rows.Add(2);
  driver.Step({.continue_all = true, .prefixes = {group(2)}});
  rows.Add(3);
  driver.Step({.continue_rows = {3}, .prefixes = {group(3)}});
  // A group lives as long as one of its rows: the number is free again then.
  driver.Step({.drop = {2}, .continue_rows = {3}, .prefixes = {none}});
  // Shorter than any that is read once.
  driver.Step(
      {.continue_rows = {1, 3}, .prefixes = {{.group = kGroup, .num_blocks = 2, .rows = {3}}}});
  driver.Step({.continue_rows = {1, 3}});
  EXPECT_EQ(driver.tokens(1), First(4, Serve(0, /*grouped=*/false)));  // never in a group
  EXPECT_EQ(driver.tokens(2), First(2, Serve(1, /*grouped=*/true, /*of=*/2)));

  const std::vector<Token>& left = driver.tokens(3);
  const std::vector<Token> stayed = Serve(2, /*grouped=*/true, /*of=*/3);
  EXPECT_EQ(First(2, left), First(2, stayed));
  EXPECT_EQ(left == stayed, !has_tiles());
  // As where nobody else is, and no group after it has left.
  SharingRows only(*made_.engine);
  only.Add(3);
  only.driver.Step({.continue_rows = {3}, .prefixes = {group(3)}});
  only.driver.Step({.continue_rows = {3}, .prefixes = {none}});
  only.driver.ContinueAll(2);
  EXPECT_EQ(left, only.driver.tokens(3));
}

TEST_P(PrefixGroupTest, PrefixesAreReadOnceFromTheThresholdOn) {
  const auto told = [&] { return made_.engine->info().limits.min_shared_tokens; };
  MakeEngine(kShared);
  EXPECT_EQ(told(), has_tiles() ? kShared : 0);
  const std::vector<Token> alone = Serve(1, /*grouped=*/false);
  EXPECT_EQ(Serve(1, /*grouped=*/true) == alone, !has_tiles());
  MakeEngine(kShared + 1);
  EXPECT_EQ(told(), has_tiles() ? kShared + 1 : 0);
  EXPECT_EQ(Serve(1, /*grouped=*/true), alone);
}

// Another deal of the same leaves, tiles among them.
TEST_P(PrefixGroupTest, ADealThatIsReplacedBetweenStepsChangesNothing) {
  const std::vector<Token> expected = Serve(1, /*grouped=*/true);
  SharingRows rows(*made_.engine);
  rows.Add(2);
  rows.Add(1);
  StepDraft step{.continue_all = true,
                 .prefixes = {{.group = kGroup, .num_blocks = kSharedBlocks, .rows = {2, 1}}}};
  // Where rows are not dealt, a tree may name no blocks that they are dealt to.
  for (const uint32_t shares : {0u, has_tiles() ? 3u : 0u, has_tiles() ? 1u : 0u, 0u}) {
    ASSERT_OK(made_.engine->SetAttentionTree(absl::StrCat(
        R"({"schema": "reprise-attention-tree/1", "rows": {"leaf": "default"},)",
        R"("batch": {"leaf": "default", "leaf_overhead": 256, "shares": )", shares, "}}")));
    rows.driver.Step(step);
    step.prefixes.clear();
  }
  EXPECT_EQ(rows.driver.tokens(1), expected);
}

TEST_P(PrefixGroupTest, RefusesWhatIsNotShared) {
  using ::reprise::testing::kInvalid;
  using ::reprise::testing::kPrecondition;
  SharingRows rows(*made_.engine);
  EngineDriver& driver = rows.driver;
  rows.Add(1);
  rows.Add(2);
  // Row 3 has other blocks, with the same tokens.
  driver.Step({.add = {{.row = 3, .blocks = driver.AllocateFor(kShared + 40)}},
               .chunks = {{.row = 3, .tokens = RandomPrompt(1, kShared)}}});
  const auto refusal = [&](std::vector<StepDraft::Prefix> prefixes) {
    return driver.TryStep({.continue_all = true, .prefixes = std::move(prefixes)}).status();
  };
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8, .rows = {1, 3}}}),
              StatusIs(kPrecondition, "group 1: row 3 has block"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 9, .rows = {1, 2}}}),
              StatusIs(absl::StatusCode::kOutOfRange, "whole blocks; num_blocks is 9"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 0xffffffffu, .rows = {1}}}),
              StatusIs(absl::StatusCode::kOutOfRange, "num_blocks is 4294967295"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8}}), StatusIs(kInvalid, "gets 0 rows"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 0, .rows = {1}}}),
              StatusIs(kInvalid, "num_blocks is 0; allowed: 0 for group 0"));
  EXPECT_THAT(refusal({{.group = 0, .num_blocks = 8, .rows = {1}}}),
              StatusIs(kInvalid, "num_blocks is 8; allowed: 0 for group 0"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8, .rows = {1, 1}}}),
              StatusIs(kInvalid, "row 1 is named twice"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8, .rows = {1}},
                       {.group = 2, .num_blocks = 8, .rows = {1}}}),
              StatusIs(kInvalid, "row 1 is named twice"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8, .rows = {1}},
                       {.group = 1, .num_blocks = 8, .rows = {2}}}),
              StatusIs(kInvalid, "group 1 is named twice"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8, .rows = {77}}}),
              StatusIs(absl::StatusCode::kNotFound, "row 77"));
  driver.Step({.prefixes = {{.group = 1, .num_blocks = 8, .rows = {1}}}});
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 7, .rows = {2}}}),
              StatusIs(kPrecondition, "num_blocks is 7; allowed: 8, that of row 1"));
  EXPECT_THAT(refusal({{.group = 1, .num_blocks = 8, .rows = {3}}}),
              StatusIs(kPrecondition, "row 1 has block"));
  EXPECT_THAT(driver
                  .TryStep({.add = {{.row = 4,
                                     .blocks = {rows.shared.begin(), rows.shared.begin() + 4},
                                     .context_length = 64}},
                            .prefixes = {{.group = 1, .num_blocks = 8, .rows = {4}}}})
                  .status(),
              StatusIs(absl::StatusCode::kOutOfRange, "row 4 has a context of 64 tokens"));
  // All may be said anew, in a step that changes who stays.
  ASSERT_OK(refusal(
      {{.group = 1, .num_blocks = 7, .rows = {1, 2}}, {.group = 2, .num_blocks = 8, .rows = {3}}}));
}

}  // namespace
}  // namespace reprise::engine
