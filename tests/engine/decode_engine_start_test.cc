// SPDX-License-Identifier: Apache-2.0
// DecodeEngine::Create: what it captures, what it allocates and says of it, what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "engine/start_report.h"
#include "models/decoder.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::InstrumentedDevice;
using ::reprise::testing::InstrumentedEngine;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::StatusIs;
using ::reprise::testing::TestEngine;
using ::testing::ElementsAre;

using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;

class EngineStartTest : public testing::EngineTest {
 protected:
  // Creates an engine over a fresh tiny model and forgets it; its status.
  absl::Status Start(const DecodeEngineOptions& options) const {
    testing::TemporaryDirectory directory;
    EXPECT_OK(testing::WriteTinyModel({}, directory.path()));
    auto device = testing::MakeDevice(Options().device, Options().delays);
    EXPECT_OK(device);
    return DecodeEngine::Create(**device, {.directory = directory.path()}, options).status();
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(EngineStartTest);

std::vector<std::string> Names(const std::vector<graphs::CapturedBucket>& buckets) {
  std::vector<std::string> names;
  for (const graphs::CapturedBucket& bucket : buckets) names.push_back(bucket.bucket.name);
  return names;
}

// fetch, plan, embedding; nine kernels a layer, eight where the MLP's first product takes pairs, in
// mixed graphs also attention over chunks; norm, logits and two of sampling; publish. Where linear
// layers of few rows do the work of norms, two fewer a layer.
TEST_P(EngineStartTest, GraphsHoldTheStepsKernelsAndNoOtherNode) {
  for (const int64_t layers : {1, 3}) {
    auto options = Options();
    options.model.num_layers = layers;
    const TestEngine tiny = MakeTestEngine(options);
    const EngineInfo& info = tiny.engine->info();
    // Packed weights are taken in pairs by every CUDA device that has them by default.
    const int64_t of_layer = info.linear == LinearPolicy::kPacked ? 8 : 9;
    EXPECT_THAT(Names(info.decode_buckets),
                ElementsAre("decode/1", "decode/2", "decode/4", "decode/8"));
    EXPECT_THAT(Names(info.mixed_buckets), ElementsAre("mixed/16", "mixed/64"));
    ASSERT_OK_AND_ASSIGN(const auto nodes, EngineProfiler(*tiny.engine).ListNodes("decode/1"));
    const bool streams = std::any_of(nodes.begin(), nodes.end(), [](const graphs::GraphNode& n) {
      return n.op == "linear_stream";
    });
    for (const graphs::CapturedBucket& bucket : info.decode_buckets) {
      const int64_t norms_done = streams && bucket.bucket.name != "decode/8" ? 2 : 0;
      EXPECT_EQ(bucket.num_kernel_nodes, 8 + (of_layer - norms_done) * layers)
          << bucket.bucket.name;
      EXPECT_EQ(bucket.num_other_nodes, 0) << bucket.bucket.name;
      EXPECT_GT(bucket.capture_ns, 0u);
    }
    for (const graphs::CapturedBucket& bucket : info.mixed_buckets) {
      EXPECT_EQ(bucket.num_kernel_nodes, 8 + (of_layer + 1) * layers) << bucket.bucket.name;
      EXPECT_EQ(bucket.num_other_nodes, 0) << bucket.bucket.name;
    }
  }
}

TEST_P(EngineStartTest, InfoDescribesModelDeviceAndLimits) {
  auto options = Options();
  options.engine.max_context_length = 99;
  options.engine.pipeline_depth = 3;
  const TestEngine tiny = MakeTestEngine(options);
  const EngineInfo& info = tiny.engine->info();
  EXPECT_EQ(info.model.vocab_size, 97);
  EXPECT_EQ(info.model.num_layers, 2);
  EXPECT_EQ(info.device.kind, GetParam().device);
  EXPECT_EQ(info.dtype, GetParam().dtype);
  EXPECT_EQ(info.limits.max_rows, 8u);
  EXPECT_EQ(info.limits.max_context_length, 99u);
  EXPECT_EQ(info.limits.max_blocks_per_row, 25u);
  EXPECT_EQ(info.limits.max_step_tokens, 64u);
  EXPECT_EQ(info.limits.pipeline_depth, 3u);
  EXPECT_GT(info.load_ns, 0u);
  EXPECT_GT(info.capture_ns, 0u);
  EXPECT_OK(tiny.engine->health());
}

TEST_P(EngineStartTest, MemoryIsExactlyWhatWasAllocated) {
  auto options = Options();
  options.engine.kv_cache_bytes = 300001;  // not a whole number of blocks
  InstrumentedEngine tiny = MakeInstrumentedEngine(options);
  InstrumentedDevice& device = *tiny.instruments;
  const MemoryInfo& memory = tiny.engine->info().memory;
  EXPECT_EQ(memory.weights_bytes + memory.kv_cache_bytes + memory.workspace_bytes,
            device.device_bytes());
  const StartReport& report = EngineProfiler(*tiny.engine).start_report();
  EXPECT_EQ(report.activations_bytes + report.state_bytes + report.step_kernel_bytes,
            memory.workspace_bytes);
  EXPECT_GT(report.activations_bytes, 0u);
  EXPECT_EQ(report.rings_bytes + report.transfer_bytes + memory.swap_bytes, device.mapped_bytes());
  ASSERT_OK_AND_ASSIGN(const auto decoder, models::Decoder::Create(tiny.engine->info().model));
  const kernels::WeightLayout layout = tiny.engine->info().linear == LinearPolicy::kPacked
                                           ? kernels::WeightLayout::kPackedPairs
                                           : kernels::WeightLayout::kRowMajor;
  EXPECT_EQ(memory.weights_bytes,
            decoder->PlanWeights(GetParam().dtype, GetParam().dtype, layout).bytes());
  const PoolInfo pool = tiny.engine->pool();
  EXPECT_EQ(pool.bytes, memory.kv_cache_bytes);
  EXPECT_LE(memory.kv_cache_bytes, 300001u);
  EXPECT_GT(memory.kv_cache_bytes + pool.bytes / pool.num_blocks, 300001u);
  if (GetParam().device == runtime::DeviceKind::kHost) {
    EXPECT_EQ(memory.graphs_bytes, 0u);
  }
  // And everything goes back.
  tiny.engine.reset();
  EXPECT_EQ(device.device_bytes(), 0u);
  EXPECT_EQ(device.mapped_bytes(), 0u);
}

TEST_P(EngineStartTest, PhasesOfTheStartAddUpToIt) {
  auto options = Options();
  options.engine.swap_bytes = 64 << 10;
  const auto begin = std::chrono::steady_clock::now();
  const TestEngine tiny = MakeTestEngine(options);
  const std::chrono::nanoseconds around = std::chrono::steady_clock::now() - begin;
  const StartReport& report = EngineProfiler(*tiny.engine).start_report();
  uint64_t sum = 0;
  std::vector<std::string> names;
  for (const StartPhase& phase : report.phases) {
    sum += phase.ns;
    names.emplace_back(phase.name);
  }
  EXPECT_EQ(sum, report.total_ns);
  EXPECT_LE(report.total_ns, static_cast<uint64_t>(around.count()));
  EXPECT_THAT(names, ElementsAre("model config", "kernels", "opening weights",
                                 "reading, packing and uploading weights", "workspace", "rings",
                                 "KV pool", "transfer memory", "swap space", "warm-up of graphs",
                                 "capture", "report"));
  const EngineInfo& info = tiny.engine->info();
  uint64_t captures_ns = 0;
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets})
    for (const graphs::CapturedBucket& bucket : *buckets) captures_ns += bucket.capture_ns;
  EXPECT_EQ(report.phases[names.size() - 2].ns, captures_ns);
  if (GetParam().device == runtime::DeviceKind::kHost) {
    EXPECT_EQ(report.driver_bytes + report.before_bytes + report.free_bytes, 0u);
    return;
  }
  // Of a GPU all bytes are told: no more than it has, unless others gave some back meanwhile.
  EXPECT_GT(report.free_bytes, 0u);
  EXPECT_LT(report.free_bytes + report.before_bytes, info.device.total_bytes);
}

