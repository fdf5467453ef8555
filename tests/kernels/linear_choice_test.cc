// SPDX-License-Identifier: Apache-2.0
// Which kernel a launch of linear takes by a table and without, and which tables are refused. That
// all of them have the same bits: the tests of each format.
#include "kernels/linear/linear_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/linear/instances.h"
#include "kernels/linear/linear.h"
#include "kernels/step_kernel/launch_list.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::KernelFamily;
using kernels::KernelSet;
using kernels::LinearTable;
using kernels::LinearTableEntry;
using kernels::LinearWeights;
using kernels::LoadedKernel;
using kernels::WeightLayout;
using runtime::DType;

class LinearChoiceTest : public KernelTest {
 protected:
  // One whose table may be set.
  std::unique_ptr<KernelSet> Set() {
    auto set = KernelSet::Load(device(), dtype());
    EXPECT_OK(set);
    return *std::move(set);
  }
  bool HasGroups() const {
    return dtype() != DType::kF32 && kernels().traits().group_products &&
           kernels().Find(kernels::kLinearStream, 16) != nullptr;
  }
  bool HasMatrix() const {
    return dtype() != DType::kF32 && kernels().Find(kernels::kLinearMatrix) != nullptr;
  }
  LinearWeights Weights(WeightLayout layout, int64_t out_features = 64,
                        int64_t in_features = 512) const {
    return {.format = kernels::WeightFormatOf(dtype()),
            .layout = layout,
            .data = memory_,
            .out_features = out_features,
            .in_features = in_features};
  }
  LinearTableEntry Entry(const KernelFamily& family, int tile, uint32_t first_rows,
                         uint32_t last_rows) const {
    return {.out_features = 64,
            .in_features = 512,
            .first_rows = first_rows,
            .last_rows = last_rows,
            .kernel = kernels().Get(family, tile).instance};
  }
  // What Linear launches.
  struct Launched {
    std::string kernel;
    bool from_table = false;
    bool operator==(const Launched&) const = default;
  };
  Launched Launch(const KernelSet& set, const LinearWeights& weights, uint32_t rows,
                  kernels::LinearCandidate candidate = kernels::LinearCandidate::kBest) {
    kernels::LaunchList list;
    kernels::LinearArgs args{.x = memory_, .out = out_, .num_rows = &live_};
    args.silu_mul = weights.layout == WeightLayout::kPackedPairs ? 1 : 0;
    EXPECT_OK(Linear(list, set, weights, args, rows, candidate));
    if (list.launches().size() != 1) return {};
    const kernels::ListedLaunch& launch = list.launches()[0];
    return {std::string(launch.kernel.name), launch.shape.label.from_table};
  }

 private:
  // Nothing runs, so that nothing of it is read.
  alignas(16) const float memory_[4] = {};
  alignas(16) float out_[4] = {};
  const uint32_t live_ = 1;
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearChoiceTest);

std::vector<std::string> NamesOf(const std::vector<const LoadedKernel*>& kernels) {
  std::vector<std::string> names;
  for (const LoadedKernel* const kernel : kernels) names.emplace_back(kernel->instance->symbol);
  return names;
}

TEST_P(LinearChoiceTest, ATableDecidesForItsShapeLayoutAndRowsAlone) {
  if (!HasGroups()) GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  const std::unique_ptr<KernelSet> set = Set();
  set->linear_table = {Entry(kernels::kLinearStream, 16, 3, 5),
                       Entry(kernels::kLinearGroup, 16, 7, 9)};
  ASSERT_OK(CheckLinearTable(*set, set->linear_table));
  const auto own = [&](const LinearWeights& weights, uint32_t rows) {
    return Launch(kernels(), weights, rows);
  };
  const std::string stream(set->linear_table[0].kernel->symbol);
  const std::string group(set->linear_table[1].kernel->symbol);
  for (const WeightLayout layout : {WeightLayout::kPacked, WeightLayout::kPackedPairs}) {
    const LinearWeights weights = Weights(layout);
    for (const uint32_t rows : {1u, 2u, 6u, 10u, 200u}) {
      EXPECT_EQ(Launch(*set, weights, rows), own(weights, rows)) << rows;
      EXPECT_FALSE(own(weights, rows).from_table);
    }
    for (const uint32_t rows : {3u, 4u, 5u})
      EXPECT_EQ(Launch(*set, weights, rows), (LinearChoiceTest::Launched{stream, true})) << rows;
    for (const uint32_t rows : {7u, 8u, 9u})
      EXPECT_EQ(Launch(*set, weights, rows), (LinearChoiceTest::Launched{group, true})) << rows;
  }
  for (const LinearWeights& other :
       {Weights(WeightLayout::kPacked, 64, 520), Weights(WeightLayout::kPacked, 80, 512),
        Weights(WeightLayout::kRowMajor)})
    EXPECT_EQ(Launch(*set, other, 4), own(other, 4));
  // The reference stays what it is.
  EXPECT_EQ(
      Launch(*set, Weights(WeightLayout::kPacked), 4, kernels::LinearCandidate::kPortable),
      Launch(kernels(), Weights(WeightLayout::kPacked), 4, kernels::LinearCandidate::kPortable));
}

