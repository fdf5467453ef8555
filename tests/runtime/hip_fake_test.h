// SPDX-License-Identifier: Apache-2.0
// Fixture of the hip device's own tests: the device over a fake library, in both releases that the
// fake knows.
//
//   class HipDeviceTest : public HipFakeTest {};
//   REPRISE_ON_EVERY_HIP_RELEASE(HipDeviceTest);
#ifndef REPRISE_TESTS_RUNTIME_HIP_FAKE_TEST_H_
#define REPRISE_TESTS_RUNTIME_HIP_FAKE_TEST_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "tests/testing/fake_hip/fake_hip_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {

// Each test gets a fresh machine, and leaves nothing alive on it.
class HipFakeTest : public ::testing::TestWithParam<testing::FakeHipRelease> {
 protected:
  HipFakeTest() : fake_(GetParam()) { fake_.Reset(); }
  ~HipFakeTest() override {
    stream_ = nullptr;
    device_ = nullptr;
    const testing::FakeHipCounts counts = fake_.counts();
    EXPECT_EQ(counts.allocations, 0);
    EXPECT_EQ(counts.mapped, 0);
    EXPECT_EQ(counts.streams, 0);
    EXPECT_EQ(counts.graphs, 0);
    EXPECT_EQ(counts.execs, 0);
    EXPECT_EQ(counts.modules, 0);
    fake_.Reset();
  }
  absl::StatusOr<std::unique_ptr<Device>> Make(int ordinal = 0) {
    return Device::Create({.kind = DeviceKind::kHip,
                           .ordinal = ordinal,
                           .hip_library = testing::FakeHipPath(GetParam())});
  }
  void MakeStream(int ordinal = 0) {
    auto device = Make(ordinal);
    ASSERT_OK(device);
    device_ = *std::move(device);
    auto stream = device_->CreateStream();
    ASSERT_OK(stream);
    stream_ = *std::move(stream);
  }
  // What a message says of an error: 5.2 has no texts.
  std::string Said(const std::string& text, const std::string& name) const {
    return GetParam() == testing::FakeHipRelease::kCurrent ? text + " (" + name + ")" : name;
  }
  // An image of the probe kernels, as code objects for these architectures.
  KernelImage Image(const std::vector<std::string>& architectures) {
    code_.clear();
    spans_.clear();
    for (const std::string& architecture : architectures) {
      code_.push_back(
          std::make_unique<testing::FakeHipCode>(testing::ProbeImage().kernels, architecture));
      spans_.push_back(code_.back()->bytes());
    }
    return {
        .kernels = testing::ProbeImage().kernels, .cuda_fatbins = {}, .hip_code_objects = spans_};
  }
  Kernel Affine() {
    auto module = device_->Load(Image({"gfx942"}));
    EXPECT_OK(module);
    auto kernel = (*module)->Find(testing::kProbeAffine);
    EXPECT_OK(kernel);
    return *kernel;
  }

  testing::FakeHip fake_;
  std::vector<std::unique_ptr<testing::FakeHipCode>> code_;
  std::vector<std::span<const std::byte>> spans_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace reprise::runtime

#define REPRISE_ON_EVERY_HIP_RELEASE(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(                                                             \
      Releases, suite,                                                                  \
      ::testing::Values(::reprise::testing::FakeHipRelease::kCurrent,                   \
                        ::reprise::testing::FakeHipRelease::kRocm52),                   \
      [](const ::testing::TestParamInfo<::reprise::testing::FakeHipRelease>& info) {    \
        return info.param == ::reprise::testing::FakeHipRelease::kCurrent ? "current"   \
                                                                          : "rocm_5_2"; \
      })

#endif  // REPRISE_TESTS_RUNTIME_HIP_FAKE_TEST_H_
