// SPDX-License-Identifier: Apache-2.0
// Every refusal that DecodeEngine's header lists. Each leaves rows, blocks and sequence numbers as
// they were: what is sampled afterwards equals, to the bit, a run that never saw the bad request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::Not;

using ::reprise::testing::kDenied;
using ::reprise::testing::kExhausted;
using ::reprise::testing::kExists;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

constexpr uint32_t kVocab = 97, kMaxContext = 64, kMaxBlocks = 16, kMaxStepTokens = 32;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows of the session that is refused.
constexpr uint32_t kGenerates = 3;  // 9 tokens in three blocks of four
constexpr uint32_t kPrefills = 4;   // between two chunks: has no token to go on from
constexpr uint32_t kFull = 8;       // its one block is full
constexpr uint32_t kNew = 20;       // not there

// A session with the rows above beside another one.
class Scene {
 public:
  explicit Scene(DecodeEngine& engine) : driver(engine), other(engine) {
    driver.Start({.row = kGenerates, .prompt = RandomPrompt(1, 9)}, 1);
    table = driver.blocks(kGenerates);
    prefill_prompt_ = RandomPrompt(2, 40);
    driver.Step({.add = {{.row = kPrefills,
                          .blocks = driver.AllocateFor(60),
                          .sampling = {.temperature = 0.9f, .seed = 6}}},
                 .chunks = {{.row = kPrefills, .tokens = PrefillPart(0), .sample = false}}});
    driver.Start({.row = kFull, .prompt = RandomPrompt(3, 4)}, 1);
    other.Start({.row = kGenerates, .prompt = RandomPrompt(4, 6)}, 40);
    own = driver.Allocate(20);
    others = other.Allocate(3);
    others_table = other.blocks(kGenerates);
    num_blocks = engine.pool().num_blocks;
    free_blocks = engine.pool().free_blocks;
  }

  // A good step of both sessions.
  void GoOn() {
    ++steps_;
    driver.Step(
        {.append = {{.row = kGenerates, .blocks = driver.Allocate(1)}},
         .chunks = {{.row = kPrefills, .tokens = PrefillPart(steps_), .sample = steps_ == 4}},
         .continue_rows = {kGenerates}});
    other.Step({.continue_all = true});
    --free_blocks;
  }
  std::vector<std::vector<Token>> Tokens() {
    return {driver.tokens(kGenerates), driver.tokens(kPrefills), driver.tokens(kFull),
            other.tokens(kGenerates)};
  }
  // An id that nobody holds: the ledger hands out the lowest first.
  uint32_t free_block() const { return num_blocks - 1; }

  EngineDriver driver, other;
  std::vector<uint32_t> table;   // of kGenerates, at first
  std::vector<uint32_t> own;     // blocks of the session that no row names
  std::vector<uint32_t> others;  // of the other session, and what its row's table names
  std::vector<uint32_t> others_table;
  uint32_t num_blocks = 0, free_blocks = 0;

 private:
  std::vector<uint32_t> PrefillPart(int step) const {
    const auto begin = prefill_prompt_.begin() + 7 * step;
    return {begin, begin + 7};
  }
  std::vector<uint32_t> prefill_prompt_;
  int steps_ = 0;
};

struct BadStep {
  std::string name;
  absl::StatusCode code;
  std::function<void(StepDraft&, const Scene&)> spoil;
  std::function<void(StepRequest&, const Scene&)> misaddress = {};
};
void PrintTo(const BadStep& bad, std::ostream* os) { *os << bad.name; }

class RefusalTest : public ::testing::TestWithParam<std::tuple<testing::KernelTestParam, BadStep>> {
};

TestEngine MakeRefusalEngine(const testing::KernelTestParam& param) {
  testing::TestEngineOptions options{.device = {.kind = param.device}, .dtype = param.dtype};
  options.engine.max_rows = 6;
  options.engine.max_context_length = kMaxContext;
  options.engine.decode_buckets = {1, 4};
  options.engine.mixed_buckets = {16, kMaxStepTokens};
  return MakeTestEngine(options);
}

