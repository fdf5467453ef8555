// SPDX-License-Identifier: Apache-2.0
// What must hold for every architecture holds for those with a sliding window, in all layers or in
// turn, multipliers, biases on q, k and v alone, norms over heads or behind layers, soft caps, a
// rope of layers that slide, of a part of each head or with factors of pairs, weights of 8 bits,
// experts, or state that rows carry: a row's bits are its own, eager equals replay, poison changes
// nothing. And nothing reads KV before a window: a row goes on with the same bits over blocks of
// NaN. Whether the numbers are right is parity_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/row_script.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::Alone;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowPlan;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

constexpr uint32_t kWindow = 10;
constexpr uint32_t kBlockSize = 4;

struct Architecture {
  const char* name;
  int64_t sliding_window;
  std::vector<bool> slides = {};  // empty: all layers
  bool fp8_weights = false;
  bool int4_weights = false;
  bool mxfp4_experts = false;
  int64_t num_experts = 6;
  bool reordered_inputs = false;
  bool round_activations = false;
  bool longrope = false;
  std::vector<std::string> left_out = {};
};
const std::vector<std::string> kAttentionOfTheFirst = {
    "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
    "model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.o_proj"};
const Architecture kArchitectures[] = {
    {"mistral", kWindow},
    {"mistral", 0},
    {"granite", 0},
    {"qwen2", 0},
    {"qwen2", kWindow},
    {"qwen3", 0},
    {"ministral", kWindow, {false, true}},
    {"qwen2", kWindow, {true, false}},
    {"gemma2", kWindow, {true, false}},
    {"gemma3", kWindow, {false, true}},
    {"phi3", kWindow},
    {.name = "phi3", .sliding_window = 0, .longrope = true},
    {"olmo2", 0},
    {"qwen2", 0, {}, true},
    {"qwen2", 0, {}, false, true},
    {.name = "qwen2", .sliding_window = 0, .int4_weights = true, .reordered_inputs = true},

    {"mixtral", 0},
    {"qwen3_moe", 0},
    {"granitemoe", 0},
    {"qwen3_moe", 0, {}, true},
    {"mixtral", 0, {}, false, true},
    {"gpt_oss", kWindow, {true, false}},
    {"granitemoehybrid", 0},
    {.name = "granitemoehybrid", .sliding_window = 0, .num_experts = 0},
    {"bamba", 0},

    // Norms behind layers, and no others; experts, which read norms as they are; Mamba.
    {.name = "gemma2", .sliding_window = 0, .fp8_weights = true, .round_activations = true},
    {.name = "olmo2", .sliding_window = 0, .fp8_weights = true, .round_activations = true},
    {.name = "qwen3_moe", .sliding_window = 0, .fp8_weights = true, .round_activations = true},
    {.name = "granitemoehybrid",
     .sliding_window = 0,
     .fp8_weights = true,
     .num_experts = 0,
     .round_activations = true},

    // Layers of 16 bits before, behind and among quantised ones.
    {.name = "qwen2", .sliding_window = 0, .fp8_weights = true, .left_out = kAttentionOfTheFirst},
    {.name = "qwen3_moe",
     .sliding_window = 0,
     .fp8_weights = true,
     .round_activations = true,
     .left_out = kAttentionOfTheFirst},
    {.name = "gemma2",
     .sliding_window = 0,
     .fp8_weights = true,
     .round_activations = true,
     .left_out = {"model.layers.0.mlp.down_proj", "model.layers.1.self_attn.o_proj",
                  "model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj"}},
    {.name = "qwen2",
     .sliding_window = 0,
     .int4_weights = true,
     .reordered_inputs = true,
     .left_out = {"model.layers.0.self_attn.o_proj", "model.layers.1.mlp.down_proj"}},
    {.name = "bamba",
     .sliding_window = 0,
     .fp8_weights = true,
     .left_out = {"model.layers.0.mamba.in_proj", "model.layers.1.feed_forward.down_proj"}}};

