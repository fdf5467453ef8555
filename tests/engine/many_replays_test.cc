// SPDX-License-Identifier: Apache-2.0
// Ten thousand replays of one engine: sessions and rows come and go, chunks are long and short, and
// steps take graphs of every bucket. Nothing grows, on the device or in the process; what a request
// samples is the same at the start, in between and at the end, to the bit; and so is what a row
// samples that stays all the while.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/row_script.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::Alone;
using ::reprise::testing::DeviceCalls;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::InstrumentedDevice;
using ::reprise::testing::InstrumentedEngine;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::NumHeldBytes;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowLife;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

constexpr uint32_t kNumScripts = 4;
constexpr uint32_t kStepsOfScript = 50;
constexpr uint32_t kWarmScripts = 20;                   // until every buffer has its size
constexpr uint32_t kScriptsOfPart = 60, kNumParts = 3;  // behind these
static_assert((kWarmScripts + kScriptsOfPart * kNumParts) * kStepsOfScript == 10'000);
constexpr uint32_t kSmallVocab = 29;

// One layer, and not many blocks: what one session frees another has soon.
TestEngineOptions OneLayer() {
  TestEngineOptions options;
  options.model.vocab_size = kSmallVocab;
  options.model.hidden_size = 16;
  options.model.intermediate_size = 16;
  options.model.num_layers = 1;
  options.model.num_heads = 2;
  options.model.num_kv_heads = 1;
  options.engine.kv_cache_bytes = uint64_t{1} << 16;
  options.engine.max_rows = 4;
  options.engine.decode_buckets = {1, 2, 4};
  options.engine.mixed_buckets = {8, 32};
  options.device.host_threads = testing::kEngineHostThreads;
  return options;
}

RowLife RequestThatRepeats() {
  return {.plan = {.row = 1,
                   .prompt = RandomPrompt(1, 17, kSmallVocab),
                   .sampling = {.temperature = 0.8f, .seed = 7},
                   .chunks = {9, 8}},
          .num_tokens = 8};
}

RowLife RowThatStays() {
  return {.plan = {.row = 2, .prompt = RandomPrompt(2, 30, kSmallVocab)},
          .num_tokens = 2 + kNumParts};
}

// A few scripts in turn, each in a session of its own, with the same tokens every time.
class ScriptsInTurn {
 public:
  explicit ScriptsInTurn(DecodeEngine& engine) : engine_(engine), tokens_(kNumScripts) {
    for (uint64_t seed = 1; seed <= kNumScripts; ++seed)
      scripts_.push_back(MakeRowScript({.num_steps = kStepsOfScript,
                                        .max_rows = 3,
                                        .max_step_tokens = 32,
                                        .max_context_length = 36,
                                        .vocab_size = kSmallVocab,
                                        .seed = seed}));
  }

  void Play(uint32_t count) {
    for (; count > 0; --count, ++num_played_) {
      const size_t which = num_played_ % kNumScripts;
      RowScriptPlayer player(engine_, scripts_[which]);
      player.Play(2);
      if (tokens_[which].empty()) tokens_[which] = player.tokens();
      EXPECT_TRUE(player.tokens() == tokens_[which]) << "script " << num_played_;
    }
  }

 private:
  DecodeEngine& engine_;
  std::vector<RowScript> scripts_;
  std::vector<std::vector<std::vector<Token>>> tokens_;  // by script and life
  size_t num_played_ = 0;
};

// What was held, and what still is.
class HeldMemory {
 public:
  HeldMemory(InstrumentedDevice& device, const DecodeEngine& engine)
      : device_(device), engine_(engine), calls_(device.calls()) {
    device_.TakeLaunches();  // which the device of the test keeps
    heap_bytes_ = NumHeldBytes();
  }

  void ExpectTheSame() const {
    const DeviceCalls calls = device_.calls();
    EXPECT_EQ(calls.allocations, calls_.allocations);
    EXPECT_EQ(calls.frees, calls_.frees);
    EXPECT_EQ(device_.device_bytes(), device_bytes_);
    EXPECT_EQ(device_.mapped_bytes(), mapped_bytes_);
    EXPECT_EQ(engine_.pool().free_blocks, free_blocks_);
    EXPECT_EQ(engine_.num_resident_rows(), 1u);
#if !defined(__SANITIZE_THREAD__)  // which allocates as it goes
    device_.TakeLaunches();
    // A queue may end in another place of its memory. Less than the least allocation, 24 bytes, of
    // each session since.
    constexpr uint64_t kSlackBytes = 4096;
    static_assert(kSlackBytes < 24 * kScriptsOfPart * kNumParts);
    const uint64_t heap_bytes = NumHeldBytes();
    EXPECT_LE(heap_bytes, heap_bytes_ + kSlackBytes);
    ::testing::Test::RecordProperty("heap_bytes", std::to_string(heap_bytes));
#endif
  }

 private:
  InstrumentedDevice& device_;
  const DecodeEngine& engine_;
  const DeviceCalls calls_;
  const size_t device_bytes_ = device_.device_bytes(), mapped_bytes_ = device_.mapped_bytes();
  const uint32_t free_blocks_ = engine_.pool().free_blocks;
  uint64_t heap_bytes_ = 0;
};

TEST(TenThousandReplays, GrowNothingAndChangeNoBit) {
  const InstrumentedEngine tiny = MakeInstrumentedEngine(OneLayer());
  const RowLife request = RequestThatRepeats(), stays = RowThatStays();
  EngineDriver driver(*tiny.engine);
  driver.Start(stays.plan, stays.num_tokens);
  const std::vector<Token> expected = Alone(*tiny.engine, request);
  ASSERT_EQ(expected.size(), request.num_tokens);
  const int replays = tiny.instruments->calls().replays;

  ScriptsInTurn scripts(*tiny.engine);
  scripts.Play(kWarmScripts);
  driver.ContinueAll(1);
  EXPECT_EQ(Alone(*tiny.engine, request), expected);
  const HeldMemory held(*tiny.instruments, *tiny.engine);
  for (uint32_t part = 0; part < kNumParts; ++part) {
    scripts.Play(kScriptsOfPart);
    driver.ContinueAll(1);
    EXPECT_EQ(Alone(*tiny.engine, request), expected) << "part " << part;
  }
  held.ExpectTheSame();
  EXPECT_GE(tiny.instruments->calls().replays - replays, 10'000);

  EXPECT_EQ(driver.tokens(stays.plan.row), Alone(*tiny.engine, stays));
}

}  // namespace
}  // namespace reprise::engine