TEST_P(RefusalTest, ChangesNothing) {
  const auto& [param, bad] = GetParam();
  if (const std::string why = testing::WhyNoDevice(param.device); !why.empty()) GTEST_SKIP() << why;
  const TestEngine tiny = MakeRefusalEngine(param);
  std::vector<std::vector<Token>> expected;
  {
    Scene scene(*tiny.engine);
    for (int i = 0; i < 4; ++i) scene.GoOn();
    expected = scene.Tokens();
  }
  Scene scene(*tiny.engine);
  for (int i = 0; i < 4; ++i) {
    StepDraft draft;
    bad.spoil(draft, scene);
    DraftView view(draft, scene.driver.session(), scene.driver.sequence());
    if (bad.misaddress) bad.misaddress(view.request(), scene);
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto ticket = tiny.engine->Submit(view.request());
      ASSERT_EQ(ticket.status().code(), bad.code) << ticket.status().ToString();
      EXPECT_THAT(ticket.status().message(), Not(::testing::IsEmpty()));
      EXPECT_EQ(tiny.engine->pool().free_blocks, scene.free_blocks);
    }
    scene.GoOn();
  }
  EXPECT_EQ(scene.Tokens(), expected);
  // No table kept a block that a refused step named.
  EXPECT_OK(tiny.engine->FreeBlocks(scene.driver.session().id, scene.own));
  EXPECT_OK(tiny.engine->FreeBlocks(scene.other.session().id, scene.others));
  EXPECT_OK(tiny.engine->health());
}

std::string RefusalName(
    const ::testing::TestParamInfo<std::tuple<testing::KernelTestParam, BadStep>>& info) {
  return std::get<1>(info.param).name + "_" + ::testing::PrintToString(std::get<0>(info.param));
}

#define REFUSALS(suite, ...)                                                                \
  INSTANTIATE_TEST_SUITE_P(                                                                 \
      suite, RefusalTest,                                                                   \
      ::testing::Combine(                                                                   \
          ::testing::Values(                                                                \
              testing::KernelTestParam{runtime::DeviceKind::kHost, runtime::DType::kF32},   \
              testing::KernelTestParam{runtime::DeviceKind::kCuda, runtime::DType::kBf16}), \
          ::testing::Values(__VA_ARGS__)),                                                  \
      RefusalName)

// Adds the new row with these blocks and runs one token.
void AddAndRun(StepDraft& d, std::vector<uint32_t> blocks, uint32_t context_length = 0) {
  d.add.push_back({.row = kNew, .blocks = std::move(blocks), .context_length = context_length});
  d.chunks.push_back({.row = kNew, .tokens = {1}});
}

REFUSALS(
    Blocks, BadStep{"ScratchBlock", kRange, [](auto& d, auto&) { AddAndRun(d, {0}); }},
    BadStep{"BlockBeyondThePool", kRange,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.own[0], s.num_blocks});
            }},
    BadStep{"BlockFarBeyondThePool", kRange, [](auto& d, auto&) { AddAndRun(d, {0xffffffffu}); }},
    BadStep{"BlockOfAnotherSession", kDenied,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.own[0], s.others[1]});
            }},
    BadStep{"BlockInATableOfAnotherSession", kDenied,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.own[0]});
              d.add.push_back({.row = kNew + 1, .blocks = {s.others_table[0]}});
            }},
    BadStep{"FreeBlock", kDenied, [](auto& d, auto& s) { AddAndRun(d, {s.free_block()}); }},
    BadStep{"BlockTwiceInOneAdd", kInvalid,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.own[0], s.own[1], s.own[0]});
            }},
    BadStep{"BlockTwiceAcrossAddAndAppend", kInvalid,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.own[0], s.own[1]});
              d.append.push_back({.row = kNew, .blocks = {s.own[2], s.own[1]}});
            }},
    BadStep{"BlockTwiceInOneAppend", kInvalid,
            [](auto& d, auto& s) {
              d.append.push_back({.row = kGenerates, .blocks = {s.own[0], s.own[0]}});
            }},
    BadStep{"AppendedBlockIsInTheTableAlready", kInvalid,
            [](auto& d, auto& s) {
              d.append.push_back({.row = kGenerates, .blocks = {s.own[0], s.table[1]}});
            }},
    BadStep{"SharedPrefixNamesABlockTwice", kInvalid,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.table[0], s.table[0], s.own[0]}, 8);
            }},
    BadStep{"SharedPrefixIsAppendedAgain", kInvalid,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.table[0], s.own[0]}, 4);
              d.append.push_back({.row = kNew, .blocks = {s.table[0]}});
            }},
    BadStep{"AppendedScratchBlock", kRange,
            [](auto& d, auto&) { d.append.push_back({.row = kGenerates, .blocks = {0}}); }},
    BadStep{"AppendedBlockOfAnotherSession", kDenied,
            [](auto& d, auto& s) {
              d.append.push_back({.row = kGenerates, .blocks = {s.own[3], s.others[0]}});
            }},
    BadStep{"AppendOfNothing", kInvalid,
            [](auto& d, auto&) { d.append.push_back({.row = kGenerates}); }},
    BadStep{"AppendTwice", kInvalid,
            [](auto& d, auto& s) {
              d.append.push_back({.row = kGenerates, .blocks = {s.own[0]}});
              d.append.push_back({.row = kGenerates, .blocks = {s.own[1]}});
            }},
    BadStep{
        "TableLongerThanTheLimit", kRange,
        [](auto& d, auto& s) {
          d.add.push_back({.row = kNew, .blocks = {s.own.begin(), s.own.begin() + kMaxBlocks + 1}});
        }},
    BadStep{"TableAppendedBeyondTheLimit", kRange, [](auto& d, auto& s) {
              d.append.push_back(
                  {.row = kGenerates, .blocks = {s.own.begin(), s.own.begin() + kMaxBlocks}});
            }});

