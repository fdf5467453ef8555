// SPDX-License-Identifier: Apache-2.0
// Decode steps whose layers are one kernel: the bits of the chain of kernels, whoever else runs,
// and an engine that says why it has no such kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
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
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

constexpr KernelTestParam kDevices[] = {
#if REPRISE_WITH_EMULATOR
    {.dtype = DType::kBf16, .emulated = MatrixUnit::kMma},
    {.dtype = DType::kF16, .emulated = MatrixUnit::kMma},
#endif
    {.device = DeviceKind::kCuda, .dtype = DType::kBf16},
    {.device = DeviceKind::kCuda, .dtype = DType::kF16}};

class StepKernelTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(GetParam().device); !why.empty())
      GTEST_SKIP() << why;
  }
  // Two parts of K in one layer of a block and one in the others; heads of 64, of 128 where they
  // are normed, in groups of two.
  TestEngineOptions Options(DecodePolicy decode, const std::string& architecture = "llama") const {
    TestEngineOptions options{.dtype = GetParam().dtype};
    options.model.architecture = architecture;
    options.model.hidden_size = 128;
    options.model.intermediate_size = 648;
    options.model.num_heads = 4;
    options.model.num_kv_heads = 2;
    options.model.head_dim = architecture == "qwen3" ? 128 : 64;
    options.model.dtype = GetParam().dtype;
    options.engine.linear = LinearPolicy::kPacked;
    options.engine.decode = decode;
    options.engine.block_size = 16;
    options.engine.max_rows = 16;
    options.engine.decode_buckets = {1, 4, 8, 16};
    options.engine.mixed_buckets = {64, 160};
    options.engine.watchdog_timeout_ms = 600000;  // emulation on a busy machine
    return options;
  }
  // threads: of the host that emulates a GPU, blocks of the step kernel. One block is searched for
  // races; several wait for each other.
  TestEngine Make(const TestEngineOptions& options, int threads = 1) const {
    auto device = testing::MakeTestDevice(GetParam(), threads);
    EXPECT_OK(device);
    return MakeTestEngine(options, *std::move(device));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepKernelTest, ::testing::ValuesIn(kDevices),
                         testing::NameOfParam);

// Of `rows` rows with prompts of 3, 24, 45, ... tokens, `steps` tokens each.
std::vector<std::vector<Token>> Generate(DecodeEngine& engine, uint32_t rows, int steps) {
  EngineDriver driver(engine);
  testing::StepDraft draft;
  for (uint32_t row = 1; row <= rows; ++row) {
    draft.add.push_back({.row = row, .blocks = driver.AllocateFor(200)});
    draft.chunks.push_back({.row = row, .tokens = RandomPrompt(row, 21 * row - 18)});
  }
  std::vector<std::vector<Token>> tokens(rows);
  for (int step = 0; step < steps; ++step) {
    const StepResult result =
        driver.Step(step == 0 ? draft : testing::StepDraft{.continue_all = true});
    for (const RowOutcome& row : result.rows) tokens[row.row - 1].push_back(testing::TokenOf(row));
  }
  return tokens;
}

TEST_P(StepKernelTest, GivesTheBitsOfTheChain) {
  const TestEngine chain = Make(Options(DecodePolicy::kChain));
  EXPECT_EQ(chain.engine->info().step_kernel_rows, 0u);
  const std::vector<std::vector<Token>> expected = Generate(*chain.engine, 3, 3);
  const bool emulated = GetParam().emulated != MatrixUnit::kNone;
  for (const int threads : emulated ? std::vector{1, 3} : std::vector{1}) {
    const TestEngine one = Make(Options(DecodePolicy::kStepKernel), threads);
    EXPECT_EQ(one.engine->info().step_kernel_rows, 8u);
    EXPECT_EQ(Generate(*one.engine, 3, 3), expected) << threads << " threads";
  }
}

TEST_P(StepKernelTest, GivesTheBitsOfTheChainWhereHeadsAreNormed) {
  const TestEngine chain = Make(Options(DecodePolicy::kChain, "qwen3"));
  const TestEngine one = Make(Options(DecodePolicy::kStepKernel, "qwen3"));
  EXPECT_EQ(Generate(*one.engine, 2, 2), Generate(*chain.engine, 2, 2));
}

// One node of the graph, and what it does: of each layer norm, qkv, rope, attention, o, norm, gate
// and up, and down, each behind the one before it.
TEST_P(StepKernelTest, TellsItsStages) {
  const TestEngine one = Make(Options(DecodePolicy::kStepKernel));
  EngineProfiler profiler(*one.engine);
  ASSERT_OK_AND_ASSIGN(const auto stages, profiler.ListStages("decode/4"));
  const auto layers = static_cast<size_t>(one.engine->info().model.num_layers);
  ASSERT_GT(stages.size(), layers * 8);
  using Kind = kernels::StageKind;
  size_t attentions = 0;
  uint32_t tiles = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const kernels::ListedStage& stage = stages[i];
    if (i == 0) {
      EXPECT_FALSE(stage.waits_for.has_value());
    } else {
      EXPECT_EQ(stage.waits_for, i - 1);
    }
    EXPECT_FALSE(stage.op.empty());
    if (stage.kind == Kind::kAttention) {
      ++attentions;
      EXPECT_EQ(stages[i - 1].kind, Kind::kRopeAppend);
      EXPECT_EQ(stages[i + 1].kind, Kind::kLinear);
    }
    if (stage.kind != Kind::kLinear) {
      EXPECT_GT(stage.per_row, 0u);
      continue;
    }
    EXPECT_EQ(stage.first_tile, tiles);
    EXPECT_EQ(stage.num_tiles, static_cast<uint32_t>((stage.out_features + 15) / 16));
    EXPECT_EQ(stage.fixed, stage.num_tiles);
    tiles += stage.num_tiles;
  }
  EXPECT_EQ(attentions, layers);
  ASSERT_OK_AND_ASSIGN(const auto of_chain, profiler.ListStages("decode/16"));
  EXPECT_TRUE(of_chain.empty());
  ASSERT_OK_AND_ASSIGN(const auto of_mixed, profiler.ListStages("mixed/64"));
  EXPECT_TRUE(of_mixed.empty());
  EXPECT_THAT(profiler.ListStages("decode/5").status(),
              testing::StatusIs(absl::StatusCode::kNotFound, "decode/4"));
}

