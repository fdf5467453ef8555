// SPDX-License-Identifier: Apache-2.0
// DecodeEngine on the hip device over the fake HIP library, in both of its releases: the same
// tokens as on the host device, what a step asks of the library, and what a fault of it does. (The
// engine's other tests run on this device too.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "runtime/device.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/fake_hip/fake_hip_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::FakeHip;
using ::reprise::testing::FakeHipPath;
using ::reprise::testing::FakeHipRelease;
using ::reprise::testing::MakeFakeHipDevice;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowPlan;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;
using ::reprise::testing::Token;

class HipEngineTest : public ::testing::TestWithParam<FakeHipRelease> {
 protected:
  HipEngineTest() : fake_(GetParam()) { fake_.Reset(); }
  ~HipEngineTest() override { fake_.Reset(); }

  TestEngine MakeHipEngine(const TestEngineOptions& options) {
    auto device = MakeFakeHipDevice({.release = GetParam()});
    EXPECT_OK(device);
    return MakeTestEngine(options, *std::move(device));
  }

  FakeHip fake_;
};

INSTANTIATE_TEST_SUITE_P(Releases, HipEngineTest,
                         ::testing::Values(FakeHipRelease::kCurrent, FakeHipRelease::kRocm52),
                         [](const ::testing::TestParamInfo<FakeHipRelease>& info) {
                           return info.param == FakeHipRelease::kCurrent ? "current" : "rocm_5_2";
                         });

// The kernels that HIP has code for in the fake, so that both devices compute alike.
TestEngineOptions PortableOptions(DType dtype) {
  TestEngineOptions options{.dtype = dtype};
  options.engine.linear = LinearPolicy::kPortable;
  return options;
}

// Prompts of many lengths in one piece and in several, greedy and sampled rows, all side by side.
std::vector<std::vector<Token>> Serve(DecodeEngine& engine) {
  constexpr uint32_t kRows = 6, kCount = 10;
  EngineDriver driver(engine);
  for (uint32_t row = 0; row < kRows; ++row) {
    RowPlan plan{.row = row, .prompt = RandomPrompt(7 + row, 2 + 9 * row)};
    if (row % 2 == 1) plan.sampling = {.temperature = 0.9f, .seed = 40 + row};
    if (row >= 3) plan.chunks = testing::EvenChunks(2 + 9 * row, 13);
    driver.Start(plan, kCount + kRows);
  }
  driver.ContinueAll(kCount);
  std::vector<std::vector<Token>> tokens;
  for (uint32_t row = 0; row < kRows; ++row) tokens.push_back(driver.tokens(row));
  return tokens;
}

TEST_P(HipEngineTest, TokensAndLogProbabilitiesAreTheHostsToTheBit) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const TestEngine hip = MakeHipEngine(PortableOptions(dtype));
    EXPECT_EQ(hip.engine->info().device.kind, DeviceKind::kHip);
    EXPECT_EQ(hip.engine->info().device.architecture, "gfx942");
    const TestEngine host = MakeTestEngine(PortableOptions(dtype));
    const auto tokens = Serve(*hip.engine);
    EXPECT_EQ(tokens, Serve(*host.engine)) << runtime::NameOf(dtype);
    for (const std::vector<Token>& row : tokens) EXPECT_GE(row.size(), 11u);
  }
}

TEST_P(HipEngineTest, EagerStepsEqualReplayedOnesToTheBit) {
  const TestEngine hip = MakeHipEngine(PortableOptions(DType::kF32));
  EngineDriver replayed(*hip.engine), eager(*hip.engine);
  for (EngineDriver* driver : {&replayed, &eager}) {
    driver->Start({.row = 1, .prompt = RandomPrompt(3, 20)}, 12);
    driver->Start({.row = 2, .prompt = RandomPrompt(4, 3), .sampling = {.temperature = 1.0f}}, 12);
  }
  for (int i = 0; i < 8; ++i) {
    replayed.Step({.continue_all = true});
    const int launches = fake_.CountCalls("hipModuleLaunchKernel");
    eager.Step({.continue_all = true, .mode = ExecutionMode::kEager});
    EXPECT_GT(fake_.CountCalls("hipModuleLaunchKernel"), launches);
  }
  EXPECT_EQ(replayed.tokens(1), eager.tokens(1));
  EXPECT_EQ(replayed.tokens(2), eager.tokens(2));
}