// No size given: the host has a default, a GPU what its fraction leaves, once the graphs have
// theirs.
TEST_P(EngineStartTest, PoolTakesWhatIsLeftWhereNoSizeIsGiven) {
  auto options = Options();
  options.engine.kv_cache_bytes = 0;
  options.engine.memory_fraction = 0.05;
  ASSERT_OK_AND_ASSIGN(auto device, testing::MakeDevice(options.device, options.delays));
  ASSERT_OK_AND_ASSIGN(const size_t free_before, device->FreeBytes());
  const size_t total = device->properties().total_bytes;
  const TestEngine tiny = MakeTestEngine(options, std::move(device));
  const PoolInfo pool = tiny.engine->pool();
  const uint64_t block = pool.bytes / pool.num_blocks;
  if (GetParam().device == runtime::DeviceKind::kHost) {
    EXPECT_EQ(pool.bytes, (uint64_t{256} << 20) / block * block);
    return;
  }
  const auto reserved = static_cast<uint64_t>(static_cast<double>(total) * 0.95);
  ASSERT_GT(free_before, reserved) << "others use the device";
  EXPECT_LE(pool.bytes, free_before - reserved);
  EXPECT_GT(pool.bytes, (free_before - reserved) / 2);
  testing::EngineDriver driver(*tiny.engine);
  EXPECT_EQ(driver.Generate({.row = 1, .prompt = {1, 2, 3}}, 4).size(), 4u);
}

