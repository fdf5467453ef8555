// SPDX-License-Identifier: Apache-2.0
// Runs a test on every kind of device: on the host always, on CUDA where there is a GPU, and
// skipping with the reason where not; on HIP over the fake library (fake_hip/fake_hip_device.h),
// GPU or not.
//
//   class MyTest : public ::testing::TestWithParam<runtime::DeviceKind> { ... };
//   TEST_P(MyTest, DoesX) { REPRISE_DEVICE_OR_SKIP(device); ... }
//   REPRISE_ON_EVERY_DEVICE(MyTest);
#ifndef REPRISE_TESTS_TESTING_ANY_DEVICE_H_
#define REPRISE_TESTS_TESTING_ANY_DEVICE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/device.h"
#include "runtime/host/host_device.h"
#include "tests/testing/fake_hip/fake_hip_device.h"

namespace reprise::testing {

// "", or why a device of this kind cannot be had here.
inline std::string WhyNoDevice(runtime::DeviceKind kind) {
  std::string why;
  if (kind != runtime::DeviceKind::kCuda || runtime::CountCudaDevices(&why) > 0) return "";
  return "no CUDA device: " + why;
}

// `delays`: of the host device; no other kind looks at them.
inline absl::StatusOr<std::unique_ptr<runtime::Device>> MakeDevice(
    const runtime::DeviceOptions& options, const runtime::TestDelays& delays = {}) {
  switch (options.kind) {
    case runtime::DeviceKind::kHost:
      return runtime::CreateHostDevice(options, delays);
    case runtime::DeviceKind::kHip:
      return MakeFakeHipDevice({.ordinal = options.ordinal});
    case runtime::DeviceKind::kCuda:
      break;
  }
  return runtime::Device::Create(options);
}
inline absl::StatusOr<std::unique_ptr<runtime::Device>> MakeDevice(runtime::DeviceKind kind) {
  return MakeDevice(runtime::DeviceOptions{.kind = kind});
}

// As in the names of tests.
inline std::string TestNameOf(runtime::DeviceKind kind) {
  return kind == runtime::DeviceKind::kHip ? "hip_over_fake" : std::string(runtime::NameOf(kind));
}
inline std::string DeviceKindName(const ::testing::TestParamInfo<runtime::DeviceKind>& info) {
  return TestNameOf(info.param);
}

}  // namespace reprise::testing

// Declares `name`, a std::unique_ptr<Device> of the test's parameter.
#define REPRISE_DEVICE_OR_SKIP(name)                                                       \
  if (const std::string why = ::reprise::testing::WhyNoDevice(GetParam()); !why.empty()) { \
    GTEST_SKIP() << why;                                                                   \
  }                                                                                        \
  auto name##_or = ::reprise::testing::MakeDevice(GetParam());                             \
  ASSERT_TRUE(name##_or.ok()) << name##_or.status().ToString();                            \
  const std::unique_ptr<::reprise::runtime::Device> name = *std::move(name##_or)

#define REPRISE_ON_EVERY_DEVICE(suite)                                              \
  INSTANTIATE_TEST_SUITE_P(Devices, suite,                                          \
                           ::testing::Values(::reprise::runtime::DeviceKind::kHost, \
                                             ::reprise::runtime::DeviceKind::kCuda, \
                                             ::reprise::runtime::DeviceKind::kHip), \
                           ::reprise::testing::DeviceKindName)

#endif  // REPRISE_TESTS_TESTING_ANY_DEVICE_H_
