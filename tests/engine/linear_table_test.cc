// SPDX-License-Identifier: Apache-2.0
// An engine with a linear table: its graphs have the kernels that the table names, rows keep the
// bits that they have without, and a table that cannot serve is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "engine/linear_table_text.h"
#include "kernels/linear/instances.h"
#include "tests/engine/engine_checks.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::runtime::MatrixUnit;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

constexpr int64_t kHidden = 96, kIntermediate = 648;

const kernels::KernelInstance* Kernel(const kernels::KernelFamily& family, DType dtype, int tile) {
  for (const kernels::KernelInstance& instance : kernels::kLinearInstances)
    if (instance.family == &family && instance.tile == tile &&
        instance.activation == kernels::ElementFormatOf(dtype))
      return &instance;
  return nullptr;
}

// ---- where several kernels have the same bits ----

constexpr KernelTestParam kDevices[] = {
#if REPRISE_WITH_EMULATOR
    {.dtype = DType::kBf16, .emulated = MatrixUnit::kMma},
#endif
    {.device = DeviceKind::kCuda, .dtype = DType::kBf16}};

class LinearTableTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(GetParam().device); !why.empty())
      GTEST_SKIP() << why;
  }
  std::unique_ptr<runtime::Device> Device() const {
    auto device = testing::MakeTestDevice(GetParam());
    EXPECT_OK(device);
    return *std::move(device);
  }
  static TestEngineOptions Options(LinearPolicy linear) {
    TestEngineOptions options{.dtype = GetParam().dtype};
    options.model.hidden_size = kHidden;
    options.model.intermediate_size = kIntermediate;
    options.engine.linear = linear;
    options.engine.max_rows = 24;
    options.engine.decode_buckets = {2, 8, 24};
    options.engine.mixed_buckets = {32};
    return options;
  }
  // `down`, the one layer with so many inputs, by other kernels than its own.
  static std::string DownTable(const std::string& device, const kernels::KernelFamily& family,
                               int tile, uint32_t first_rows, uint32_t last_rows) {
    return LinearTableText({.device = device,
                            .dtype = GetParam().dtype,
                            .table = {{.out_features = kHidden,
                                       .in_features = kIntermediate,
                                       .first_rows = first_rows,
                                       .last_rows = last_rows,
                                       .kernel = Kernel(family, GetParam().dtype, tile)}}});
  }
  // Kernels that the table chose, in a graph, by name.
  static std::vector<std::string> FromTable(DecodeEngine& engine, const std::string& graph) {
    std::vector<std::string> names;
    const auto nodes = EngineProfiler(engine).ListNodes(graph);
    EXPECT_OK(nodes);
    for (const graphs::GraphNode& node : *nodes)
      if (node.from_table) names.push_back(node.kernel);
    return names;
  }
  static std::vector<Token> Generate(DecodeEngine& engine) {
    EngineDriver driver(engine);
    return driver.Generate({.row = 1, .prompt = RandomPrompt(3, 9)}, 4);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, LinearTableTest, ::testing::ValuesIn(kDevices),
                         testing::NameOfParam);

TEST_P(LinearTableTest, GraphsHaveItsKernelsInItsBucketsAndRowsTheirBits) {
  TestEngineOptions options = Options(LinearPolicy::kPacked);
  const TestEngine plain = MakeTestEngine(options, Device());
  EXPECT_FALSE(plain.engine->info().linear_table_ranges.has_value());
  EXPECT_TRUE(FromTable(*plain.engine, "decode/8").empty());
  const std::string device = plain.engine->info().device.name;
  options.engine.linear_table = DownTable(device, kernels::kLinearPacked, 32, 1, 8);
  const TestEngine tabled = MakeTestEngine(options, Device());
  EXPECT_EQ(tabled.engine->info().linear_table_ranges, 1u);
  const auto layers = static_cast<size_t>(tabled.engine->info().model.num_layers);
  const std::vector<std::string> downs(layers, "reprise_linear_packed_bf16_32");
  EXPECT_EQ(FromTable(*tabled.engine, "decode/2"), downs);
  EXPECT_EQ(FromTable(*tabled.engine, "decode/8"), downs);
  EXPECT_TRUE(FromTable(*tabled.engine, "decode/24").empty());
  EXPECT_TRUE(FromTable(*tabled.engine, "mixed/32").empty());
  EXPECT_EQ(Generate(*tabled.engine), Generate(*plain.engine));
  // linear_packed adds to no residual stream: the layers do it with kernels of their own.
  EXPECT_GE(CountLaunches(*tabled.engine, "decode/2", "rms_norm"),
            CountLaunches(*plain.engine, "decode/2", "rms_norm"));
}

TEST_P(LinearTableTest, ARowsBitsAreItsOwn) {
  TestEngineOptions options = Options(LinearPolicy::kPacked);
  const std::string device = Device()->properties().name;
  options.engine.linear_table = DownTable(device, kernels::kLinearPacked, 64, 1, 24);
  const TestEngine tabled = MakeTestEngine(options, Device());
  ExpectARowsBitsAreItsOwn(*tabled.engine);
}

