// SPDX-License-Identifier: Apache-2.0
// Requests whose bad rows are refused alone: the others have the bits that they have without them,
// nothing of a refused row changes, and what is no row's fault refuses the whole request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/joint.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using ::reprise::testing::kDenied;
using ::reprise::testing::kExhausted;
using ::reprise::testing::kExists;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

constexpr uint32_t kGood = 1, kSecond = 2, kVictim = 3, kNew = 20, kOtherNew = 21;
constexpr uint32_t kMaxRows = 6, kMaxStepTokens = 32, kRounds = 3;

TestEngine MakeEngine() {
  testing::TestEngineOptions options;
  options.engine.max_rows = kMaxRows;
  options.engine.max_context_length = 64;
  options.engine.max_steps_per_request = 4;
  options.engine.decode_buckets = {1, 4};
  options.engine.mixed_buckets = {16, kMaxStepTokens};
  return MakeTestEngine(options);
}

// Three rows that generate: the victim is wronged, the others go on.
struct Scene {
  explicit Scene(DecodeEngine& engine) : driver(engine) {
    driver.Start({.row = kGood, .prompt = RandomPrompt(1, 5)}, 30);
    driver.Start({.row = kSecond, .prompt = RandomPrompt(2, 6)}, 30);
    driver.Start({.row = kVictim, .prompt = RandomPrompt(3, 7)}, 30);
    own = driver.Allocate(8);
    nobodys = engine.pool().num_blocks - 1;
  }
  std::vector<std::vector<Token>> Tokens() {
    return {driver.tokens(kGood), driver.tokens(kSecond), driver.tokens(kVictim)};
  }
  EngineDriver driver;
  std::vector<uint32_t> own;  // blocks that no row names
  uint32_t nobodys = 0;
};

StepDraft Isolated(StepDraft draft) {
  draft.isolate_bad_rows = true;
  return draft;
}

// The codes of the rows that were refused alone.
std::vector<std::pair<uint32_t, absl::StatusCode>> Codes(const StepResult& result) {
  std::vector<std::pair<uint32_t, absl::StatusCode>> codes;
  for (const RefusedRow& refused : result.refused_rows) {
    EXPECT_THAT(refused.status.message(), HasSubstr(std::to_string(refused.row)));
    codes.emplace_back(refused.row, refused.status.code());
  }
  return codes;
}

std::vector<uint32_t> RowsThatRan(const StepResult& result) {
  std::vector<uint32_t> rows;
  for (const RowOutcome& row : result.rows) rows.push_back(row.row);
  return rows;
}

struct BadRow {
  std::string name;
  uint32_t row;
  absl::StatusCode code;
  // Adds what is wrong to a step that continues the good rows.
  std::function<void(StepDraft&, const Scene&)> spoil;
};
void PrintTo(const BadRow& bad, std::ostream* os) { *os << bad.name; }

class IsolatedRow : public ::testing::TestWithParam<BadRow> {};

TEST_P(IsolatedRow, IsRefusedAloneAndTheOthersHaveTheirBits) {
  const BadRow& bad = GetParam();
  const TestEngine tiny = MakeEngine();
  std::vector<std::vector<Token>> expected;
  {
    Scene scene(*tiny.engine);
    for (uint32_t i = 0; i < kRounds; ++i) {
      scene.driver.Step({.continue_rows = {kGood, kSecond}});
      scene.driver.Step({.continue_rows = {kVictim}});
    }
    expected = scene.Tokens();
  }
  Scene scene(*tiny.engine);
  for (uint32_t i = 0; i < kRounds; ++i) {
    StepDraft draft = {.continue_rows = {kGood, kSecond}};
    bad.spoil(draft, scene);
    EXPECT_EQ(scene.driver.TryStep(draft).status().code(), bad.code);  // without it: all of it
    const uint32_t free_blocks = tiny.engine->pool().free_blocks;
    const StepResult& result = scene.driver.Step(Isolated(draft));
    EXPECT_THAT(Codes(result), ElementsAre(std::pair(bad.row, bad.code)));
    EXPECT_THAT(RowsThatRan(result), ElementsAre(kGood, kSecond));
    EXPECT_EQ(tiny.engine->pool().free_blocks, free_blocks);
    EXPECT_EQ(tiny.engine->num_resident_rows(), 3u);
    // The victim is where it was.
    EXPECT_THAT(scene.driver.Step({.continue_rows = {kVictim}}).refused_rows, IsEmpty());
  }
  EXPECT_EQ(scene.Tokens(), expected);
  // No table kept a block that a refused row named.
  EXPECT_OK(tiny.engine->FreeBlocks(scene.driver.session().id, scene.own));
}

