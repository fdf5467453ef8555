// SPDX-License-Identifier: Apache-2.0
// What runtime/device.h promises of kernels and streams, on every device that this machine has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/runtime/probe_bench.h"
#include "tests/testing/any_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::ProbeCountArgs;
using ::reprise::testing::ProbeImage;
using ::reprise::testing::ProbeLargeArgs;
using ::reprise::testing::StatusIs;

using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kUnavailable;
using ::reprise::testing::kUnimplemented;

class StreamContract : public ::testing::TestWithParam<DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(StreamContract);

TEST_P(StreamContract, KernelsOfOneStreamRunInOrder) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  uint64_t expected = 1;
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_OK(bench.Affine(3, i));
    expected = expected * 3 + i;
  }
  EXPECT_EQ(bench.Get(), expected);
}

TEST_P(StreamContract, ArgumentsAreCopiedBeforeLaunchReturns) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(const Kernel large, bench.module->Find(testing::kProbeLarge));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer sums, DeviceBuffer::Create(*device, 2 * sizeof(uint32_t)));
  Gate gate(*device);
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  ProbeLargeArgs args{.sum = sums.as<uint32_t>(), .words = {}};
  std::fill(std::begin(args.words), std::end(args.words), 2);
  ASSERT_OK(bench.stream->Launch(large, {}, args));
  args.sum += 1;
  std::fill(std::begin(args.words), std::end(args.words), 3);
  ASSERT_OK(bench.stream->Launch(large, {}, args));
  std::memset(&args, 0, sizeof(args));
  gate.Open();
  uint32_t got[2] = {};
  ASSERT_OK(bench.stream->CopyToHost(got, sums.data(), sizeof(got)));
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_EQ(got[0], 500u);
  EXPECT_EQ(got[1], 750u);
}

TEST_P(StreamContract, EveryBlockRunsOnceWithSharedMemoryOfItsOwn) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(const Kernel count, bench.module->Find(testing::kProbeCount));
  struct Case {
    unsigned grid_x, grid_y, block;
    uint32_t shared_words;
  };
  for (const Case& c :
       {Case{1, 1, 32, 16}, Case{7, 3, 64, 1000}, Case{1000, 1, 32, 0}, Case{3, 500, 128, 9}}) {
    const size_t num_blocks = size_t{c.grid_x} * c.grid_y;
    ASSERT_OK_AND_ASSIGN(DeviceBuffer counts, DeviceBuffer::Create(*device, 4 * num_blocks));
    ASSERT_OK(bench.stream->Fill(counts.data(), 0, counts.bytes()));
    const LaunchShape shape{.grid_x = c.grid_x,
                            .grid_y = c.grid_y,
                            .block = c.block,
                            .shared_bytes = 4 * c.shared_words};
    ASSERT_OK(
        bench.stream->Launch(count, shape, ProbeCountArgs{counts.as<uint32_t>(), c.shared_words}));
    std::vector<uint32_t> got(num_blocks);
    ASSERT_OK(bench.stream->CopyToHost(got.data(), counts.data(), counts.bytes()));
    ASSERT_OK(bench.stream->Synchronize());
    EXPECT_THAT(got, ::testing::Each(1u)) << c.grid_x << " x " << c.grid_y;
  }
}

TEST_P(StreamContract, BlockMayUseAllSharedMemory) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(const Kernel count, bench.module->Find(testing::kProbeCount));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer counts, DeviceBuffer::Create(*device, 4 * 8));
  ASSERT_OK(bench.stream->Fill(counts.data(), 0, counts.bytes()));
  // The kernel keeps some static shared memory itself.
  const size_t shared_bytes = device->properties().max_shared_bytes - 1024;
  ASSERT_OK(bench.stream->Launch(
      count, {.grid_x = 8, .block = 256, .shared_bytes = shared_bytes},
      ProbeCountArgs{counts.as<uint32_t>(), static_cast<uint32_t>(shared_bytes / 4)}));
  std::vector<uint32_t> got(8);
  ASSERT_OK(bench.stream->CopyToHost(got.data(), counts.data(), counts.bytes()));
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_THAT(got, ::testing::Each(1u));
}