TEST_P(HipEngineTest, StepIsOneGraphLaunchAndNothingElseThatWorks) {
  const TestEngine hip = MakeHipEngine(PortableOptions(DType::kF32));
  EngineDriver driver(*hip.engine);
  driver.Start({.row = 1, .prompt = RandomPrompt(3, 20)}, 30);
  const std::vector<const char*> none = {"hipMalloc",
                                         "hipHostMalloc",
                                         "hipFree",
                                         "hipHostFree",
                                         "hipMemcpyAsync",
                                         "hipMemsetAsync",
                                         "hipModuleLaunchKernel",
                                         "hipStreamSynchronize",
                                         "hipSetDevice",
                                         "hipStreamBeginCapture"};
  std::vector<int> before;
  for (const char* call : none) before.push_back(fake_.CountCalls(call));
  const int launches = fake_.CountCalls("hipGraphLaunch");
  driver.ContinueAll(12);
  EXPECT_EQ(fake_.CountCalls("hipGraphLaunch"), launches + 12);
  for (size_t i = 0; i < none.size(); ++i)
    EXPECT_EQ(fake_.CountCalls(none[i]), before[i]) << none[i];
}

// The pool takes what weights, workspace and graphs leave of the device: the way of every GPU.
TEST_P(HipEngineTest, PoolTakesTheShareOfTheDevicesMemory) {
  fake_.machine().total_bytes = 32 << 20;
  TestEngineOptions options = PortableOptions(DType::kF32);
  options.engine.kv_cache_bytes = 0;
  options.engine.memory_fraction = 0.5;
  const TestEngine hip = MakeHipEngine(options);
  const EngineInfo& info = hip.engine->info();
  EXPECT_EQ(info.memory.graphs_bytes, fake_.machine().bytes_per_graph *
                                          (info.decode_buckets.size() + info.mixed_buckets.size()));
  ASSERT_OK_AND_ASSIGN(const size_t free_bytes, hip.device->FreeBytes());
  EXPECT_GE(free_bytes, 16u << 20);
  EXPECT_LE(free_bytes, 17u << 20);
  Serve(*hip.engine);
}

TEST_P(HipEngineTest, FaultOfALaunchEndsTheEngineWithItsCause) {
  const TestEngine hip = MakeHipEngine(PortableOptions(DType::kF32));
  EngineDriver driver(*hip.engine);
  driver.Start({.row = 1, .prompt = {4, 5}}, 20);
  fake_.Fail("hipGraphLaunch", 719);
  const StepDraft next{.continue_all = true};
  // ROCm 5.2 has names for errors and no texts.
  const std::string cause =
      GetParam() == FakeHipRelease::kCurrent
          ? "hipGraphLaunch: unspecified launch failure (hipErrorLaunchFailure)"
          : "hipGraphLaunch: hipErrorLaunchFailure";
  EXPECT_THAT(driver.TryStep(next), StatusIs(absl::StatusCode::kInternal, cause));
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(driver.TryStep(next), StatusIs(absl::StatusCode::kUnavailable, cause));
}

TEST_P(HipEngineTest, DeviceWithoutOurCodeRefusesTheEngineByKernelAndDevice) {
  ASSERT_OK_AND_ASSIGN(
      const auto device,
      runtime::Device::Create({.kind = DeviceKind::kHip, .hip_library = FakeHipPath(GetParam())}));
  testing::TemporaryDirectory directory;
  ASSERT_OK_AND_ASSIGN(const std::string path, testing::WriteTinyModel({}, directory.path()));
  EXPECT_THAT(DecodeEngine::Create(*device, {.directory = path}, {}),
              StatusIs(absl::StatusCode::kNotFound, "has no code for Fake Instinct (hip:0): "));
}

// A table of functions of the test's own in place of the image's, as an emulator would give.
TEST_P(HipEngineTest, KernelsOfTheTestTakeThePlaceOfTheImages) {
  const auto writes_9 = [](const runtime::HostBlockContext&, const void* args) {
    **static_cast<uint64_t* const*>(args) = 9;
  };
  ASSERT_OK_AND_ASSIGN(const auto device,
                       MakeFakeHipDevice({.release = GetParam(),
                                          .kernels = {{"mine", writes_9}, {"theirs", writes_9}}}));
  const auto writes_1 = [](const runtime::HostBlockContext&, const void* args) {
    **static_cast<uint64_t* const*>(args) = 1;
  };
  const runtime::KernelDef kernels[] = {{"mine", nullptr}, {"theirs", writes_1}, {"own", writes_1}};
  ASSERT_OK_AND_ASSIGN(const auto module, device->Load({.kernels = kernels, .cuda_fatbins = {}}));
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(void* const cell, device->Allocate(8));
  const std::pair<const char*, uint64_t> wanted[] = {{"mine", 9}, {"own", 1}, {"theirs", 9}};
  for (const auto& [name, value] : wanted) {
    ASSERT_OK_AND_ASSIGN(const runtime::Kernel kernel, module->Find(name));
    ASSERT_OK(stream->Launch(kernel, {}, cell));
    uint64_t got = 0;
    ASSERT_OK(stream->CopyToHost(&got, cell, 8));
    ASSERT_OK(stream->Synchronize());
    EXPECT_EQ(got, value) << name;
  }
  device->Free(cell);
}

}  // namespace
}  // namespace reprise::engine