// The words that are waited for are zero again after each step.
// One of the new buckets is within the step kernel's rows, one is not.
TEST_P(StepKernelTest, BucketsMayChange) {
  const TestEngine chain = Make(Options(DecodePolicy::kChain));
  const TestEngine one = Make(Options(DecodePolicy::kStepKernel));
  ASSERT_OK(one.engine->SetBuckets({.decode = {2, 12}}));
  EXPECT_EQ(Generate(*one.engine, 2, 2), Generate(*chain.engine, 2, 2));
  EXPECT_THAT(one.engine->SetBuckets({.decode = {12}}).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                "no decode bucket has 8 rows or fewer"));
  EXPECT_EQ(one.engine->captured_graphs().version, 2u);
}

TEST_P(StepKernelTest, RowsComeAndGo) {
  const TestEngine chain = Make(Options(DecodePolicy::kChain));
  const TestEngine one = Make(Options(DecodePolicy::kStepKernel));
  EngineDriver a(*chain.engine), b(*one.engine);
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const uint32_t tokens = 5 + 30 * static_cast<uint32_t>(seed);
    EXPECT_EQ(b.Generate({.row = 1, .prompt = RandomPrompt(seed, tokens)}, 3),
              a.Generate({.row = 1, .prompt = RandomPrompt(seed, tokens)}, 3));
  }
}

// What the kernel does not do is refused by name, and never run otherwise.
TEST_P(StepKernelTest, AnEngineThatCannotHaveItDoesNotStart) {
  const auto start = [&](const TestEngineOptions& options) {
    auto device = testing::MakeTestDevice(GetParam(), 1);
    EXPECT_OK(device);
    testing::TemporaryDirectory directory;
    EXPECT_OK(testing::WriteTinyModel(options.model, directory.path()));
    return DecodeEngine::Create(**device, {.directory = directory.path()}, options.engine).status();
  };
  TestEngineOptions row_major = Options(DecodePolicy::kStepKernel);
  row_major.engine.linear = LinearPolicy::kRowMajor;
  EXPECT_EQ(start(row_major).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(start(row_major).message()), ::testing::HasSubstr("reprise_linear"));

  TestEngineOptions narrow_heads = Options(DecodePolicy::kStepKernel);
  narrow_heads.model.head_dim = 32;
  EXPECT_EQ(start(narrow_heads).code(), absl::StatusCode::kUnimplemented);

  const TestEngineOptions norms_behind = Options(DecodePolicy::kStepKernel, "gemma2");
  EXPECT_EQ(start(norms_behind).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(start(norms_behind).message()),
              ::testing::HasSubstr("'reprise_rms_norm_add_bf16' is none of its stages"));
  const TestEngineOptions whole_norms = Options(DecodePolicy::kStepKernel, "olmo2");
  EXPECT_EQ(start(whole_norms).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(start(whole_norms).message()),
              ::testing::HasSubstr("norms all heads of q and k together"));
  const TestEngineOptions experts = Options(DecodePolicy::kStepKernel, "mixtral");
  EXPECT_EQ(start(experts).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(start(experts).message()),
              ::testing::HasSubstr("'reprise_experts_route' is none of its stages"));
  TestEngineOptions hybrid = Options(DecodePolicy::kStepKernel, "granitemoehybrid");
  hybrid.model.num_experts = 0;
  EXPECT_EQ(start(hybrid).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(start(hybrid).message()),
              ::testing::HasSubstr("'reprise_mamba_conv_bf16' is none of its stages"));

  // One quantised layer is enough, the last one too.
  TestEngineOptions quantised = Options(DecodePolicy::kStepKernel);
  quantised.model.fp8_weights = true;
  for (const char* layer :
       {"0.self_attn.q_proj", "0.self_attn.k_proj", "0.self_attn.v_proj", "0.self_attn.o_proj",
        "0.mlp.gate_proj", "0.mlp.up_proj", "0.mlp.down_proj", "1.self_attn.q_proj",
        "1.self_attn.k_proj", "1.self_attn.v_proj", "1.self_attn.o_proj", "1.mlp.gate_proj",
        "1.mlp.up_proj"})
    quantised.model.left_out.push_back(std::string("model.layers.") + layer);
  EXPECT_EQ(start(quantised).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(start(quantised).message()), ::testing::HasSubstr("fp8"));

  TestEngineOptions large = Options(DecodePolicy::kStepKernel);
  large.engine.decode_buckets = {16};
  EXPECT_EQ(start(large).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reprise::engine
