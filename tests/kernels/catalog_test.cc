// SPDX-License-Identifier: Apache-2.0
#include "kernels/catalog.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/device/traits.h"
#include "kernels/kernel_set.h"
#include "kernels/stamp/stamp_args.h"
#include "runtime/device.h"
#if REPRISE_WITH_EMULATOR
#include "tests/emulated/emulated_kernels.h"
#endif
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

TEST(Catalog, NamesEveryKernelOnce) {
  std::set<std::string_view> names;
  for (const runtime::KernelDef& kernel : kernels::Catalog().kernels)
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
  EXPECT_FALSE(names.empty());
}

#if REPRISE_WITH_EMULATOR
// Kernels that the emulator does not run, with the reason. A kernel is emulated or is here.
constexpr std::pair<std::string_view, const char*> kNotEmulated[] = {
    {"reprise_linear_native_f32", "the host's own, no GPU code"},
    {"reprise_linear_native_bf16", "the host's own, no GPU code"},
    {"reprise_linear_native_f16", "the host's own, no GPU code"},
};

TEST(Catalog, EveryKernelIsEmulatedOrIsListedWithAReason) {
  std::set<std::string_view> names, accounted;
  for (const runtime::KernelDef& kernel : kernels::Catalog().kernels) names.insert(kernel.name);
  for (const auto& [name, why] : kNotEmulated) accounted.insert(name);
  for (const runtime::KernelDef& kernel : EmulatedKernels(runtime::MatrixUnit::kMma))
    EXPECT_TRUE(accounted.insert(kernel.name).second) << kernel.name;
  EXPECT_EQ(accounted, names);
}

// What a unit lacks is what its traits say does not fit, and KernelSet finds the rest.
TEST(Catalog, UnitsWithoutLargeTilesEmulateAllOtherKernels) {
  for (const runtime::MatrixUnit unit : {runtime::MatrixUnit::kMfma, runtime::MatrixUnit::kWmma}) {
    std::set<std::string_view> missing;
    for (const runtime::KernelDef& kernel : EmulatedKernels(runtime::MatrixUnit::kMma))
      missing.insert(kernel.name);
    for (const runtime::KernelDef& kernel : EmulatedKernels(unit))
      EXPECT_EQ(missing.erase(kernel.name), 1u) << kernel.name;
    for (const std::string_view name : missing)
      EXPECT_TRUE(name.ends_with("_8") || name.ends_with("_128") || name.ends_with("_256")) << name;
    EXPECT_EQ(missing.size(), 8u);
  }
}
#endif

using KernelSetTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(KernelSetTest);

TEST_P(KernelSetTest, EveryKernelThatTheDeviceCanRunIsFound) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<runtime::KernelModule> module,
                       device().Load(kernels::Catalog()));
  if (is_emulated()) GTEST_SKIP() << "the catalogue is not what an emulated device loads";
  const bool host = GetParam().device == runtime::DeviceKind::kHost;
  for (const runtime::KernelDef& kernel : kernels::Catalog().kernels) {
    const bool native_to_host = kernel.name.find("_native_") != std::string_view::npos;
    if (host ? kernel.host == nullptr : native_to_host) {
      EXPECT_THAT(module->Find(kernel.name), StatusIs(absl::StatusCode::kNotFound, "kernel '"));
    } else {
      EXPECT_OK(module->Find(kernel.name)) << kernel.name;
    }
  }
}

TEST_P(KernelSetTest, LaunchesBeyondTheSharedMemoryOfABlockAreRefused) {
  const size_t most = device().properties().max_shared_bytes;
  if (is_emulated()) {
    EXPECT_EQ(most, static_cast<size_t>(kernels::TraitsOf(GetParam().emulated).shared_bytes));
  }
  EXPECT_THAT(stream().Launch(kernels().stamp, {.block = 64, .shared_bytes = most + 1},
                              kernels::StampArgs{}),
              StatusIs(absl::StatusCode::kInvalidArgument, "shared_bytes is"));
}

TEST_P(KernelSetTest, ResolvesTheKernelsOfItsDtype) {
  EXPECT_EQ(kernels().dtype, dtype());
  EXPECT_EQ(kernels().device.kind, GetParam().device);
  EXPECT_NE(kernels().rms_norm.name.find(runtime::NameOf(dtype())), std::string_view::npos);
}

}  // namespace
}  // namespace reprise::testing