TEST_P(StreamContract, LaunchRefusesShapesBeyondTheDevice) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const ProbeAffineArgs args{bench.cell.as<uint64_t>(), 3, 1};
  const auto launch = [&](const LaunchShape& shape) {
    return bench.stream->Launch(bench.affine, shape, args);
  };
  EXPECT_THAT(launch({.grid_x = 0}), StatusIs(kInvalid, "grid_x is 0"));
  EXPECT_THAT(launch({.grid_x = 0x80000000u}), StatusIs(kInvalid, "grid_x is 2147483648"));
  EXPECT_THAT(launch({.grid_y = 0}), StatusIs(kInvalid, "grid_y is 0"));
  EXPECT_THAT(launch({.grid_y = 65536}), StatusIs(kInvalid, "allowed: 1 to 65535"));
  EXPECT_THAT(launch({.block = 0}), StatusIs(kInvalid, "block is 0"));
  EXPECT_THAT(launch({.block = 1025}), StatusIs(kInvalid, "allowed: 1 to 1024"));
  EXPECT_THAT(launch({.shared_bytes = device->properties().max_shared_bytes + 1}),
              StatusIs(kInvalid, "shared_bytes"));
  EXPECT_THAT(bench.stream->Launch(Kernel{.handle = nullptr, .name = "gone"}, {}, args),
              StatusIs(kInvalid, "kernel 'gone' has no handle"));
  EXPECT_THAT(bench.stream->Launch(bench.affine, {}, nullptr, sizeof(args)),
              StatusIs(kInvalid, "args is null"));
  EXPECT_THAT(bench.stream->Launch(bench.affine, {}, &args, 0),
              StatusIs(kInvalid, "args_bytes is 0"));
  EXPECT_THAT(bench.stream->Launch(bench.affine, {}, &args, 4097),
              StatusIs(kInvalid, "args_bytes is 4097"));
  EXPECT_EQ(bench.Get(), 1u);
}

TEST_P(StreamContract, FindNamesTheMissingKernel) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto module, device->Load(ProbeImage()));
  EXPECT_THAT(module->Find("no_such_kernel"), StatusIs(kNotFound, "'no_such_kernel'"));
  EXPECT_THAT(module->Find(testing::kProbeNowhere),
              StatusIs(kNotFound, "'reprise_probe_nowhere' has no code"));
}

TEST_P(StreamContract, LoadRefusesAKernelNamedTwice) {
  REPRISE_DEVICE_OR_SKIP(device);
  const KernelDef twice[] = {{"same", nullptr}, {"same", nullptr}};
  EXPECT_THAT(device->Load({.kernels = twice, .cuda_fatbins = {}}),
              StatusIs(kInvalid, "'same' is in the image twice"));
}

TEST_P(StreamContract, KernelOutlivesItsModule) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bench.module = nullptr;
  ASSERT_OK(bench.Affine(3, 4));
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(StreamContract, QueryTellsBusyFromIdleAndNeverBlocks) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  EXPECT_OK(bench.stream->Query());
  Gate gate(*device);
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  for (int i = 0; i < 100; ++i) EXPECT_THAT(bench.stream->Query(), StatusIs(kUnavailable, ""));
  gate.Open();
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_OK(bench.stream->Query());
}

TEST_P(StreamContract, WaitUntilEndsWithTheWorkOrAtTheDeadline) {
  using std::chrono::steady_clock;
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto idle = [&bench] { return bench.stream->Query().ok(); };
  EXPECT_TRUE(bench.stream->WaitUntil(idle, steady_clock::now()));
  Gate gate(*device);
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  const auto deadline = steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_FALSE(bench.stream->WaitUntil(idle, deadline));
  EXPECT_GE(steady_clock::now(), deadline);
  std::thread opener([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.Open();
  });
  EXPECT_TRUE(bench.stream->WaitUntil(idle, steady_clock::now() + std::chrono::minutes(1)));
  opener.join();
}

TEST_P(StreamContract, StreamsAreIndependent) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(auto other, device->CreateStream());
  Gate gate(*device);
  ASSERT_OK(other->Launch(bench.wait, {}, gate.args()));
  ASSERT_OK(bench.Affine(3, 4));
  EXPECT_EQ(bench.Get(), 7u);
  EXPECT_THAT(other->Query(), StatusIs(kUnavailable, ""));
  gate.Open();
  EXPECT_OK(other->Synchronize());
}

TEST_P(StreamContract, DestroyedStreamFinishesItsWork) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  {
    ASSERT_OK_AND_ASSIGN(auto other, device->CreateStream());
    for (int i = 0; i < 50; ++i) {
      ASSERT_OK(other->Launch(bench.affine, {}, ProbeAffineArgs{bench.cell.as<uint64_t>(), 1, 1}));
    }
  }
  EXPECT_EQ(bench.Get(), 51u);
}

TEST_P(StreamContract, EnqueueHostRunsOnTheHostDeviceAlone) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream());
  int runs = 0;
  const absl::Status status = stream->EnqueueHost([&] { ++runs; });
  ASSERT_OK(stream->Synchronize());
  if (GetParam() == DeviceKind::kHost) {
    EXPECT_OK(status);
    EXPECT_EQ(runs, 1);
  } else {
    EXPECT_THAT(status, StatusIs(kUnimplemented, "EnqueueHost"));
    EXPECT_EQ(runs, 0);
  }
}

}  // namespace
}  // namespace reprise::runtime
