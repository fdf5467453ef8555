// SPDX-License-Identifier: Apache-2.0
#include "kernels/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/device/traits.h"
#include "kernels/kernel_set.h"
#include "kernels/stamp/stamp_args.h"
#include "runtime/device.h"
#include "tests/kernels/kernel_shapes.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/cases/experts_cases.h"
#include "tests/testing/cases/linear_cases.h"
#if REPRISE_WITH_EMULATOR
#include "tests/emulated/emulated_kernels.h"
#endif
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::KernelInstance;
using runtime::MatrixUnit;

std::vector<KernelInstance> AllInstances() {
  std::vector<KernelInstance> all;
  for (const auto& table : kernels::kInstanceTables)
    all.insert(all.end(), table.begin(), table.end());
  return all;
}

TEST(Catalog, NamesEveryKernelOnce) {
  std::set<std::string_view> names;
  for (const runtime::KernelDef& kernel : kernels::Catalog().kernels)
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
  EXPECT_FALSE(names.empty());
}

// The tables say the same as the names, where both speak of a thing.
TEST(Catalog, InstancesAreNamedByTheirFamilyTypesAndTile) {
  for (const KernelInstance& instance : AllInstances()) {
    std::string name = absl::StrCat(
        "reprise_", absl::string_view(instance.family->name.data(), instance.family->name.size()));
    const std::string activation(NameOf(instance.activation)), weight(NameOf(instance.weight));
    if (activation != "none") absl::StrAppend(&name, "_", activation);
    // Weights that are not of the format of activations are in the family's name.
    if (weight != "none" && weight != activation) {
      const std::map<std::string, std::string_view> kEnds = {{"int4", "_int4"},
                                                             {"mxfp4", "_mxfp4"},
                                                             {"fp8_e4m3_rounded", "_rounded"},
                                                             {"fp8_e4m3", "_fp8"}};
      ASSERT_TRUE(kEnds.contains(weight)) << name;
      EXPECT_TRUE(instance.family->name.ends_with(kEnds.at(weight))) << name;
    }
    if (instance.kv == kernels::ElementFormat::kFp8)
      absl::StrAppend(&name, "_", std::string(NameOf(instance.kv)));
    if (instance.tile != 0) absl::StrAppend(&name, "_", instance.tile);
    if (instance.family == &kernels::kLinearMatrix && instance.tile == 0) name += "_whole";
    if (instance.family == &kernels::kLinearPacked && instance.tile == 0) name += "_any";
    if (instance.family == &kernels::kLinearPackedFp8 && instance.tile == 0) name += "_any";
    if (instance.family == &kernels::kLinearPackedInt4) name += "_any";
    EXPECT_EQ(instance.symbol, name);
    EXPECT_TRUE(instance.family->name.find(instance.family->op) == 0 ||
                instance.family->op == "fill" || instance.family->op == "memory_probe" ||
                instance.family->op == "step" || instance.family->op == "block_copy")
        << name;
  }
}

TEST(Catalog, StyleAndDeviceAgree) {
  for (const KernelInstance& instance : AllInstances()) {
    SCOPED_TRACE(instance.symbol);
    const bool on_host = instance.Fits(kernels::TraitsOf(MatrixUnit::kNone));
    EXPECT_EQ(on_host, instance.style != kernels::KernelStyle::kThread);
    for (const MatrixUnit unit : {MatrixUnit::kMma, MatrixUnit::kMfma, MatrixUnit::kWmma}) {
      const bool fits = instance.Fits(kernels::TraitsOf(unit));
      if (instance.style != kernels::KernelStyle::kThread) {
        EXPECT_EQ(fits, instance.style == kernels::KernelStyle::kBlock);
      } else if (unit == MatrixUnit::kMma) {
        EXPECT_TRUE(fits);
      }
    }
  }
}