// Row-major weights have partial sums, for which a wider tile needs more room.
TEST_P(LinearTableTest, WiderTilesOfRowMajorWeightsHaveTheirRoom) {
  TestEngineOptions options = Options(LinearPolicy::kRowMajor);
  const TestEngine plain = MakeTestEngine(options, Device());
  options.engine.linear_table =
      DownTable(plain.engine->info().device.name, kernels::kLinearMatrix, 64, 1, 24);
  const TestEngine tabled = MakeTestEngine(options, Device());
  EXPECT_FALSE(FromTable(*tabled.engine, "decode/2").empty());
  EXPECT_EQ(Generate(*tabled.engine), Generate(*plain.engine));
}

// The table is for the layout that its kernels read; for the other one it says nothing.
TEST_P(LinearTableTest, SaysNothingOfWeightsThatLieOtherwise) {
  TestEngineOptions options = Options(LinearPolicy::kRowMajor);
  options.engine.linear_table =
      DownTable(Device()->properties().name, kernels::kLinearPacked, 32, 1, 24);
  const TestEngine tabled = MakeTestEngine(options, Device());
  EXPECT_TRUE(FromTable(*tabled.engine, "decode/2").empty());
}

TEST_P(LinearTableTest, NewBucketsFollowItToo) {
  TestEngineOptions options = Options(LinearPolicy::kPacked);
  options.engine.linear_table =
      DownTable(Device()->properties().name, kernels::kLinearPacked, 32, 3, 6);
  const TestEngine tabled = MakeTestEngine(options, Device());
  EXPECT_TRUE(FromTable(*tabled.engine, "decode/8").empty());
  ASSERT_OK(tabled.engine->SetBuckets({.decode = {4, 24}}));
  EXPECT_FALSE(FromTable(*tabled.engine, "decode/4").empty());
}

// A kernel that is there, but not for so many rows.
TEST_P(LinearTableTest, RefusesKernelsThatCannotTakeTheRows) {
  TestEngineOptions options = Options(LinearPolicy::kRowMajor);
  const std::unique_ptr<runtime::Device> device = Device();
  options.engine.linear_table =
      DownTable(device->properties().name, kernels::kLinearMatrix, 16, 1, 24);
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel(options.model, directory.path()));
  EXPECT_THAT(
      DecodeEngine::Create(*device, {.directory = directory.path()}, options.engine).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "linear table: 96x648 of bf16, 1 to 24 rows: got kernel "
               "reprise_linear_matrix_bf16_16 on "));
}

// ---- on the host, which has one kernel for each format ----

class LinearTableOnHostTest : public ::testing::Test {
 protected:
  LinearTableOnHostTest() {
    auto device = testing::MakeDevice(DeviceKind::kHost);
    EXPECT_OK(device);
    device_ = *std::move(device);
    EXPECT_OK(testing::WriteTinyModel({}, directory_.path()));
  }
  std::string Table(const std::string& device, const kernels::KernelInstance* kernel) const {
    NamedLinearTable named{.device = device, .dtype = DType::kF32};
    if (kernel != nullptr)
      named.table.push_back({.out_features = 64, .in_features = 32, .kernel = kernel});
    return LinearTableText(named);
  }
  std::string name() const { return device_->properties().name; }
  absl::Status Start(const std::string& table, LinearPolicy linear = LinearPolicy::kTuned) const {
    DecodeEngineOptions options = testing::SmallEngineOptions();
    options.dtype = DType::kF32;
    options.dtype_from_checkpoint = false;
    options.linear = linear;
    options.linear_table = table;
    return DecodeEngine::Create(*device_, {.directory = directory_.path()}, options).status();
  }

 private:
  testing::TemporaryDirectory directory_;
  std::unique_ptr<runtime::Device> device_;
};

TEST_F(LinearTableOnHostTest, TakesATableWithoutEntries) {
  EXPECT_OK(Start(Table(name(), nullptr)));
  EXPECT_OK(Start(Table(name(), Kernel(kernels::kLinearNative, DType::kF32, 0))));
}

TEST_F(LinearTableOnHostTest, RefusesTablesThatCannotServe) {
  EXPECT_THAT(Start("{"), StatusIs(absl::StatusCode::kInvalidArgument, "linear table"));
  EXPECT_THAT(Start(Table("another device", nullptr)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "linear table: made for device 'another device', got '"));
  // Its bits are not those of linear_native.
  EXPECT_THAT(Start(Table(name(), Kernel(kernels::kLinearPortable, DType::kF32, 0))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "linear table: 64x32 of f32, 1 to 1 rows: got kernel "
                       "reprise_linear_portable_f32 on "));
  EXPECT_THAT(Start(Table(name(), nullptr), LinearPolicy::kPortable),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "linear table: got one with linear layers that are portable; allowed"));
}

}  // namespace
}  // namespace reprise::engine