REFUSALS(SharedBlocks,
         BadStep{"RowAppendsToABlockOfAnother", kPrecondition,
                 [](auto& d, auto& s) {
                   AddAndRun(d, {s.table[0], s.table[1], s.table[2]}, 9);
                 }},
         BadStep{"OtherRowAppendsToABlockThatANewOneReads", kPrecondition,
                 [](auto& d, auto& s) {
                   d.add.push_back({.row = kNew, .blocks = {s.own[0]}});
                   d.add.push_back({.row = kNew + 1, .blocks = {s.own[0]}, .context_length = 2});
                   d.chunks.push_back({.row = kNew, .tokens = {1}});
                 }},
         BadStep{"RowOverwritesABlockThatAnotherReads", kPrecondition,
                 [](auto& d, auto& s) {
                   AddAndRun(d, {s.table[0], s.own[0]});
                 }},
         BadStep{"ChunkReachesIntoASharedBlock", kPrecondition, [](auto& d, auto& s) {
                   d.add.push_back({.row = kNew, .blocks = {s.own[0], s.table[0]}});
                   d.chunks.push_back({.row = kNew, .tokens = {1, 2, 3, 4, 5}});
                 }});

REFUSALS(
    Contexts,
    BadStep{"ChunkBeyondTheTable", kRange,
            [](auto& d, auto& s) {
              d.add.push_back({.row = kNew, .blocks = {s.own[0], s.own[1]}});
              d.chunks.push_back({.row = kNew, .tokens = std::vector<uint32_t>(9, 1)});
            }},
    BadStep{"ChunkOfARowWithoutBlocks", kRange, [](auto& d, auto&) { AddAndRun(d, {}); }},
    BadStep{"ContinueBeyondTheTable", kRange, [](auto& d, auto&) { d.continue_rows = {kFull}; }},
    BadStep{"ContinueAllWithARowBeyondItsTable", kRange,
            [](auto& d, auto&) { d.continue_all = true; }},
    BadStep{"ChunkBeyondTheLimit", kRange,
            [](auto& d, auto& s) {
              d.add.push_back({.row = kNew,
                               .blocks = {s.own.begin(), s.own.begin() + kMaxBlocks},
                               .context_length = kMaxContext - 3});
              d.chunks.push_back({.row = kNew, .tokens = {1, 2, 3, 4}});
            }},
    BadStep{"ContextLengthBeyondTheTable", kRange,
            [](auto& d, auto& s) { AddAndRun(d, {s.own[0]}, 5); }},
    BadStep{"ContextLengthAtTheLimit", kRange,
            [](auto& d, auto& s) {
              AddAndRun(d, {s.own.begin(), s.own.begin() + kMaxBlocks}, kMaxContext);
            }},
    BadStep{"ContextLengthFarBeyond", kRange,
            [](auto& d, auto& s) { AddAndRun(d, {s.own[0]}, 0xffffffffu); }},
    BadStep{"OneChunkAboveTheLargestBucket", kRange,
            [](auto& d, auto& s) {
              d.add.push_back({.row = kNew, .blocks = {s.own.begin(), s.own.begin() + kMaxBlocks}});
              d.chunks.push_back(
                  {.row = kNew, .tokens = std::vector<uint32_t>(kMaxStepTokens + 1, 1)});
            }},
    BadStep{"ChunksTogetherAboveTheLargestBucket", kRange, [](auto& d, auto& s) {
              d.add.push_back({.row = kNew, .blocks = {s.own.begin(), s.own.begin() + 8}});
              d.chunks.push_back({.row = kNew, .tokens = std::vector<uint32_t>(30, 1)});
              d.chunks.push_back({.row = kPrefills, .tokens = {1, 2}});
              d.continue_rows = {kGenerates};
            }});

