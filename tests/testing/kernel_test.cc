// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/kernel_test.h"

#include <cmath>
#include <string_view>
#include <utility>

#if REPRISE_WITH_EMULATOR
#include "tests/emulated/emulated_device.h"
#include "tests/emulated/emulated_kernels.h"
#endif
#include "tests/testing/any_device.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using runtime::MatrixUnit;

std::vector<KernelTestParam> EveryDeviceWith(std::initializer_list<runtime::DType> dtypes) {
  std::vector<KernelTestParam> params;
  for (const runtime::DeviceKind device : {runtime::DeviceKind::kHost, runtime::DeviceKind::kCuda})
    for (const runtime::DType dtype : dtypes) params.push_back({.device = device, .dtype = dtype});
#if REPRISE_WITH_EMULATOR
  for (const MatrixUnit unit : {MatrixUnit::kMma, MatrixUnit::kMfma, MatrixUnit::kWmma})
    for (const runtime::DType dtype : dtypes) params.push_back({.dtype = dtype, .emulated = unit});
#endif
  return params;
}

}  // namespace

void PrintTo(const KernelTestParam& param, std::ostream* os) {
  const bool emulated = param.emulated != MatrixUnit::kNone;
  if (!emulated || param.device != runtime::DeviceKind::kHost)
    *os << TestNameOf(param.device) << "_";
#if REPRISE_WITH_EMULATOR
  if (emulated) *os << "emulated_" << NameOf(param.emulated) << "_";
#endif
  *os << runtime::NameOf(param.dtype);
  if (param.kv) *os << "_kv_" << runtime::NameOf(*param.kv);
}

absl::StatusOr<std::unique_ptr<runtime::Device>> MakeTestDevice(const KernelTestParam& param,
                                                                int host_threads) {
  // A bound of one microsecond shuffles the blocks and never sleeps.
  constexpr runtime::TestDelays kShuffle{.max_us = 1};
  const runtime::DeviceOptions options{.kind = param.device, .host_threads = host_threads};
#if REPRISE_WITH_EMULATOR
  if (param.emulated != MatrixUnit::kNone && param.device == runtime::DeviceKind::kHip) {
    const auto kernels = EmulatedKernels(param.emulated);
    return MakeFakeHipDevice(
        {.kernels = {kernels.begin(), kernels.end()}, .host_functions = false});
  }
  if (param.emulated != MatrixUnit::kNone)
    return CreateEmulatedDevice(param.emulated, options, kShuffle);
#else
  if (param.emulated != runtime::MatrixUnit::kNone)
    return absl::UnimplementedError("this build has no emulated devices");
#endif
  return MakeDevice(options, kShuffle);
}

std::vector<KernelTestParam> EveryDeviceAndDType() {
  return EveryDeviceWith({runtime::DType::kF32, runtime::DType::kBf16, runtime::DType::kF16});
}

std::vector<KernelTestParam> EveryDeviceDTypeAndKv() {
  std::vector<KernelTestParam> params = EveryDeviceAndDType();
  for (KernelTestParam param : EveryDeviceAndDType()) {
    for (const runtime::DType kv : {runtime::DType::kE4m3, runtime::DType::kE5m2}) {
      // Emulation is slow: there what has kernels of its own, and one that has not.
      const bool emulated = param.emulated != MatrixUnit::kNone;
      const bool one_of_its_kind =
          param.emulated == MatrixUnit::kMma && param.dtype == runtime::DType::kBf16;
      if (emulated && !one_of_its_kind &&
          (kv == runtime::DType::kE5m2 || param.dtype == runtime::DType::kF32))
        continue;
      param.kv = kv;
      params.push_back(param);
    }
  }
  return params;
}

std::vector<KernelTestParam> EveryKernelTestDevice() {
  return EveryDeviceWith({runtime::DType::kF32});
}

std::string NameOfParam(const ::testing::TestParamInfo<KernelTestParam>& info) {
  return ::testing::PrintToString(info.param);
}

void KernelTest::SetUp() {
  if (const std::string why = WhyNoDevice(GetParam().device); !why.empty()) GTEST_SKIP() << why;
  ASSERT_OK_AND_ASSIGN(device_, MakeTestDevice(GetParam()));
  ASSERT_OK_AND_ASSIGN(stream_, device_->CreateStream());
  ASSERT_OK_AND_ASSIGN(kernels_, kernels::KernelSet::Load(*device_, dtype()));
}

void ExpectNear(std::span<const double> got, const Expected& expected, runtime::DType dtype) {
  ASSERT_EQ(expected.value.size(), expected.slack.size());
  ASSERT_GE(got.size(), expected.value.size());
  size_t num_wrong = 0, worst = 0;
  double worst_ratio = 1.0;
  for (size_t i = 0; i < expected.value.size(); ++i) {
    const double want = expected.value[i], slack = expected.slack[i];
    const double allowed = slack + HalfUlp(dtype, std::fabs(want) + slack);
    const double ratio = std::fabs(got[i] - want) / allowed;
    if (ratio <= 1.0) continue;
    ++num_wrong;
    // A NaN is worse than any number.
    if (ratio > worst_ratio || (std::isnan(ratio) && !std::isnan(worst_ratio))) {
      worst = i;
      worst_ratio = ratio;
    }
  }
  EXPECT_EQ(num_wrong, 0u) << "of " << expected.value.size() << "; worst at " << worst << ": got "
                           << got[worst] << ", want " << expected.value[worst] << ", allowed "
                           << expected.slack[worst] << " and one rounding, off by " << worst_ratio
                           << " times that";
  size_t num_touched = 0;
  for (size_t i = expected.value.size(); i < got.size(); ++i) num_touched += !std::isnan(got[i]);
  EXPECT_EQ(num_touched, 0u) << "elements beyond the live ones were written";
}

}  // namespace reprise::testing
