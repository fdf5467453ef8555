// SPDX-License-Identifier: Apache-2.0
#include "kernels/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/cases.h"
#include "kernels/attention/matrix_geometry.h"
#include "kernels/device/traits.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/cases.h"
#include "kernels/linear/matrix_geometry.h"
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

// An instance that is launched with nothing to do alone would pass every test. Which instance a
// case is for: the smallest head size that holds it, and by its rows' query tokens; the smallest
// tile of rows, `whole` beyond the widest.
TEST(Catalog, EveryInstanceOfAttentionAndLinearHasACaseWithWork) {
  std::set<std::string> worked;
  const auto add = [&](const std::string& kernel, const std::string& size) {
    for (const char* dtype : {"_bf16_", "_f16_"}) worked.insert(absl::StrCat(kernel, dtype, size));
  };
  for (const kernels::AttentionCase& c : kernels::kAttentionCases) {
    const int size = kernels::kMatrixHeadSizes[kernels::MatrixHeadSizeIndex(c.head_dim)];
    for (const kernels::AttentionRow& row : c.rows)
      add(row.num_tokens == 1 ? "reprise_attention_decode_matrix"
                              : "reprise_attention_prefill_matrix",
          std::to_string(size));
  }
  for (const kernels::LinearCase& c : kernels::kLinearCases) {
    if (c.rows == 0) continue;
    const auto* tile =
        std::find_if(std::begin(kernels::kMatrixTileRows), std::end(kernels::kMatrixTileRows),
                     [&](int rows) { return static_cast<uint32_t>(rows) >= c.max_rows; });
    add("reprise_linear_matrix",
        tile == std::end(kernels::kMatrixTileRows) ? "whole" : std::to_string(*tile));
  }
  std::set<std::string> compiled;
  for (const runtime::KernelDef& kernel : EmulatedKernels(runtime::MatrixUnit::kMma))
    if (kernel.name.find("_matrix_") != std::string_view::npos) compiled.emplace(kernel.name);
  EXPECT_EQ(worked, compiled);
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