REFUSALS(Rows,
         BadStep{"UnknownRowInChunk", kNotFound,
                 [](auto& d, auto&) { d.chunks.push_back({.row = 77, .tokens = {1}}); }},
         BadStep{"UnknownRowInContinue", kNotFound, [](auto& d, auto&) { d.continue_rows = {77}; }},
         BadStep{"UnknownRowInDrop", kNotFound,
                 [](auto& d, auto&) {
                   d.drop = {kGenerates, 77};
                 }},
         BadStep{"UnknownRowInAppend", kNotFound,
                 [](auto& d, auto& s) { d.append.push_back({.row = 77, .blocks = {s.own[0]}}); }},
         BadStep{"DroppedRowInChunk", kNotFound,
                 [](auto& d, auto&) {
                   d.drop = {kGenerates};
                   d.chunks.push_back({.row = kGenerates, .tokens = {1}});
                 }},
         BadStep{"DroppedRowInContinue", kNotFound,
                 [](auto& d, auto&) {
                   d.drop = {kGenerates};
                   d.continue_rows = {kGenerates};
                 }},
         BadStep{"DroppedRowInAppend", kNotFound,
                 [](auto& d, auto& s) {
                   d.drop = {kGenerates};
                   d.append.push_back({.row = kGenerates, .blocks = {s.own[0]}});
                 }},
         BadStep{"DropTwice", kInvalid,
                 [](auto& d, auto&) {
                   d.drop = {kGenerates, kGenerates};
                 }},
         BadStep{
             "AddOfAResidentRow", kExists,
             [](auto& d, auto& s) { d.add.push_back({.row = kPrefills, .blocks = {s.own[0]}}); }},
         BadStep{"AddTwice", kInvalid,
                 [](auto& d, auto& s) {
                   d.add.push_back({.row = kNew, .blocks = {s.own[0]}});
                   d.add.push_back({.row = kNew, .blocks = {s.own[1]}});
                 }},
         BadStep{"MoreRowsThanMaxRows", kExhausted,
                 [](auto& d, auto& s) {
                   // Four of six are resident, over both sessions.
                   for (uint32_t i = 0; i < 3; ++i)
                     d.add.push_back({.row = kNew + i, .blocks = {s.own[i]}});
                 }},
         BadStep{"MoreRowsThanMaxRowsDespiteADrop", kExhausted,
                 [](auto& d, auto&) {
                   d.drop = {kFull};
                   for (uint32_t i = 0; i < 4; ++i) d.add.push_back({.row = kNew + i});
                 }},
         BadStep{"ChunkTwice", kInvalid,
                 [](auto& d, auto&) {
                   d.chunks.push_back({.row = kPrefills, .tokens = {1}});
                   d.chunks.push_back({.row = kPrefills, .tokens = {2}});
                 }},
         BadStep{"ContinueTwice", kInvalid,
                 [](auto& d, auto&) {
                   d.continue_rows = {kGenerates, kGenerates};
                 }},
         BadStep{"ChunkAndContinue", kInvalid,
                 [](auto& d, auto&) {
                   d.chunks.push_back({.row = kGenerates, .tokens = {1}});
                   d.continue_rows = {kGenerates};
                 }},
         BadStep{"ContinueAllAndRowsByName", kInvalid,
                 [](auto& d, auto&) {
                   d.continue_all = true;
                   d.continue_rows = {kGenerates};
                 }},
         BadStep{"ContinueOfARowBetweenChunks", kPrecondition,
                 [](auto& d, auto&) {
                   d.continue_rows = {kGenerates, kPrefills};
                 }},
         BadStep{"ContinueOfAnAddedRow", kPrecondition,
                 [](auto& d, auto& s) {
                   d.add.push_back({.row = kNew, .blocks = {s.own[0]}});
                   d.continue_rows = {kNew};
                 }},
         BadStep{"EmptyStep", kInvalid, [](auto&, auto&) {}});

