// SPDX-License-Identifier: Apache-2.0
// An engine of emulated GPU kernels over a KV cache of 8 bits computes what one on the host does:
// on matrix units and, without kernels there, by the portable ones.
#include <gtest/gtest.h>

#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/prompt_likelihood.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DType;
using ::reprise::runtime::MatrixUnit;
using ::reprise::testing::Distance;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::LikelihoodOf;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;

class EmulatedKvDTypeTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  static std::vector<float> LikelihoodOn(const KernelTestParam& param) {
    TestEngineOptions options{.dtype = param.dtype};
    options.model.head_dim = 16;
    options.model.k_scales = {0.02f, 0.05f};
    options.model.v_scales = {0.03f};
    options.engine.kv_dtype = param.kv;
    options.engine.decode_buckets = {8};
    options.engine.mixed_buckets = {64};
    auto device = testing::MakeTestDevice(param);
    EXPECT_OK(device);
    const TestEngine tiny = MakeTestEngine(options, *std::move(device));
    return LikelihoodOf(*tiny.engine, RandomPrompt(5, 40));
  }
};

INSTANTIATE_TEST_SUITE_P(
    EveryUnit, EmulatedKvDTypeTest,
    ::testing::Values(
        KernelTestParam{.dtype = DType::kF32, .kv = DType::kE4m3, .emulated = MatrixUnit::kMma},
        KernelTestParam{.dtype = DType::kBf16, .kv = DType::kE4m3, .emulated = MatrixUnit::kMma},
        KernelTestParam{.dtype = DType::kBf16, .kv = DType::kE5m2, .emulated = MatrixUnit::kMma},
        KernelTestParam{.dtype = DType::kF16, .kv = DType::kE4m3, .emulated = MatrixUnit::kMfma},
        KernelTestParam{.dtype = DType::kBf16, .kv = DType::kE4m3, .emulated = MatrixUnit::kWmma}),
    testing::NameOfParam);

TEST_P(EmulatedKvDTypeTest, LikelihoodsAreTheHosts) {
  KernelTestParam host = GetParam();
  host.emulated = MatrixUnit::kNone;
  const double distance = Distance(LikelihoodOn(GetParam()), LikelihoodOn(host));
  // An element of KV that lies near a tie may be rounded the other way.
  EXPECT_LT(distance, GetParam().dtype == DType::kF32 ? 5e-3 : 3e-2);
}

}  // namespace
}  // namespace reprise::engine