StepDraft::Add AddOf(uint32_t row, std::vector<uint32_t> blocks) {
  return {.row = row, .blocks = std::move(blocks)};
}

INSTANTIATE_TEST_SUITE_P(
    Rows, IsolatedRow,
    ::testing::Values(
        BadRow{"DropOfNone", kNew, kNotFound,
               [](StepDraft& draft, const Scene&) { draft.drop = {kNew}; }},
        BadRow{"DropTwice", kVictim, kInvalid,
               [](StepDraft& draft, const Scene&) {
                 draft.drop = {kVictim, kVictim};
               }},
        BadRow{"AddOfOneThatIsThere", kVictim, kExists,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {AddOf(kVictim, {scene.own[0]})};
               }},
        BadRow{"AddTwice", kNew, kInvalid,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {AddOf(kNew, {scene.own[0]}), AddOf(kNew, {scene.own[1]})};
                 draft.chunks = {{.row = kNew, .tokens = {1, 2}}};
               }},
        BadRow{"ForeignBlock", kNew, kDenied,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {AddOf(kNew, {scene.own[0], scene.nobodys})};
               }},
        BadRow{"SamplingBeyondItsRange", kNew, kInvalid,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {
                     {.row = kNew, .blocks = {scene.own[0]}, .sampling = {.temperature = -1.0f}}};
                 draft.chunks = {{.row = kNew, .tokens = {1, 2}}};
               }},
        BadRow{"ContextThatWasNotWritten", kNew, kPrecondition,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {{.row = kNew, .blocks = {scene.own[0]}, .context_length = 2}};
               }},
        BadRow{"AppendOfNothing", kVictim, kInvalid,
               [](StepDraft& draft, const Scene&) {
                 draft.append = {{.row = kVictim, .blocks = {}}};
               }},
        BadRow{"AppendOfOneBlockTwice", kVictim, kInvalid,
               [](StepDraft& draft, const Scene& scene) {
                 draft.append = {{.row = kVictim, .blocks = {scene.own[0], scene.own[0]}}};
               }},
        BadRow{"MaskOfAWrongSize", kVictim, kInvalid,
               [](StepDraft& draft, const Scene&) {
                 draft.masks = {{.row = kVictim, .allowed_tokens = {std::byte{1}}}};
               }},
        BadRow{"PrefixLongerThanItsContext", kVictim, kRange,
               [](StepDraft& draft, const Scene&) {
                 draft.prefixes = {{.group = 1, .num_blocks = 9, .rows = {kVictim}}};
               }},
        BadRow{"TokenBeyondTheVocabulary", kVictim, kInvalid,
               [](StepDraft& draft, const Scene&) {
                 draft.chunks = {{.row = kVictim, .tokens = {1, 97}}};
               }},
        // The drop and the add before it are the row's too.
        BadRow{"TokenOfARowThatIsReplaced", kVictim, kInvalid,
               [](StepDraft& draft, const Scene& scene) {
                 draft.drop = {kVictim};
                 draft.add = {AddOf(kVictim, {scene.own[0]})};
                 draft.chunks = {{.row = kVictim, .tokens = {97}}};
               }},
        BadRow{"NoTokens", kVictim, kInvalid,
               [](StepDraft& draft, const Scene&) {
                 draft.chunks = {{.row = kVictim, .tokens = {}}};
               }},
        BadRow{"NoRoom", kNew, kRange,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {AddOf(kNew, {scene.own[0]})};
                 draft.chunks = {{.row = kNew, .tokens = {1, 2, 3, 4, 5}}};
               }},
        BadRow{"ChunkAndContinue", kVictim, kInvalid,
               [](StepDraft& draft, const Scene&) {
                 draft.chunks = {{.row = kVictim, .tokens = {1}}};
                 draft.continue_rows.push_back(kVictim);
               }},
        BadRow{"ContinueOfNone", kNew, kNotFound,
               [](StepDraft& draft, const Scene&) { draft.continue_rows.push_back(kNew); }},
        BadRow{"MoreLogprobsThanARowMayHave", kNew, kRange,
               [](StepDraft& draft, const Scene& scene) {
                 draft.add = {
                     {.row = kNew, .blocks = {scene.own[0]}, .sampling = {.num_logprobs = 33}}};
                 draft.chunks = {{.row = kNew, .tokens = {1}}};
               }}),
    [](const auto& info) { return info.param.name; });