REFUSALS(Values,
         BadStep{"TokenIdOfTheVocabularysSize", kInvalid,
                 [](auto& d, auto&) {
                   d.chunks.push_back({.row = kPrefills, .tokens = {kVocab - 1, kVocab}});
                 }},
         BadStep{"TokenIdFarBeyond", kInvalid,
                 [](auto& d, auto&) {
                   d.chunks.push_back({.row = kPrefills, .tokens = {0xffffffffu}});
                 }},
         BadStep{"ZeroTokens", kInvalid,
                 [](auto& d, auto&) { d.chunks.push_back({.row = kPrefills}); }},
         BadStep{"NanTemperature", kInvalid,
                 [](auto& d, auto& s) {
                   AddAndRun(d, {s.own[0]});
                   d.add[0].sampling.temperature = kNan;
                 }},
         BadStep{"InfiniteTemperature", kInvalid,
                 [](auto& d, auto& s) {
                   AddAndRun(d, {s.own[0]});
                   d.add[0].sampling.temperature = kInfinity;
                 }},
         BadStep{"NegativeTemperature", kInvalid,
                 [](auto& d, auto& s) {
                   AddAndRun(d, {s.own[0]});
                   d.add[0].sampling.temperature = -1e-30f;
                 }},
         BadStep{"NegativeInfiniteTemperature", kInvalid, [](auto& d, auto& s) {
                   AddAndRun(d, {s.own[0]});
                   d.add[0].sampling.temperature = -kInfinity;
                 }});

void Good(StepDraft& d, const Scene&) { d.continue_rows = {kGenerates}; }

REFUSALS(Order, BadStep{"WrongEpoch", kPrecondition, Good, [](auto& r, auto&) { ++r.epoch; }},
         BadStep{"NoEpoch", kPrecondition, Good, [](auto& r, auto&) { r.epoch = 0; }},
         BadStep{"EpochOfAnotherSession", kPrecondition, Good,
                 [](auto& r, auto& s) { r.epoch = s.other.session().epoch; }},
         BadStep{"SequenceZero", kPrecondition, Good, [](auto& r, auto&) { r.sequence = 0; }},
         BadStep{"SequenceRepeated", kPrecondition, Good, [](auto& r, auto&) { --r.sequence; }},
         BadStep{"SequenceSkipped", kPrecondition, Good, [](auto& r, auto&) { ++r.sequence; }},
         BadStep{"SequenceFarAhead", kPrecondition, Good,
                 [](auto& r, auto&) { r.sequence = std::numeric_limits<uint64_t>::max(); }},
         BadStep{"UnknownSession", kNotFound, Good, [](auto& r, auto&) { r.session = 1234567; }},
         BadStep{"SessionZero", kNotFound, Good, [](auto& r, auto&) { r.session = 0; }});

// ---- steps that are good but for the graphs ----

class BucketRefusalTest : public testing::EngineTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(BucketRefusalTest);