// What a unit lacks: tiles narrower than its fragments, what 64 KB of shared memory do not hold,
// bulk copies, and what is made of them.
TEST(Catalog, UnitsWithoutLargeTilesHaveAllOtherKernels) {
  for (const MatrixUnit unit : {MatrixUnit::kMfma, MatrixUnit::kWmma}) {
    std::set<std::string_view> missing;
    for (const KernelInstance& instance : AllInstances())
      if (instance.style != kernels::KernelStyle::kHost && !instance.Fits(kernels::TraitsOf(unit)))
        if (instance.family != &kernels::kAttentionDecodeBulk &&
            instance.family != &kernels::kAttentionDecodeBulkTiles &&
            instance.family != &kernels::kAttentionPrefillGroup &&
            instance.family != &kernels::kLinearStream &&
            instance.family != &kernels::kLinearStreamFp8 &&
            instance.family != &kernels::kLinearStreamInt4 &&
            instance.family != &kernels::kLinearStreamFineInt4 &&
            instance.family != &kernels::kLinearGroup &&
            instance.family != &kernels::kLinearCluster &&
            instance.family != &kernels::kLinearGroupFp8 &&
            instance.family != &kernels::kLinearGroupInt4 &&
            instance.family != &kernels::kLinearGroupRounded &&
            instance.family != &kernels::kStepKernel)
          missing.insert(instance.symbol);
    EXPECT_THAT(missing, ::testing::UnorderedElementsAre(
                             "reprise_linear_matrix_bf16_8", "reprise_linear_matrix_f16_8",
                             "reprise_linear_matrix_bf16_128", "reprise_linear_matrix_f16_128",
                             "reprise_attention_decode_matrix_bf16_256",
                             "reprise_attention_decode_matrix_f16_256",
                             "reprise_attention_prefill_matrix_bf16_256",
                             "reprise_attention_prefill_matrix_f16_256"));
  }
}

// So that tools/kernel_resources.py knows what a launch of every kernel takes of a multiprocessor.
TEST(Catalog, EveryFamilyOfGpuCodeHasAShapeOnce) {
  std::set<std::string_view> families;
  for (const KernelInstance& instance : AllInstances())
    if (instance.style != kernels::KernelStyle::kHost) families.insert(instance.family->name);
  std::vector<std::string_view> shapes;
  for (const FamilyShape& shape : kFamilyShapes) shapes.push_back(shape.family->name);
  EXPECT_THAT(shapes, ::testing::UnorderedElementsAreArray(families));
}

#if REPRISE_WITH_EMULATOR
// What fits a unit is emulated, but the host's own, which are no GPU code; nothing else is.
TEST(Catalog, EveryKernelThatFitsAUnitIsEmulated) {
  for (const MatrixUnit unit : {MatrixUnit::kMma, MatrixUnit::kMfma, MatrixUnit::kWmma}) {
    std::set<std::string_view> wanted, emulated;
    for (const KernelInstance& instance : AllInstances())
      if (instance.style != kernels::KernelStyle::kHost && instance.Fits(kernels::TraitsOf(unit)))
        wanted.insert(instance.symbol);
    std::set<runtime::HostKernelFn> functions;
    for (const runtime::KernelDef& kernel : EmulatedKernels(unit)) {
      EXPECT_TRUE(emulated.insert(kernel.name).second) << kernel.name;
      EXPECT_NE(kernel.host, nullptr) << kernel.name;
      EXPECT_TRUE(functions.insert(kernel.host).second) << kernel.name;
    }
    EXPECT_EQ(emulated, wanted);
  }
}