// Pipelined schedulers send continue_all: one row that is full must not stop the others.
TEST(IsolatedRows, ARowWithoutRoomDoesNotStopContinueAll) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  scene.driver.Step(
      {.add = {AddOf(kNew, {scene.own[0]})}, .chunks = {{.row = kNew, .tokens = {1, 2, 3, 4}}}});
  EXPECT_THAT(scene.driver.TryStep({.continue_all = true}).status(), StatusIs(kRange, "room"));
  const StepResult& result = scene.driver.Step(Isolated({.continue_all = true}));
  EXPECT_THAT(Codes(result), ElementsAre(std::pair(kNew, kRange)));
  EXPECT_THAT(RowsThatRan(result), ElementsAre(kGood, kSecond, kVictim));
  // With room it goes on, from the token that it sampled.
  EXPECT_THAT(RowsThatRan(scene.driver.Step(
                  {.append = {{.row = kNew, .blocks = {scene.own[1]}}}, .continue_rows = {kNew}})),
              ElementsAre(kNew));
}

TEST(IsolatedRows, OfRowsThatWouldWriteToOneBlockNoneRuns) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  const StepResult& result = scene.driver.Step(
      Isolated({.add = {AddOf(kNew, {scene.own[0]}), AddOf(kOtherNew, {scene.own[0]})},
                .chunks = {{.row = kNew, .tokens = {1}}, {.row = kOtherNew, .tokens = {2}}},
                .continue_rows = {kGood}}));
  EXPECT_THAT(Codes(result), UnorderedElementsAre(std::pair(kNew, kPrecondition),
                                                  std::pair(kOtherNew, kPrecondition)));
  EXPECT_THAT(RowsThatRan(result), ElementsAre(kGood));
}

// The one that shares a block is right once the other is gone.
TEST(IsolatedRows, ARowIsNotRefusedForOneThatIsRefusedItself) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  const StepResult& result = scene.driver.Step(
      Isolated({.add = {AddOf(kNew, {scene.own[0]}), AddOf(kOtherNew, {scene.own[0]})},
                .chunks = {{.row = kNew, .tokens = {1}}, {.row = kOtherNew, .tokens = {97}}}}));
  EXPECT_THAT(Codes(result), ElementsAre(std::pair(kOtherNew, kInvalid)));
  EXPECT_THAT(RowsThatRan(result), ElementsAre(kNew));
}

// A row stays because its drop is refused with its chunk: another may not write to its block.
TEST(IsolatedRows, WhatARefusedRowKeepsIsNobodyElses) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  const uint32_t block = scene.driver.blocks(kVictim)[0];
  const StepResult& result = scene.driver.Step(
      Isolated({.drop = {kVictim},
                .add = {AddOf(kVictim, {scene.own[0]}), AddOf(kNew, {block})},
                .chunks = {{.row = kVictim, .tokens = {97}}, {.row = kNew, .tokens = {1}}},
                .continue_rows = {kGood}}));
  EXPECT_THAT(Codes(result),
              UnorderedElementsAre(std::pair(kVictim, kInvalid), std::pair(kNew, kPrecondition)));
  EXPECT_THAT(RowsThatRan(result), ElementsAre(kGood));
}

TEST(IsolatedRows, ARowThatDiffersFromItsPrefixGroupIsRefusedAlone) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  const StepResult& result = scene.driver.Step(
      Isolated({.continue_rows = {kGood, kVictim},
                .prefixes = {{.group = 4, .num_blocks = 1, .rows = {kGood, kVictim}}}}));
  EXPECT_THAT(Codes(result), ElementsAre(std::pair(kVictim, kPrecondition)));
  EXPECT_THAT(RowsThatRan(result), ElementsAre(kGood));
}

