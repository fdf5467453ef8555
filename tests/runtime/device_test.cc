// SPDX-License-Identifier: Apache-2.0
// Which devices there are, and what asking for a missing one answers.
#include "runtime/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

TEST(Device, KindsHaveNames) {
  EXPECT_EQ(NameOf(DeviceKind::kHost), "host");
  EXPECT_EQ(NameOf(DeviceKind::kCuda), "cuda");
  EXPECT_EQ(NameOf(DeviceKind::kHip), "hip");
}

TEST(Device, HostIsTheDefaultAndAlwaysThere) {
  ASSERT_OK_AND_ASSIGN(auto device, Device::Create({}));
  EXPECT_EQ(device->kind(), DeviceKind::kHost);
  EXPECT_EQ(CompiledDeviceKinds().back(), DeviceKind::kHost);
}

TEST(Device, EveryListedKindCanBeCreated) {
  for (const DeviceKind kind : CompiledDeviceKinds()) {
    EXPECT_OK(Device::Create({.kind = kind})) << NameOf(kind);
  }
}

TEST(Device, UnknownKindIsRefused) {
  EXPECT_THAT(Device::Create({.kind = static_cast<DeviceKind>(77)}),
              StatusIs(absl::StatusCode::kInvalidArgument, "device kind is 77"));
}

TEST(Device, CudaWithoutAGpuIsUnavailableAndSaysWhy) {
  std::string why;
  if (CountCudaDevices(&why) > 0) GTEST_SKIP() << "this machine has a CUDA device";
  EXPECT_FALSE(why.empty());
  EXPECT_EQ(CountCudaDevices(nullptr), 0);
  EXPECT_THAT(Device::Create({.kind = DeviceKind::kCuda}),
              StatusIs(absl::StatusCode::kUnavailable, why));
  EXPECT_THAT(CompiledDeviceKinds(), ::testing::Not(::testing::Contains(DeviceKind::kCuda)));
}

TEST(Device, CudaOrdinalBeyondTheMachineIsUnavailable) {
  std::string why;
  const int count = CountCudaDevices(&why);
  if (count == 0) GTEST_SKIP() << "no CUDA device: " << why;
  EXPECT_THAT(
      Device::Create({.kind = DeviceKind::kCuda, .ordinal = count}),
      StatusIs(absl::StatusCode::kUnavailable, "this machine has " + std::to_string(count)));
  EXPECT_THAT(Device::Create({.kind = DeviceKind::kCuda, .ordinal = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, "ordinal is -1"));
}

}  // namespace
}  // namespace reprise::runtime
