// SPDX-License-Identifier: Apache-2.0
// Fixture of the engine's tests: small random models and engines over them, on the host always, on
// CUDA where there is a device, and skipping with the reason where not; on HIP over the fake
// library (fake_hip/fake_hip_device.h).
//
//   using InvarianceTest = EngineTest;
//   REPRISE_ENGINE_ON_EVERY_DEVICE(InvarianceTest);
//   TEST_P(InvarianceTest, ...) {
//     const TestEngine tiny = MakeEngine();
//     EngineDriver driver(*tiny.engine);
//   }
#ifndef REPRISE_TESTS_TESTING_ENGINE_TEST_H_
#define REPRISE_TESTS_TESTING_ENGINE_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/diagnostics.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/host/test_delays.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/tiny_model.h"

namespace reprise::testing {

// A few rows, a few buckets, a pool of a few hundred small blocks.
engine::DecodeEngineOptions SmallEngineOptions();

// A model and its engine, apart from all others.
struct TestEngine {
  std::unique_ptr<TemporaryDirectory> directory;
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<engine::DecodeEngine> engine;
};

struct TestEngineOptions {
  TinyModelOptions model = {};
  engine::DecodeEngineOptions engine = SmallEngineOptions();
  engine::EngineDiagnostics diagnostics = {};
  runtime::DeviceOptions device = {};
  runtime::TestDelays delays = {};  // of the host device
  runtime::DType dtype = runtime::DType::kF32;
};
// Creates all three; fails the test and throws on an error. `device`: instead of one made from the
// options.
TestEngine MakeTestEngine(const TestEngineOptions& options,
                          std::unique_ptr<runtime::Device> device = nullptr);

// The same over an InstrumentedDevice, which is its `device`.
class InstrumentedDevice;
struct InstrumentedEngine : TestEngine {
  InstrumentedDevice* instruments = nullptr;
};
InstrumentedEngine MakeInstrumentedEngine(const TestEngineOptions& options);

class EngineTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  void SetUp() override;
  // What MakeTestEngine wants for this test's device and dtype. On the host three threads take the
  // blocks of a kernel in a shuffled order.
  TestEngineOptions Options() const;
  TestEngine MakeEngine() const { return MakeTestEngine(Options()); }
};

// `count` token ids below `vocab`, the same for the same seed.
std::vector<uint32_t> RandomPrompt(uint64_t seed, uint32_t count, uint32_t vocab = 97);

}  // namespace reprise::testing

// The reference arithmetic on the host and on HIP over the fake library, tensor cores on CUDA.
#define REPRISE_ENGINE_ON_EVERY_DEVICE(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(                                                                        \
      EveryDevice, suite,                                                                          \
      ::testing::Values(::reprise::testing::KernelTestParam{::reprise::runtime::DeviceKind::kHost, \
                                                            ::reprise::runtime::DType::kF32},      \
                        ::reprise::testing::KernelTestParam{::reprise::runtime::DeviceKind::kCuda, \
                                                            ::reprise::runtime::DType::kBf16},     \
                        ::reprise::testing::KernelTestParam{::reprise::runtime::DeviceKind::kHip,  \
                                                            ::reprise::runtime::DType::kF32}),     \
      ::reprise::testing::NameOfParam)

#endif  // REPRISE_TESTS_TESTING_ENGINE_TEST_H_
