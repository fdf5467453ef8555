// SPDX-License-Identifier: Apache-2.0
// An engine whose linear layers round what they read to E4M3 (round_activations): a row's bits are
// its own, graphs replay what runs eagerly, padding and stale memory change nothing, and what the
// model does not mean is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "engine/decode_engine.h"
#include "engine/engine_preview.h"
#include "models/model_source.h"
#include "tests/engine/engine_checks.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/row_script.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::kInvalid;
using ::reprise::testing::MakeRowScript;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowScript;
using ::reprise::testing::RowScriptPlayer;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

constexpr KernelTestParam kDevices[] = {
    {.dtype = DType::kF32},
#if REPRISE_WITH_EMULATOR
    {.dtype = DType::kBf16, .emulated = runtime::MatrixUnit::kMma},
#endif
    {.device = DeviceKind::kCuda, .dtype = DType::kBf16},
    {.device = DeviceKind::kCuda, .dtype = DType::kF16}};

class RoundedActivationsTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(GetParam().device); !why.empty())
      GTEST_SKIP() << why;
  }
  // Where warpgroups multiply, their kernels; elsewhere the reference.
  static bool HasKernels() {
    return GetParam().device == DeviceKind::kCuda ||
           GetParam().emulated == runtime::MatrixUnit::kMma;
  }
  // Layers of one chunk of 128 inputs and a quarter, and of five and a half.
  static TestEngineOptions Options(bool rounds) {
    TestEngineOptions options{.dtype = GetParam().dtype};
    options.model.fp8_weights = true;
    options.model.hidden_size = 160;
    options.model.intermediate_size = 704;
    options.engine.linear = HasKernels() ? LinearPolicy::kPacked : LinearPolicy::kPortable;
    options.engine.round_activations = rounds;
    options.engine.max_rows = 24;
    options.engine.decode_buckets = {2, 8, 24};
    options.engine.mixed_buckets = {32};
    return options;
  }
  static TestEngine MakeEngine(const TestEngineOptions& options) {
    auto device = testing::MakeTestDevice(GetParam());
    EXPECT_OK(device);
    return MakeTestEngine(options, *std::move(device));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, RoundedActivationsTest, ::testing::ValuesIn(kDevices),
                         testing::NameOfParam);

TEST_P(RoundedActivationsTest, EveryLinearLayerOfABlockRoundsAndTheEngineSaysSo) {
  const TestEngine rounded = MakeEngine(Options(true)), plain = MakeEngine(Options(false));
  EXPECT_EQ(rounded.engine->info().weight_format(), kernels::WeightFormat::kE4m3Rounded);
  EXPECT_EQ(plain.engine->info().weight_format(), kernels::WeightFormat::kE4m3);
  // Two blocks of four layers, of which two are behind norms.
  const char* const op = HasKernels() ? "linear_group_rounded" : "linear_portable_rounded";
  for (const char* graph : {"decode/2", "decode/24", "mixed/32"}) {
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, "round_rows"), 4) << graph;
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, "rms_norm_rounded"), 4) << graph;
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, "rms_norm"), 1) << graph;
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, op), 8) << graph;
    EXPECT_EQ(CountLaunches(*plain.engine, graph, "round_rows"), 0) << graph;
  }
}

// One of each kind is left out: of the four layers that round behind a norm two are left, of the
// others two, and the norms before the former leave 16 bits.
TEST_P(RoundedActivationsTest, LayersLeftOutReadWhatIsNotRounded) {
  TestEngineOptions options = Options(true);
  options.model.left_out = {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                            "model.layers.0.self_attn.v_proj", "model.layers.0.mlp.down_proj",
                            "model.layers.1.self_attn.o_proj", "model.layers.1.mlp.gate_proj",
                            "model.layers.1.mlp.up_proj"};
  const TestEngine rounded = MakeEngine(options);
  EXPECT_EQ(rounded.engine->info().weight_format(), kernels::WeightFormat::kE4m3Rounded);
  EXPECT_EQ(rounded.engine->info().model.NumLeftOut(), 4);
  const char* const op = HasKernels() ? "linear_group_rounded" : "linear_portable_rounded";
  for (const char* graph : {"decode/2", "decode/24", "mixed/32"}) {
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, "round_rows"), 2) << graph;
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, "rms_norm_rounded"), 2) << graph;
    EXPECT_EQ(CountLaunches(*rounded.engine, graph, op), 4) << graph;
  }
  ExpectARowsBitsAreItsOwn(*rounded.engine);
}