class ModelsTest : public testing::EngineTest {
 protected:
  TestEngineOptions OptionsOf(const Architecture& architecture, bool poison = false) const {
    TestEngineOptions options = Options();
    options.model.architecture = architecture.name;
    options.model.sliding_window = architecture.sliding_window;
    options.model.slides = architecture.slides;
    options.model.fp8_weights = architecture.fp8_weights;
    options.model.int4_weights = architecture.int4_weights;
    options.model.left_out = architecture.left_out;
    if (architecture.reordered_inputs) {
      options.model.reordered_inputs = true;
      options.model.hidden_size = 64;
      options.model.num_heads = 8;
      options.model.intermediate_size = 96;
    }
    if (architecture.round_activations) {
      options.engine.round_activations = true;
      const bool kernels = GetParam().device == runtime::DeviceKind::kCuda &&
                           GetParam().dtype != runtime::DType::kF32;
      options.engine.linear = kernels ? LinearPolicy::kPacked : LinearPolicy::kPortable;
    }
    if (architecture.longrope) {
      options.model.short_factors = {1.0, 1.2, 1.9};
      options.model.long_factors = {1.1, 2.5, 6.0};
    }
    options.model.mxfp4_experts = architecture.mxfp4_experts;
    options.model.num_experts = architecture.num_experts;
    options.engine.block_size = kBlockSize;
    options.diagnostics.poison = poison;
    options.diagnostics.any_context = poison;
    return options;
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(ModelsTest);

TEST_P(ModelsTest, EveryLifeOfARandomStoryEqualsTheSameLifeAlone) {
  for (const Architecture& architecture : kArchitectures) {
    SCOPED_TRACE(std::string(architecture.name) + std::to_string(architecture.sliding_window));
    const RowScript script = MakeRowScript({.num_steps = 40, .seed = 21});
    // Each with its engine, whose rows are free again afterwards.
    const auto play = [&](const TestEngine& tiny, uint32_t depth, ExecutionMode mode) {
      RowScriptPlayer player(*tiny.engine, script);
      player.Play(depth, mode);
      return player.tokens();
    };
    const TestEngine plain = MakeTestEngine(OptionsOf(architecture));
    const TestEngine poisoned = MakeTestEngine(OptionsOf(architecture, true));
    const auto replayed = play(plain, 2, ExecutionMode::kReplay);
    const auto eager = play(poisoned, 1, ExecutionMode::kEager);
    EXPECT_EQ(eager, replayed);
    size_t num_tokens = 0;
    for (size_t life = 0; life < script.lives.size(); ++life) {
      EXPECT_EQ(replayed[life], Alone(*plain.engine, script.lives[life])) << "life " << life;
      num_tokens += replayed[life].size();
      for (const Token& token : eager[life]) EXPECT_TRUE(std::isfinite(token.logprob()));
    }
    EXPECT_GT(num_tokens, 50u);
  }
}

// The prompt is longer than the window, so the two models differ and must answer differently.
TEST_P(ModelsTest, AWindowChangesWhatLongRowsSample) {
  const RowPlan plan{.row = 1, .prompt = RandomPrompt(3, 40)};
  std::vector<std::vector<Token>> answers;
  for (const Architecture& architecture : {kArchitectures[0], kArchitectures[1]}) {
    const TestEngine tiny = MakeTestEngine(OptionsOf(architecture));
    EngineDriver driver(*tiny.engine);
    answers.push_back(driver.Generate(plan, 8));
  }
  EXPECT_NE(answers[0], answers[1]);
}

// A row over KV that another left behind, but with fresh blocks, which poison mode keeps full of
// NaN, in place of the first ones.
class WindowPoisonTest : public ModelsTest {
 protected:
  static constexpr uint32_t kPromptLength = 33;

  void SetUp() override {
    ModelsTest::SetUp();
    if (IsSkipped()) return;
    MakeEngine(kArchitectures[0]);
  }
  void MakeEngine(const Architecture& architecture) {
    driver_.reset();
    tiny_.engine.reset();  // before its device
    tiny_ = MakeTestEngine(OptionsOf(architecture, /*poison=*/true));
    driver_ = std::make_unique<EngineDriver>(*tiny_.engine);
  }
  void TearDown() override { driver_.reset(); }

  // Runs the prompt and drops the row, keeping its blocks, the first of them exchanged. Returns the
  // table, with room for more.
  std::vector<uint32_t> RunPrompt(uint32_t row, const std::vector<uint32_t>& prompt,
                                  uint32_t num_exchanged) {
    driver_->Start({.row = row, .prompt = prompt}, 20);
    std::vector<uint32_t> table = driver_->blocks(row);
    driver_->Step({.drop = {row}});
    if (num_exchanged == 0) return table;
    const std::vector<uint32_t> fresh = driver_->Allocate(num_exchanged);
    std::copy(fresh.begin(), fresh.end(), table.begin());
    return table;
  }

  // One step of `tokens` behind the prompt, and two more decode steps; what they sample.
  std::vector<Token> GoOn(uint32_t row, const std::vector<uint32_t>& table,
                          const std::vector<uint32_t>& tokens) {
    driver_->Step({.add = {{.row = row, .blocks = table, .context_length = kPromptLength}},
                   .chunks = {{.row = row, .tokens = tokens}}});
    for (int i = 0; i < 2; ++i) driver_->Step({.continue_rows = {row}});
    std::vector<Token> sampled = driver_->tokens(row);
    driver_->Step({.drop = {row}});
    return sampled;
  }

  TestEngine tiny_;
  std::unique_ptr<EngineDriver> driver_;
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(WindowPoisonTest);

TEST_P(WindowPoisonTest, NanBeforeTheWindowChangesNothing) {
  const std::vector<uint32_t> prompt = RandomPrompt(11, kPromptLength);
  // The token at position 33 sees 24 to 33: six blocks of four lie before, and end right there.
  const uint32_t num_before = (kPromptLength - kWindow + 1) / kBlockSize;
  ASSERT_EQ(num_before, 6u);
  uint32_t row = 100;
  for (const std::vector<uint32_t>& tokens :
       {std::vector<uint32_t>{7}, std::vector<uint32_t>{7, 8}, RandomPrompt(5, 15)}) {
    const std::vector<Token> expected = GoOn(row, RunPrompt(row + 1, prompt, 0), tokens);
    const std::vector<Token> got = GoOn(row + 2, RunPrompt(row + 3, prompt, num_before), tokens);
    EXPECT_EQ(got, expected) << tokens.size() << " tokens";
    for (const Token& token : got) EXPECT_TRUE(std::isfinite(token.logprob()));
    row += 10;
  }
}

// Or the test above could not fail: one block more is read.
TEST_P(WindowPoisonTest, NanInsideTheWindowIsRead) {
  const std::vector<uint32_t> prompt = RandomPrompt(11, kPromptLength);
  for (const std::vector<uint32_t>& tokens :
       {std::vector<uint32_t>{7}, std::vector<uint32_t>{7, 8}}) {
    const auto row = static_cast<uint32_t>(100 * tokens.size());
    EXPECT_TRUE(std::isnan(GoOn(row, RunPrompt(row + 1, prompt, 7), tokens)[0].logprob()));
  }
}

// Nor is a window that of all layers where one of them sees all.
TEST_P(WindowPoisonTest, NanBeforeTheWindowIsReadByALayerThatHasNone) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.slides.empty()) continue;
    SCOPED_TRACE(architecture.name);
    MakeEngine(architecture);
    const std::vector<uint32_t> prompt = RandomPrompt(11, kPromptLength);
    EXPECT_TRUE(std::isnan(GoOn(100, RunPrompt(101, prompt, 1), {7})[0].logprob()));
  }
}