TEST_P(EngineStartTest, PoolTooSmallIsExhaustionWithItsBytes) {
  auto options = testing::SmallEngineOptions();
  options.dtype = GetParam().dtype;
  const uint64_t element = runtime::SizeOf(options.dtype);
  const uint64_t block = 2 /* layers */ * 2 * 2 /* heads */ * 4 * 8 * element;
  for (const uint64_t bytes : {uint64_t{1}, 2 * block - 1}) {
    options.kv_cache_bytes = bytes;
    const absl::Status status = Start(options);
    EXPECT_THAT(status, StatusIs(kExhausted, absl::StrCat(bytes, " bytes")));
    EXPECT_THAT(status, StatusIs(kExhausted, absl::StrCat("at least ", 2 * block)));
  }
  options.kv_cache_bytes = 2 * block;
  EXPECT_OK(Start(options));
  options.kv_cache_bytes = uint64_t{1} << 60;
  EXPECT_THAT(Start(options), StatusIs(kExhausted, "bytes"));
}

TEST_P(EngineStartTest, BadOptionsAndModelsAreNamed) {
  const auto start = [&](auto spoil) {
    auto options = testing::SmallEngineOptions();
    spoil(options);
    return Start(options);
  };
  EXPECT_THAT(start([](auto& o) { o.pipeline_depth = 9; }), StatusIs(kInvalid, "pipeline_depth"));
  EXPECT_THAT(start([](auto& o) { o.block_size = 0; }), StatusIs(kInvalid, "block_size"));
  EXPECT_THAT(start([](auto& o) { o.max_context_length = 257; }),
              StatusIs(kInvalid, "max_context_length is 257; allowed: 1 to 256"));
  EXPECT_THAT(start([](auto& o) { o.decode_buckets = {9}; }), StatusIs(kInvalid, "decode bucket"));
  ASSERT_OK_AND_ASSIGN(const auto device, testing::MakeDevice(Options().device, Options().delays));
  EXPECT_THAT(DecodeEngine::Create(*device, {}, {}), StatusIs(kInvalid, "exactly one"));
  testing::TemporaryDirectory directory;
  EXPECT_THAT(DecodeEngine::Create(*device, {.directory = directory.path()}, {}),
              StatusIs(absl::StatusCode::kNotFound, directory.path()));
  ASSERT_OK(testing::WriteTinyModel({}, directory.path()));
  std::filesystem::resize_file(directory.path() + "/model.safetensors", 5000);
  EXPECT_THAT(DecodeEngine::Create(*device, {.directory = directory.path()}, {}),
              StatusIs(kInvalid, "model.safetensors"));
}