// An instance that is launched with nothing to do alone would pass every test. Which instance a
// case is for, on a device that has all of them: the bulk decode kernel's, or that of products of
// warpgroups, where its shape has one, or the smallest head size that holds it, and by its rows'
// query tokens; the smallest tile of rows, `whole` beyond the widest.
TEST(Catalog, EveryInstanceInThreadStyleHasACaseWithWork) {
  constexpr int64_t kTestMultiprocessors = 2;  // of emulated devices
  using Instance = std::pair<const kernels::KernelFamily*, int>;
  std::set<Instance> worked, compiled;
  const auto smallest = [](const kernels::KernelFamily& family, int size) {
    int best = 0;
    for (const KernelInstance& instance : AllInstances())
      if (instance.family == &family && instance.tile >= size &&
          (best == 0 || instance.tile < best))
        best = instance.tile;
    return Instance(&family, best);
  };
  const auto has_bulk = [](const kernels::AttentionCase& c) {
    const kernels::KvLayout kv{.num_kv_heads = c.num_kv_heads, .head_dim = c.head_dim};
    return kv.CanSwizzle() && c.block_size % kernels::kBulkChunk == 0 &&
           c.num_heads / c.num_kv_heads <= kernels::kBulkMaxGroup;
  };
  for (const kernels::AttentionCase& c : kernels::kAttentionCases) {
    for (const kernels::AttentionRow& row : c.rows) {
      if (row.num_tokens > 1 && has_bulk(c) && c.head_dim <= 128) {
        worked.emplace(&kernels::kAttentionPrefillGroup, c.head_dim);
      } else if (row.num_tokens > 1) {
        worked.insert(smallest(kernels::kAttentionPrefillMatrix, c.head_dim));
      } else if (has_bulk(c)) {
        worked.emplace(&kernels::kAttentionDecodeBulk, c.head_dim);
      } else {
        worked.insert(smallest(kernels::kAttentionDecodeMatrix, c.head_dim));
      }
    }
  }
  for (const kernels::AttentionCase& c : kernels::kAttentionPrefixCases)
    if (has_bulk(c)) worked.emplace(&kernels::kAttentionDecodeBulkTiles, c.head_dim);
  for (const kernels::LinearCase& c : kernels::kLinearCases)
    if (c.rows != 0 && c.in_features % 8 == 0) {
      const int rows = static_cast<int>(c.max_rows);
      worked.insert(smallest(kernels::kLinearMatrix, rows));
      // The last where there are no products of warpgroups. linear_fp8_test.cc, linear_int4_test.cc
      // and linear_rounded_test.cc walk the same cases.
      const kernels::PackedLayout packed{c.out_features, c.in_features};
      const int64_t tiles = packed.OutputTiles(), chunks = packed.InputTiles();
      const auto work = [&](const kernels::KernelFamily& group, const kernels::KernelFamily& stream,
                            int bits) {
        if (rows > 16 ||
            kernels::LinearGroupTakesFewRows(rows, tiles, chunks, kTestMultiprocessors, bits)) {
          worked.insert(smallest(group, static_cast<int>(kernels::LinearGroupTileRows(
                                            rows, tiles, kTestMultiprocessors, bits))));
        } else {
          worked.insert(smallest(stream, rows));
        }
      };
      if (kernels::LinearTakesCluster(rows, tiles, chunks, kTestMultiprocessors)) {
        worked.insert(smallest(kernels::kLinearCluster, rows));
      } else {
        work(kernels::kLinearGroup, kernels::kLinearStream, 16);
      }
      work(kernels::kLinearGroupFp8, kernels::kLinearStreamFp8, 8);
      if (c.in_features % 16 == 0)
        worked.insert(smallest(
            kernels::kLinearGroupRounded,
            static_cast<int>(kernels::LinearGroupTileRows(rows, tiles, kTestMultiprocessors, 8))));
      const bool fine = (c.in_features + c.out_features + c.rows) % 3 != 2;
      work(kernels::kLinearGroupInt4,
           fine ? kernels::kLinearStreamFineInt4 : kernels::kLinearStreamInt4, 4);
      if (rows > 16) worked.insert(smallest(kernels::kLinearPacked, rows));
      if (rows > 8) {
        worked.insert(smallest(kernels::kLinearPackedFp8, rows));
        worked.insert(smallest(kernels::kLinearPackedInt4, rows));
      }
    }
  for (const kernels::ExpertsCase& c : kernels::kExpertsCases)
    if (c.tokens != 0 && c.in_features % 8 == 0) {
      const bool few =
          static_cast<int>(c.max_tokens) * c.top_k <= c.num_experts * kernels::kFewExpertRows;
      worked.insert(smallest(kernels::kExpertsPacked,
                             few ? kernels::kFewExpertRows : kernels::kManyExpertRows));
    }
  // tests/kernels/experts_test.cc has cases of their own for weights of 8 and 4 bits.
  for (const int tile : {kernels::kFewExpertRows, kernels::kManyExpertRows}) {
    worked.insert(smallest(kernels::kExpertsPackedFp8, tile));
    worked.insert(smallest(kernels::kExpertsPackedInt4, tile));
    worked.insert(smallest(kernels::kExpertsPackedMxfp4, tile));
  }
  for (const KernelInstance& instance : AllInstances())
    // The step kernel's are tested in an engine (tests/engine/step_kernel_test.cc).
    if (instance.style == kernels::KernelStyle::kThread && instance.family != &kernels::kStepKernel)
      compiled.emplace(instance.family, instance.tile);
  EXPECT_EQ(worked, compiled);
}
#endif

using KernelSetTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(KernelSetTest);

TEST_P(KernelSetTest, EveryKernelThatTheDeviceCanRunIsFound) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<runtime::KernelModule> module,
                       device().Load(kernels::Catalog()));
  if (is_emulated()) GTEST_SKIP() << "the catalogue is not what an emulated device loads";
  const bool host = GetParam().device == runtime::DeviceKind::kHost;
  for (const KernelInstance& instance : AllInstances()) {
    const auto other =
        host ? kernels::KernelStyle::kThread : kernels::KernelStyle::kHost;  // not on this device
    if (instance.style == other) {
      EXPECT_THAT(module->Find(instance.symbol), StatusIs(absl::StatusCode::kNotFound, "kernel '"));
    } else if (instance.Fits(kernels().traits())) {
      EXPECT_OK(module->Find(instance.symbol)) << instance.symbol;
    }
  }
}

TEST_P(KernelSetTest, LaunchesBeyondTheSharedMemoryOfABlockAreRefused) {
  const size_t most = device().properties().max_shared_bytes;
  if (is_emulated()) {
    EXPECT_EQ(most, static_cast<size_t>(kernels::TraitsOf(GetParam().emulated).shared_bytes));
  }
  const kernels::LoadedKernel& stamp = kernels().Get(kernels::kStamp);
  EXPECT_THAT(stream().Launch(stamp.kernel, {.block = stamp.threads, .shared_bytes = most + 1},
                              kernels::StampArgs{}),
              StatusIs(absl::StatusCode::kInvalidArgument, "shared_bytes is"));
}

// All instances of its dtype that fit the device, each with a kernel of its own, and no other.
TEST_P(KernelSetTest, LoadsTheInstancesOfItsDtypeAndDevice) {
  EXPECT_EQ(kernels().dtype, dtype());
  EXPECT_EQ(kernels().device.kind, GetParam().device);
  std::set<const void*> handles;
  std::set<std::string_view> loaded, wanted;
  for (const kernels::LoadedKernel& kernel : kernels().loaded()) {
    EXPECT_EQ(kernel.kernel.name, kernel.instance->symbol);
    EXPECT_TRUE(handles.insert(kernel.kernel.handle).second) << kernel.instance->symbol;
    EXPECT_EQ(kernels().Find(*kernel.instance), &kernel);
    loaded.insert(kernel.instance->symbol);
  }
  for (const KernelInstance& instance : AllInstances()) {
    if (instance.Fits(kernels().traits()) &&
        (instance.activation == kernels::ElementFormat::kNone ||
         instance.activation == kernels::ElementFormatOf(dtype())))
      wanted.insert(instance.symbol);
  }
  EXPECT_EQ(loaded, wanted);
  EXPECT_NE(kernels().Get(kernels::kRmsNorm).kernel.name.find(runtime::NameOf(dtype())),
            std::string_view::npos);
}

}  // namespace
}  // namespace reprise::testing