TEST(IsolatedRows, AStepOfBadRowsAloneIsEmptyAndTakesItsNumber) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  const uint64_t sequence = scene.driver.sequence();
  const StepResult& result = scene.driver.Step(Isolated({.continue_rows = {kNew}}));
  EXPECT_THAT(Codes(result), ElementsAre(std::pair(kNew, kNotFound)));
  EXPECT_THAT(result.rows, IsEmpty());
  EXPECT_EQ(scene.driver.sequence(), sequence + 1);
}

TEST(IsolatedRows, LimitsCountTheRowsThatAreLeft) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  StepDraft draft = Isolated({});
  for (uint32_t row = kNew; row < kNew + 3; ++row) draft.add.push_back(AddOf(row, {}));
  draft.add.push_back(AddOf(kNew + 3, {0}));  // one more than there is room for, and bad
  EXPECT_THAT(Codes(scene.driver.Step(draft)), ElementsAre(std::pair(kNew + 3, kRange)));
  EXPECT_EQ(tiny.engine->num_resident_rows(), kMaxRows);
}

TEST(IsolatedRows, WhatIsNoRowsFaultRefusesTheWholeRequest) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  const auto refused = [&](StepDraft draft) {
    draft.isolate_bad_rows = true;
    draft.continue_rows.push_back(kNew);  // a bad row makes no difference
    return scene.driver.TryStep(draft).status();
  };
  EXPECT_THAT(refused({.num_steps = 5}), StatusIs(kRange, "num_steps"));
  EXPECT_THAT(refused({.continue_all = true}), StatusIs(kInvalid, "continue_all"));
  EXPECT_THAT(refused({.prefixes = {{.group = 1, .num_blocks = 0, .rows = {kGood}}}}),
              StatusIs(kInvalid, "num_blocks"));
  StepDraft rows;
  for (uint32_t row = 0; row <= kMaxRows; ++row) rows.add.push_back(AddOf(kNew + row, {}));
  rows.continue_rows = {90};
  rows.isolate_bad_rows = true;
  EXPECT_THAT(scene.driver.TryStep(rows).status(), StatusIs(kExhausted, "max_rows"));
  StepDraft tokens;
  for (const uint32_t row : {kGood, kSecond})
    tokens.chunks.push_back({.row = row, .tokens = std::vector<uint32_t>(17, 1)});
  EXPECT_THAT(refused(tokens), StatusIs(kRange, "query tokens"));
  EXPECT_THAT(RowsThatRan(scene.driver.Step({.continue_all = true})),
              ElementsAre(kGood, kSecond, kVictim));
}

TEST(IsolatedRows, MoreBadRowsThanThereAreRowsRefuseTheWholeRequest) {
  const TestEngine tiny = MakeEngine();
  Scene scene(*tiny.engine);
  StepDraft draft = Isolated({.continue_all = true});
  for (uint32_t i = 0; i < kMaxRows; ++i) draft.drop.push_back(kNew + i);
  EXPECT_EQ(scene.driver.Step(draft).refused_rows.size(), kMaxRows);
  draft.drop.push_back(kNew + kMaxRows);
  EXPECT_THAT(scene.driver.TryStep(draft).status(), StatusIs(kRange, "bad rows: 7"));
  draft.drop.assign(2 * kMaxRows + 1, kNew);
  EXPECT_THAT(scene.driver.TryStep(draft).status(), StatusIs(kRange, "drop: 13 entries"));
}

TEST(IsolatedRows, OfAJointLaunchAreToldToTheirOwnSession) {
  const TestEngine tiny = MakeEngine();
  EngineDriver first(*tiny.engine), second(*tiny.engine);
  first.Start({.row = 1, .prompt = RandomPrompt(1, 5)}, 10);
  second.Start({.row = 1, .prompt = RandomPrompt(2, 5)}, 10);
  Joint joint({&first, &second},
              {Isolated({.continue_rows = {1, 7}}), StepDraft{.continue_rows = {1}}});
  const std::vector<StepResult> results = joint.Run();
  EXPECT_THAT(Codes(results[0]), ElementsAre(std::pair(7u, kNotFound)));
  EXPECT_THAT(RowsThatRan(results[0]), ElementsAre(1u));
  EXPECT_EQ(results[0].report.other_rows, 1u);
  EXPECT_THAT(results[1].refused_rows, IsEmpty());
  EXPECT_THAT(RowsThatRan(results[1]), ElementsAre(1u));
}

}  // namespace
}  // namespace reprise::engine
