// SPDX-License-Identifier: Apache-2.0
// Packed weights in a whole engine: the same model as row-major ones, and a row's bits its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "engine/decode_engine.h"
#include "tests/engine/engine_checks.h"
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
    {.dtype = DType::kF16, .emulated = MatrixUnit::kMfma},
    {.dtype = DType::kBf16, .emulated = MatrixUnit::kWmma},
#endif
    {.device = DeviceKind::kCuda, .dtype = DType::kBf16},
    {.device = DeviceKind::kCuda, .dtype = DType::kF16}};

class PackedLinearTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(GetParam().device); !why.empty())
      GTEST_SKIP() << why;
  }
  // Wide enough for two parts of K; the head of some is the embedding table.
  static TestEngine MakeEngine(LinearPolicy linear, bool tied) {
    TestEngineOptions options{.dtype = GetParam().dtype};
    options.model.hidden_size = 96;
    options.model.intermediate_size = 648;
    options.model.tie_word_embeddings = tied;
    options.engine.linear = linear;
    options.engine.max_rows = 24;
    options.engine.decode_buckets = {2, 8, 24};
    options.engine.mixed_buckets = {32};
    auto device = testing::MakeTestDevice(GetParam());
    EXPECT_OK(device);
    return MakeTestEngine(options, *std::move(device));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, PackedLinearTest, ::testing::ValuesIn(kDevices),
                         testing::NameOfParam);

TEST_P(PackedLinearTest, ServesTheSameModel) {
  for (const bool tied : {false, true}) {
    const TestEngine row_major = MakeEngine(LinearPolicy::kRowMajor, tied);
    const TestEngine packed = MakeEngine(LinearPolicy::kPacked, tied);
    EXPECT_EQ(packed.engine->info().linear, LinearPolicy::kPacked);
    EngineDriver one(*row_major.engine), two(*packed.engine);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      // The first token of a prompt: the two may round differently, and part ways later.
      const Token a = one.Generate({.row = 1, .prompt = RandomPrompt(seed, 9)}, 1)[0];
      const Token b = two.Generate({.row = 1, .prompt = RandomPrompt(seed, 9)}, 1)[0];
      EXPECT_NEAR(a.logprob(), b.logprob(), 0.15) << (tied ? "tied" : "untied");
    }
  }
}

// Alone in a bucket of 2, which linear_stream takes where there are bulk copies, and in one of 24,
// which it does not.
TEST_P(PackedLinearTest, ARowsBitsAreItsOwn) {
  const TestEngine packed = MakeEngine(LinearPolicy::kPacked, false);
  ExpectARowsBitsAreItsOwn(*packed.engine);
}

// Two blocks of two norms each, and the last norm, which has rows of its own. Of more than four
// rows, or without bulk copies, all of them are kernels.
TEST_P(PackedLinearTest, FewRowsNeedNoKernelsForNorms) {
  const TestEngine packed = MakeEngine(LinearPolicy::kPacked, false);
  const bool streams = CountLaunches(*packed.engine, "decode/2", "linear_stream") > 0;
  EXPECT_EQ(CountLaunches(*packed.engine, "decode/2", "rms_norm"), streams ? 1 : 5);
  EXPECT_EQ(CountLaunches(*packed.engine, "decode/8", "rms_norm"), 5);
  EXPECT_EQ(CountLaunches(*packed.engine, "decode/24", "rms_norm"), 5);
}

}  // namespace
}  // namespace reprise::engine