// The same weights, and one layer or the other that slides.
TEST_P(ModelsTest, WhichLayerSlidesChangesWhatLongRowsSample) {
  const RowPlan plan{.row = 1, .prompt = RandomPrompt(3, 40)};
  std::vector<std::vector<Token>> answers;
  for (const std::vector<bool>& slides :
       std::vector<std::vector<bool>>{{}, {true, false}, {false, true}}) {
    const TestEngine tiny = MakeTestEngine(OptionsOf({"ministral", kWindow, slides}));
    answers.push_back(EngineDriver(*tiny.engine).Generate(plan, 8));
  }
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_NE(answers[0], answers[2]);
  EXPECT_NE(answers[1], answers[2]);
}

// longrope in an engine whose contexts end at the original length is a model whose long factors are
// the short ones; the same engine with longer contexts turns otherwise, from the first token on.
TEST_P(ModelsTest, TheLongestContextChoosesTheFactorsOfLongrope) {
  const RowPlan plan{.row = 1, .prompt = RandomPrompt(3, 20)};
  const auto answer = [&](uint32_t max_context_length, bool short_alone) {
    TestEngineOptions options = OptionsOf({.name = "phi3", .sliding_window = 0, .longrope = true});
    if (short_alone) options.model.long_factors = options.model.short_factors;
    options.engine.max_context_length = max_context_length;
    const TestEngine tiny = MakeTestEngine(options);
    return EngineDriver(*tiny.engine).Generate(plan, 8);
  };
  const std::vector<Token> is_short = answer(32, false), is_long = answer(33, false);
  EXPECT_EQ(is_short, answer(256, true));
  EXPECT_EQ(is_long, answer(256, false));
  EXPECT_NE(is_short, is_long);
}

}  // namespace
}  // namespace reprise::engine
