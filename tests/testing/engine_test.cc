// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/engine_test.h"

#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/any_device.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/number.h"

namespace reprise::testing {
namespace {

template <typename T>
T Value(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  ADD_FAILURE() << result.status().ToString();
  throw std::runtime_error(result.status().ToString());
}

}  // namespace

engine::DecodeEngineOptions SmallEngineOptions() {
  return {.dtype_from_checkpoint = false,
          .block_size = 4,
          .kv_cache_bytes = uint64_t{1} << 20,
          .max_rows = 8,
          .decode_buckets = {1, 2, 4, 8},
          .mixed_buckets = {16, 64}};
}

TestEngine MakeTestEngine(const TestEngineOptions& options,
                          std::unique_ptr<runtime::Device> device) {
  TestEngine made;
  made.directory = std::make_unique<TemporaryDirectory>();
  const std::string path = Value(WriteTinyModel(options.model, made.directory->path()));
  made.device =
      device != nullptr ? std::move(device) : Value(MakeDevice(options.device, options.delays));
  engine::DecodeEngineOptions engine = options.engine;
  engine.dtype = options.dtype;
  made.engine = Value(engine::CreateEngineWithDiagnostics(*made.device, {.directory = path}, engine,
                                                          options.diagnostics));
  return made;
}

InstrumentedEngine MakeInstrumentedEngine(const TestEngineOptions& options) {
  auto device =
      std::make_unique<InstrumentedDevice>(Value(MakeDevice(options.device, options.delays)));
  InstrumentedDevice* const instruments = device.get();
  return {MakeTestEngine(options, std::move(device)), instruments};
}

void EngineTest::SetUp() {
  if (const std::string why = WhyNoDevice(GetParam().device); !why.empty()) GTEST_SKIP() << why;
}

TestEngineOptions EngineTest::Options() const {
  const bool host = GetParam().device == runtime::DeviceKind::kHost;
  // A bound of one microsecond shuffles the blocks and never sleeps.
  TestEngineOptions options{
      .device = {.kind = GetParam().device, .host_threads = host ? kEngineHostThreads : 0},
      .delays = {.max_us = 1},
      .dtype = GetParam().dtype};
  options.engine.kv_dtype = GetParam().kv;
  return options;
}

std::vector<uint32_t> RandomPrompt(uint64_t seed, uint32_t count, uint32_t vocab) {
  Random random(seed);
  std::vector<uint32_t> prompt;
  for (uint32_t i = 0; i < count; ++i) prompt.push_back(random.Below(vocab));
  return prompt;
}

}  // namespace reprise::testing