// Layers ask what a launch can do beside, and a table may change that.
TEST_P(LinearChoiceTest, NormsAndSumsFollowWhatTheTableTakes) {
  if (!HasGroups()) GTEST_SKIP() << "needs products of warpgroups, and 16 bits";
  const std::unique_ptr<KernelSet> set = Set();
  const LinearWeights weights = Weights(WeightLayout::kPacked);
  EXPECT_TRUE(LinearNormsInput(*set, weights, 4));
  EXPECT_TRUE(LinearAddsToOut(*set, weights, 8));
  set->linear_table = {Entry(kernels::kLinearStream, 16, 1, 8)};
  EXPECT_FALSE(LinearNormsInput(*set, weights, 4));
  EXPECT_FALSE(LinearAddsToOut(*set, weights, 8));
  set->linear_table = {Entry(kernels::kLinearStream, 8, 1, 8)};
  EXPECT_TRUE(LinearNormsInput(*set, weights, 2));
  EXPECT_TRUE(LinearAddsToOut(*set, weights, 2));
}

// Partial sums have room for the widest tile that a launch may have.
TEST_P(LinearChoiceTest, WiderTilesHaveRoomForTheirPartialSums) {
  if (!HasMatrix() || kernels().Find(kernels::kLinearMatrix, 64) == nullptr)
    GTEST_SKIP() << "needs matrix units, and 16 bits";
  const std::unique_ptr<KernelSet> set = Set();
  set->linear_table = {Entry(kernels::kLinearMatrix, 64, 1, 4)};
  ASSERT_OK(CheckLinearTable(*set, set->linear_table));
  EXPECT_EQ(LinearPartialFloats(*set, 4), LinearPartialFloats(kernels(), 64));
  EXPECT_GT(LinearPartialFloats(*set, 4), LinearPartialFloats(kernels(), 4));
  EXPECT_EQ(Launch(*set, Weights(WeightLayout::kRowMajor), 2).kernel,
            set->linear_table[0].kernel->symbol);
}

// The built-in choice is always one of those, whatever the shape.
TEST_P(LinearChoiceTest, TheBuiltInChoiceIsAmongThoseOfItsBits) {
  std::vector<WeightLayout> layouts = {WeightLayout::kRowMajor};
  if (dtype() != DType::kF32) layouts.push_back(WeightLayout::kPacked);
  for (const WeightLayout layout : layouts) {
    for (const int64_t in_features : {512, 516, 4096}) {
      for (const uint32_t rows : {1u, 2u, 3u, 8u, 9u, 16u, 17u, 33u, 128u, 129u, 2048u}) {
        const LinearWeights weights = Weights(layout, 144, in_features);
        const LoadedKernel* const built_in = BuiltInLinearKernel(kernels(), weights, rows);
        ASSERT_NE(built_in, nullptr);
        const auto all = LinearKernelsOfSameBits(kernels(), weights, rows);
        EXPECT_EQ(std::count(all.begin(), all.end(), built_in), 1)
            << built_in->instance->symbol << ", " << rows << " rows";
        // What takes so many rows takes fewer.
        for (const LoadedKernel* const kernel : all) {
          const auto of_one = LinearKernelsOfSameBits(kernels(), weights, 1);
          EXPECT_EQ(std::count(of_one.begin(), of_one.end(), kernel), 1)
              << kernel->instance->symbol;
        }
        if (kernels().on_host()) {
          EXPECT_EQ(all.size(), 1u);
        }
      }
    }
  }
}

TEST_P(LinearChoiceTest, RefusesKernelsThatCannotTakeTheLaunch) {
  const auto refused = [&](const LinearTableEntry& entry, const std::string& says) {
    EXPECT_THAT(CheckLinearTable(kernels(), {entry}),
                StatusIs(absl::StatusCode::kInvalidArgument, says));
  };
  // Of another type of activations, which is not loaded.
  for (const kernels::KernelInstance& instance : kernels::kLinearInstances) {
    if (kernels().Find(instance) != nullptr) continue;
    LinearTableEntry entry{.out_features = 64, .in_features = 512, .kernel = &instance};
    if (kernels::IsScaled(instance.weight)) entry.group_size = kernels::kScaleInputs;
    refused(entry, "got kernel " + std::string(instance.symbol));
    break;
  }
  if (!HasGroups()) return;
  refused(Entry(kernels::kLinearStream, 8, 1, 9),
          "linear table: 64x512 of " + std::string(NameOf(dtype())) + ", 1 to 9 rows: got kernel");
  // linear_cluster: one part of K has nothing for the second block.
  refused(Entry(kernels::kLinearCluster, 32, 1, 32), "allowed those that are there");
  LinearTableEntry odd = Entry(kernels::kLinearGroup, 32, 1, 32);
  odd.in_features = 516;  // no whole chunks: the portable kernel alone
  refused(odd,
          "allowed those that are there with the bits of the built-in choice: "
          "reprise_linear_portable");
  LinearTableEntry portable = Entry(kernels::kLinearPortable, 0, 1, 4);
  refused(portable, "reprise_linear_matrix");
}

// By every kernel of packed weights with matrix units, and by all tiles.
TEST_P(LinearChoiceTest, MatrixUnitsOfferSeveral) {
  if (!HasMatrix()) GTEST_SKIP() << "needs matrix units, and 16 bits";
  const auto row_major =
      NamesOf(LinearKernelsOfSameBits(kernels(), Weights(WeightLayout::kRowMajor), 4));
  for (const std::string& name : row_major) EXPECT_NE(name.find("_matrix_"), std::string::npos);
  EXPECT_GE(row_major.size(), 3u);
  const auto packed =
      NamesOf(LinearKernelsOfSameBits(kernels(), Weights(WeightLayout::kPacked), 4));
  for (const std::string& name : packed) EXPECT_EQ(name.find("_matrix_"), std::string::npos);
  EXPECT_GE(packed.size(), HasGroups() ? 9u : 3u);
}

}  // namespace
}  // namespace reprise::testing