// A failed start gives back all that it took.
TEST_P(EngineStartTest, FailedStartHoldsNothing) {
  ASSERT_OK_AND_ASSIGN(auto inner, testing::MakeDevice(Options().device, Options().delays));
  InstrumentedDevice device(std::move(inner));
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel({}, directory.path()));
  auto options = testing::SmallEngineOptions();
  options.kv_cache_bytes = 3;
  EXPECT_THAT(DecodeEngine::Create(device, {.directory = directory.path()}, options),
              StatusIs(kExhausted, "3 bytes"));
  EXPECT_EQ(device.device_bytes(), 0u);
  EXPECT_EQ(device.mapped_bytes(), 0u);
  EXPECT_GT(device.calls().allocations, 0);
}

TEST_P(EngineStartTest, ProgressCountsBytesThenBuckets) {
  testing::TemporaryDirectory directory;
  ASSERT_OK(testing::WriteTinyModel({}, directory.path()));
  ASSERT_OK_AND_ASSIGN(const auto device, testing::MakeDevice(Options().device, Options().delays));
  struct Report {
    std::string stage, detail;
    uint64_t done, total;
  };
  std::vector<Report> reports;
  ASSERT_OK(DecodeEngine::Create(
      *device, {.directory = directory.path()}, testing::SmallEngineOptions(),
      [&](const EngineProgress& p) {
        reports.push_back({std::string(p.stage), std::string(p.detail), p.done, p.total});
      }));
  uint64_t load = 0;
  std::vector<std::string> captured;
  for (const Report& report : reports) {
    EXPECT_LE(report.done, report.total);
    if (report.stage == "load") {
      EXPECT_TRUE(captured.empty());
      EXPECT_GE(report.done, load);
      load = report.done;
      continue;
    }
    ASSERT_EQ(report.stage, "capture");
    EXPECT_EQ(report.total, 6u);
    captured.push_back(report.detail);
    EXPECT_EQ(report.done, captured.size());
  }
  EXPECT_GT(load, 0u);
  std::sort(captured.begin(), captured.end());
  EXPECT_THAT(captured,
              ElementsAre("decode/1", "decode/2", "decode/4", "decode/8", "mixed/16", "mixed/64"));
}

TEST_P(EngineStartTest, CheckpointsDtypeIsTakenUnlessAnotherIsAskedFor) {
  auto options = Options();
  options.model.dtype = runtime::DType::kF16;
  options.engine.dtype_from_checkpoint = true;
  EXPECT_EQ(MakeTestEngine(options).engine->info().dtype, runtime::DType::kF16);
  options.engine.dtype_from_checkpoint = false;
  EXPECT_EQ(MakeTestEngine(options).engine->info().dtype, GetParam().dtype);
}

TEST_P(EngineStartTest, BlocksOfAnySizeServe) {
  std::vector<testing::Token> expected;
  for (const uint32_t block_size : {1u, 3u, 5u, 16u, 300u}) {
    auto options = Options();
    options.engine.block_size = block_size;
    const TestEngine tiny = MakeTestEngine(options);
    EXPECT_EQ(tiny.engine->pool().block_size, block_size);
    testing::EngineDriver driver(*tiny.engine);
    const auto tokens = driver.Generate(
        {.row = 1, .prompt = testing::RandomPrompt(6, 41), .chunks = {7, 30, 4}}, 12);
    if (expected.empty()) expected = tokens;
    // Where the KV lies does not change it.
    EXPECT_EQ(tokens, expected) << block_size;
  }
}

}  // namespace
}  // namespace reprise::engine
