// SPDX-License-Identifier: Apache-2.0
// Engines whose KV cache has elements of 8 bits: how much fits, what comes out beside an engine
// that does not round KV, and that the scales of a checkpoint are in it. That such rows keep their
// bits whatever runs beside them is invariance_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/prompt_likelihood.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DType;
using ::reprise::testing::Distance;
using ::reprise::testing::LikelihoodOf;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;

class KvDTypeTest : public testing::EngineTest {
 protected:
  TestEngine MakeWith(std::optional<DType> kv_dtype, std::vector<float> k_scales = {},
                      std::vector<float> v_scales = {}) const {
    TestEngineOptions options = Options();
    options.model.head_dim = 16;
    options.model.k_scales = std::move(k_scales);
    options.model.v_scales = std::move(v_scales);
    options.engine.kv_dtype = kv_dtype;
    return MakeTestEngine(options);
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(KvDTypeTest);

TEST_P(KvDTypeTest, BlocksTakeAByteForAnElement) {
  const TestEngine plain = MakeWith(std::nullopt);
  EXPECT_EQ(plain.engine->info().kv_dtype, GetParam().dtype);
  for (const DType kv_dtype : {DType::kE4m3, DType::kE5m2}) {
    const TestEngine small = MakeWith(kv_dtype);
    EXPECT_EQ(small.engine->info().kv_dtype, kv_dtype);
    EXPECT_EQ(small.engine->info().dtype, GetParam().dtype);
    EXPECT_EQ(small.engine->pool().num_blocks,
              plain.engine->pool().num_blocks * runtime::SizeOf(GetParam().dtype));
    EXPECT_EQ(small.engine->pool().bytes, plain.engine->pool().bytes);
  }
}

// Near the engine that does not round KV, and not the same: the cache is what it says.
TEST_P(KvDTypeTest, LikelihoodsAreNearThoseOfExactKv) {
  const std::vector<uint32_t> prompt = RandomPrompt(3, 60);
  const std::vector<float> exact = LikelihoodOf(*MakeWith(std::nullopt).engine, prompt);
  const double e4m3 = Distance(LikelihoodOf(*MakeWith(DType::kE4m3).engine, prompt), exact);
  const double e5m2 = Distance(LikelihoodOf(*MakeWith(DType::kE5m2).engine, prompt), exact);
  EXPECT_GT(e4m3, 1e-4);
  EXPECT_LT(e4m3, 0.1);
  EXPECT_GT(e5m2, e4m3);
  EXPECT_LT(e5m2, 0.2);
}

// Scales that keep all numbers in range change little; such as push all of V to zero, or K to its
// ends, change much. Where KV is not of 8 bits they change nothing.
TEST_P(KvDTypeTest, ScalesOfTheCheckpointCount) {
  const std::vector<uint32_t> prompt = RandomPrompt(4, 60);
  const std::vector<float> exact = LikelihoodOf(*MakeWith(std::nullopt).engine, prompt);
  const auto distance = [&](std::vector<float> k_scales, std::vector<float> v_scales) {
    const TestEngine scaled = MakeWith(DType::kE4m3, std::move(k_scales), std::move(v_scales));
    return Distance(LikelihoodOf(*scaled.engine, prompt), exact);
  };
  EXPECT_LT(distance({0.05f}, {0.0625f, 0.03f}), 0.1);
  EXPECT_LT(distance({0.02f, 0.08f}, {0.05f}), 0.1);
  EXPECT_GT(distance({}, {0.05f, 1e6f}), 0.1);
  EXPECT_GT(distance({1e-5f}, {}), 0.1);
  EXPECT_EQ(LikelihoodOf(*MakeWith(std::nullopt, {0.5f}, {2.0f, 1e6f}).engine, prompt), exact);
}

TEST_P(KvDTypeTest, ScalesThatAreNoneAreRefused) {
  TestEngineOptions options = Options();
  options.model.k_scales = {0.5f, -1.0f};
  testing::TemporaryDirectory directory;
  ASSERT_OK(WriteTinyModel(options.model, directory.path()));
  DecodeEngineOptions engine = options.engine;
  engine.dtype = options.dtype;
  engine.kv_dtype = DType::kE4m3;
  auto device = testing::MakeDevice(options.device, options.delays);
  ASSERT_OK(device);
  EXPECT_THAT(
      DecodeEngine::Create(**device, {.directory = directory.path()}, engine).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "'model.layers.0.self_attn.k_scale': got scale -1, allowed finite numbers above 0"));
}

}  // namespace
}  // namespace reprise::engine
