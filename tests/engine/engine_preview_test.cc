// SPDX-License-Identifier: Apache-2.0
// What is said of an engine before there is one, against the engine.
#include "engine/engine_preview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "models/config/hf_config.h"
#include "models/config/model_presets.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::testing::HasSubstr;

class EnginePreviewTest : public testing::EngineTest {
 protected:
  // Of the model and the options of an engine.
  absl::StatusOr<EnginePreview> Preview(const TestEngine& tiny, TestEngineOptions options) {
    options.engine.dtype = options.dtype;
    options.engine.dtype_from_checkpoint = false;
    auto spec = models::ReadHfConfig(tiny.directory->path());
    EXPECT_OK(spec);
    return PreviewEngine(*tiny.device, *spec, options.engine);
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(EnginePreviewTest);

// The kernels of an engine's graphs, without those that are no layer's.
std::set<std::string> KernelsOf(DecodeEngine& engine, const std::string& graph) {
  const auto nodes = EngineProfiler(engine).ListNodes(graph);
  EXPECT_OK(nodes);
  std::set<std::string> kernels;
  for (const graphs::GraphNode& node : *nodes) {
    const std::set<std::string> others = {"fetch",        "plan",    "sample_partial",
                                          "sample_final", "publish", "notify_host"};
    if (node.kind == graphs::GraphNode::Kind::kKernel && !others.contains(node.op))
      kernels.insert(node.kernel);
  }
  return kernels;
}

TEST_P(EnginePreviewTest, IsWhatTheEngineIs) {
  for (const char* architecture : {"llama", "qwen3", "gemma2", "olmo2", "qwen3_moe"}) {
    SCOPED_TRACE(architecture);
    TestEngineOptions options = Options();
    options.model.architecture = architecture;
    // Buckets of the sizes that are looked at, and no more logits than rows, as there.
    options.engine.max_rows = 32;
    options.engine.decode_buckets = {1, 32};
    options.engine.mixed_buckets = {256};
    options.engine.max_logit_rows = options.engine.max_prompt_logprobs = 0;
    options.engine.kv_cache_bytes = uint64_t{1} << 20;
    const TestEngine tiny = MakeTestEngine(options);
    ASSERT_OK_AND_ASSIGN(const EnginePreview preview, Preview(tiny, options));
    const EngineInfo& info = tiny.engine->info();
    EXPECT_EQ(preview.dtype, info.dtype);
    EXPECT_EQ(preview.kv_dtype, info.kv_dtype);
    EXPECT_EQ(preview.linear, info.linear);
    EXPECT_EQ(preview.weights_bytes, info.memory.weights_bytes);
    // Two layers of K and V, two heads of 8.
    EXPECT_EQ(preview.kv_bytes_per_token, 2u * 2 * 2 * 8 * SizeOf(info.kv_dtype));
    std::set<std::string> decode = KernelsOf(*tiny.engine, "decode/1");
    decode.merge(KernelsOf(*tiny.engine, "decode/32"));
    const std::set<std::string> mixed = KernelsOf(*tiny.engine, "mixed/256");
    std::set<std::string> decode_before, mixed_before;
    for (const LayerKernel& kernel : preview.kernels) {
      if (kernel.in_decode) decode_before.insert(kernel.kernel);
      if (kernel.in_mixed) mixed_before.insert(kernel.kernel);
    }
    EXPECT_EQ(decode_before, decode);
    EXPECT_EQ(mixed_before, mixed);
  }
}

TEST_P(EnginePreviewTest, SaysThatPortableKernelsAreTheReference) {
  TestEngineOptions options = Options();
  options.engine.linear = LinearPolicy::kPortable;
  const TestEngine tiny = MakeTestEngine(options);
  ASSERT_OK_AND_ASSIGN(const EnginePreview preview, Preview(tiny, options));
  EXPECT_FALSE(preview.is_tuned());
  for (const LayerKernel& kernel : preview.kernels)
    EXPECT_EQ(kernel.is_reference, kernel.kernel.find("portable") != std::string::npos)
        << kernel.kernel;
}

TEST(EnginePreview, OfTheHostsOwnKernelsIsTuned) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  ASSERT_OK_AND_ASSIGN(const models::ModelSpec spec, models::PresetSpec("gemma-3-1b"));
  ASSERT_OK_AND_ASSIGN(const EnginePreview preview, PreviewEngine(*device, spec, {}));
  EXPECT_TRUE(preview.is_tuned());
  EXPECT_EQ(preview.dtype, runtime::DType::kBf16);
  EXPECT_EQ(preview.kv_bytes_per_token, 26u * 2 * 256 * 2);
  // Beside the parameters, padding and two tables of frequencies.
  EXPECT_GE(preview.weights_bytes, 999'885'952u * 2);
  EXPECT_LT(preview.weights_bytes, 999'885'952u * 2 + 200'000);
}

TEST(EnginePreview, RefusesWhatAnEngineWould) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  ASSERT_OK_AND_ASSIGN(models::ModelSpec spec, models::PresetSpec("llama-3.2-1b"));
  EXPECT_THAT(PreviewEngine(*device, spec, {.linear = LinearPolicy::kPacked}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "linear is packed"));
  EXPECT_THAT(PreviewEngine(*device, spec, {.block_size = 0}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "block_size"));
  spec.head_dim = 512;
  EXPECT_THAT(PreviewEngine(*device, spec, {}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, "head_dim is 512"));
}

}  // namespace
}  // namespace reprise::engine