// Eight bits change what a model says by little.
TEST_P(RoundedActivationsTest, TheFirstTokenIsAsLikelyAsWithoutRounding) {
  const TestEngine rounded = MakeEngine(Options(true)), plain = MakeEngine(Options(false));
  EngineDriver one(*rounded.engine), two(*plain.engine);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Token a = one.Generate({.row = 1, .prompt = RandomPrompt(seed, 9)}, 1)[0];
    const Token b = two.Generate({.row = 1, .prompt = RandomPrompt(seed, 9)}, 1)[0];
    EXPECT_NEAR(a.logprob(), b.logprob(), 0.5);
    EXPECT_NE(a.logprob(), b.logprob());
  }
}

// Alone in a bucket of 2, and among others in one of 24 behind a mixed step.
TEST_P(RoundedActivationsTest, ARowsBitsAreItsOwn) {
  const TestEngine rounded = MakeEngine(Options(true));
  ExpectARowsBitsAreItsOwn(*rounded.engine);
}

// What lies where rows are not, or was there before, is NaN; and nothing is replayed.
TEST_P(RoundedActivationsTest, PoisonAndEagerStepsChangeNothing) {
  TestEngineOptions options = Options(true);
  const TestEngine plain = MakeEngine(options);
  options.diagnostics.poison = true;
  const TestEngine poisoned = MakeEngine(options);
  const RowScript script =
      MakeRowScript({.num_steps = 12, .max_rows = 6, .max_step_tokens = 32, .seed = 3});
  RowScriptPlayer expected(*plain.engine, script), got(*poisoned.engine, script);
  expected.Play(1);
  got.Play(1, ExecutionMode::kEager);
  EXPECT_EQ(got.tokens(), expected.tokens());
}

TEST(RoundedActivationsRefusals, NameWhatIsAllowed) {
  TestEngineOptions options;
  options.engine.round_activations = true;
  const auto create = [&] {
    const testing::TemporaryDirectory directory;
    EXPECT_OK(testing::WriteTinyModel(options.model, directory.path()));
    auto device = runtime::Device::Create({.kind = DeviceKind::kHost});
    EXPECT_OK(device);
    return DecodeEngine::Create(**device, {.directory = directory.path()}, options.engine).status();
  };
  EXPECT_THAT(create(), StatusIs(kInvalid, "a model that does not mean it; allowed: where"));
  options.model.fp8_weights = true;
  EXPECT_THAT(create(), StatusIs(kInvalid, "with row-major linear layers"));
  options.engine.linear = LinearPolicy::kPortable;
  EXPECT_OK(create());
}

// Experts read activations as they are; what is around them does not.
TEST(RoundedActivationsPreview, OfAMixtureRoundsAttentionAlone) {
  models::ModelSource source{.preset = "qwen3-30b-a3b-fp8"};
  ASSERT_OK_AND_ASSIGN(models::ModelSpec spec, models::ReadModelSpec(source));
  spec.num_layers = 1;
  spec.vocab_size = 64;
  spec.eos_token_ids = {1};
  ASSERT_OK_AND_ASSIGN(auto device, runtime::Device::Create({.kind = DeviceKind::kHost}));
  ASSERT_OK_AND_ASSIGN(const EnginePreview preview,
                       PreviewEngine(*device, spec,
                                     {.max_context_length = 64,
                                      .linear = LinearPolicy::kPortable,
                                      .round_activations = true}));
  const auto has = [&](const std::string& name) {
    return std::any_of(preview.kernels.begin(), preview.kernels.end(),
                       [&](const LayerKernel& kernel) { return kernel.op == name; });
  };
  EXPECT_TRUE(has("round_rows"));
  EXPECT_TRUE(has("linear_portable_rounded"));
  EXPECT_TRUE(has("experts_portable_fp8"));
}

}  // namespace
}  // namespace reprise::engine
