// SPDX-License-Identifier: Apache-2.0
#include "kernels/catalog.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string_view>

#include "kernels/kernel_set.h"
#include "runtime/device.h"
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

TEST_P(KernelSetTest, ResolvesTheKernelsOfItsDtype) {
  EXPECT_EQ(kernels().dtype, dtype());
  EXPECT_EQ(kernels().device.kind, GetParam().device);
  EXPECT_NE(kernels().rms_norm.name.find(runtime::NameOf(dtype())), std::string_view::npos);
}

}  // namespace
}  // namespace reprise::testing