// Decode graphs take eight rows, mixed ones four tokens: five tokens of which three are one row's
// have no graph, though there are buckets above five.
TEST_P(BucketRefusalTest, StepThatNoGraphFitsChangesNothing) {
  auto options = Options();
  options.engine.decode_buckets = {8};
  options.engine.mixed_buckets = {4};
  const TestEngine tiny = MakeTestEngine(options);
  std::vector<Token> expected;
  for (const bool with_bad : {false, true}) {
    EngineDriver driver(*tiny.engine);
    StepDraft start;
    for (uint32_t row = 0; row < 3; ++row) {
      start.add.push_back({.row = row, .blocks = driver.AllocateFor(20)});
      start.chunks.push_back({.row = row, .tokens = {row}});
    }
    driver.Step(start);
    const std::vector<uint32_t> own = driver.Allocate(3);
    for (int i = 0; i < 3; ++i) {
      if (with_bad) {
        EXPECT_THAT(driver.TryStep({.drop = {2},
                                    .add = {{.row = 7, .blocks = own}},
                                    .chunks = {{.row = 7, .tokens = {1, 2, 3}}},
                                    .continue_all = true}),
                    StatusIs(kRange, "5 query tokens in 3 rows; allowed: at most 4"));
      }
      driver.Step({.continue_all = true});
    }
    if (!with_bad) expected = driver.tokens(2);
    EXPECT_EQ(driver.tokens(2), expected);
    EXPECT_EQ(expected.size(), 4u);
    driver.Free(own);
  }
}

// ---- blocks, outside of steps ----

class BlockRefusalTest : public testing::EngineTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(BlockRefusalTest);

TEST_P(BlockRefusalTest, FreeAndAllocateAreAllOrNothing) {
  const TestEngine tiny = MakeRefusalEngine(GetParam());
  DecodeEngine& engine = *tiny.engine;
  std::vector<std::vector<Token>> expected;
  {
    Scene scene(engine);
    for (int i = 0; i < 4; ++i) scene.GoOn();
    expected = scene.Tokens();
  }
  Scene scene(engine);
  const SessionId session = scene.driver.session().id;
  const auto free = [&](std::vector<uint32_t> blocks) {
    return engine.FreeBlocks(session, blocks);
  };
  EXPECT_THAT(free({scene.own[0], scene.table[1]}), StatusIs(kPrecondition, "resident row"));
  EXPECT_THAT(free({scene.own[0], scene.others[0]}), StatusIs(kDenied, "another session"));
  EXPECT_THAT(free({scene.own[0], scene.own[1], scene.own[0]}), StatusIs(kInvalid, "twice"));
  EXPECT_THAT(free({scene.own[0], 0}), StatusIs(kRange, "block 0"));
  EXPECT_THAT(free({scene.own[0], scene.num_blocks}), StatusIs(kRange, "does not exist"));
  EXPECT_THAT(free({scene.free_block()}), StatusIs(kDenied, "it is free"));
  EXPECT_EQ(engine.pool().free_blocks, scene.free_blocks);
  ASSERT_OK(free({scene.own[19]}));
  EXPECT_THAT(free({scene.own[19]}), StatusIs(kDenied, "it is free"));
  EXPECT_THAT(engine.AllocateBlocks(session, 0), StatusIs(kInvalid, "0 blocks"));
  EXPECT_THAT(engine.AllocateBlocks(session, scene.free_blocks + 2),
              StatusIs(kExhausted, "are free"));
  EXPECT_THAT(engine.AllocateBlocks(999, 1), StatusIs(kNotFound, "session 999"));
  EXPECT_EQ(engine.pool().free_blocks, scene.free_blocks + 1);
  ASSERT_OK_AND_ASSIGN(const auto all, engine.AllocateBlocks(session, scene.free_blocks + 1));
  EXPECT_EQ(engine.pool().free_blocks, 0u);
  EXPECT_THAT(engine.AllocateBlocks(session, 1), StatusIs(kExhausted, "0 of"));
  ASSERT_OK(engine.FreeBlocks(session, all));
  ++scene.free_blocks;
  for (int i = 0; i < 4; ++i) scene.GoOn();
  EXPECT_EQ(scene.Tokens(), expected);
}

TEST_P(BlockRefusalTest, BlockOfADroppedRowCanBeFreedWhileItsLastStepRuns) {
  const TestEngine tiny = MakeRefusalEngine(GetParam());
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(1, 9)}, 30);
  const std::vector<uint32_t> blocks = driver.blocks(1);
  const StepTicket runs = driver.Submit({.continue_all = true});
  EXPECT_THAT(tiny.engine->FreeBlocks(driver.session().id, blocks),
              StatusIs(kPrecondition, "resident row"));
  const StepTicket drops = driver.Submit({.drop = {1}});
  EXPECT_OK(tiny.engine->FreeBlocks(driver.session().id, blocks));
  driver.Wait(runs);
  driver.Wait(drops);
}

}  // namespace
}  // namespace reprise::engine
