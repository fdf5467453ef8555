// SPDX-License-Identifier: Apache-2.0
// What the host device alone promises: workers, injected delays, host functions, faults. What every
// device promises is in the *_contract_test.cc files.
#include "runtime/host/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::ProbeCountArgs;
using ::reprise::testing::ProbeFaultArgs;
using ::reprise::testing::ProbeImage;
using ::reprise::testing::StatusIs;

// Records which blocks ran, in which order and on which threads.
struct Record {
  std::mutex mutex;
  std::vector<unsigned> blocks;
  std::set<std::thread::id> threads;
};
struct RecordArgs {
  Record* record;
  int sleep_us;
};
void RecordBlock(const HostBlockContext& context, const void* raw) {
  const auto& args = *static_cast<const RecordArgs*>(raw);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(context.shared) % 64, 0u);
  if (args.sleep_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(args.sleep_us));
  std::lock_guard<std::mutex> lock(args.record->mutex);
  args.record->blocks.push_back(context.block_y * context.grid_x + context.block_x);
  args.record->threads.insert(std::this_thread::get_id());
}
constexpr KernelDef kRecordKernels[] = {{"record", RecordBlock}};
constexpr KernelImage kRecordImage = {.kernels = kRecordKernels, .cuda_fatbins = {}};

std::unique_ptr<Device> MakeDevice(const DeviceOptions& options, const TestDelays& delays = {}) {
  auto device = CreateHostDevice(options, delays);
  EXPECT_OK(device);
  return *std::move(device);
}

std::vector<unsigned> BlocksInOrder(Device& device, unsigned num_blocks) {
  Record record;
  const auto module = *device.Load(kRecordImage);
  const auto stream = *device.CreateStream();
  EXPECT_OK(
      stream->Launch(*module->Find("record"), {.grid_x = num_blocks}, RecordArgs{&record, 0}));
  EXPECT_OK(stream->Synchronize());
  return record.blocks;
}

TEST(HostDevice, HasOneMultiprocessorPerThreadAskedFor) {
  EXPECT_EQ(MakeDevice({.host_threads = 3})->properties().num_multiprocessors, 3);
  EXPECT_EQ(MakeDevice({})->properties().num_multiprocessors,
            static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(HostDevice, RefusesOptionsOutOfRange) {
  using ::reprise::testing::kInvalid;
  EXPECT_THAT(Device::Create({.host_threads = -1}), StatusIs(kInvalid, "host_threads is -1"));
  EXPECT_THAT(Device::Create({.host_threads = 1025}), StatusIs(kInvalid, "to 1024"));
  EXPECT_THAT(CreateHostDevice({}, {.max_us = -5}), StatusIs(kInvalid, "max_us is -5"));
  EXPECT_THAT(CreateHostDevice({}, {.slow_us = -1}), StatusIs(kInvalid, "slow_us is -1"));
  EXPECT_THAT(Device::Create({.ordinal = 1}), StatusIs(kInvalid, "ordinal is 1"));
}

TEST(HostDevice, WrapStreamIsUnimplemented) {
  int not_a_stream = 0;
  EXPECT_THAT(MakeDevice({})->WrapStream(&not_a_stream),
              StatusIs(absl::StatusCode::kUnimplemented, "WrapStream"));
}

TEST(HostDevice, BlocksOfOneKernelRunOnSeveralThreads) {
  const auto device = MakeDevice({.host_threads = 4});
  const auto module = *device->Load(kRecordImage);
  const auto stream = *device->CreateStream();
  Record record;
  ASSERT_OK(stream->Launch(*module->Find("record"), {.grid_x = 64}, RecordArgs{&record, 2000}));
  ASSERT_OK(stream->Synchronize());
  EXPECT_GE(record.threads.size(), 2u);
  EXPECT_EQ(std::set<unsigned>(record.blocks.begin(), record.blocks.end()).size(), 64u);
}

TEST(HostDevice, BlocksRunOnOneThreadWhereTestsAskForIt) {
  const auto device = MakeDevice({.host_threads = 4}, {.one_thread = true});
  const auto module = *device->Load(kRecordImage);
  const auto stream = *device->CreateStream();
  Record record;
  ASSERT_OK(stream->Launch(*module->Find("record"), {.grid_x = 64}, RecordArgs{&record, 200}));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(record.threads.size(), 1u);
  EXPECT_EQ(std::set<unsigned>(record.blocks.begin(), record.blocks.end()).size(), 64u);
}

// To be woken by every kernel ahead would take longer than many kernels do.
TEST(HostDevice, SynchronizeSleepsUntilTheLastKernelHasEnded) {
  const auto device = MakeDevice({.host_threads = 1});
  const auto module = *device->Load(kRecordImage);
  const auto stream = *device->CreateStream();
  Record record;
  constexpr int kLaunches = 200;
  for (int i = 0; i < kLaunches; ++i) {
    ASSERT_OK(stream->Launch(*module->Find("record"), {}, RecordArgs{&record, 200}));
  }
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_THREAD, &before);
  ASSERT_OK(stream->Synchronize());
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_EQ(record.blocks.size(), size_t{kLaunches});
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, kLaunches / 4);  // how often the thread slept
}

// Seconds of a core that this thread has had.
double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Kernels want every core; whoever waits for them has no use for one.
TEST(HostDevice, WaitUntilTakesNoCore) {
  const auto device = MakeDevice({.host_threads = 1});
  const auto module = *device->Load(kRecordImage);
  const auto stream = *device->CreateStream();
  Record record;
  ASSERT_OK(stream->Launch(*module->Find("record"), {}, RecordArgs{&record, 300000}));
  const double before = ThreadSeconds();
  EXPECT_TRUE(stream->WaitUntil([&] { return stream->Query().ok(); },
                                std::chrono::steady_clock::now() + std::chrono::minutes(1)));
  EXPECT_LT(ThreadSeconds() - before, 0.03);
}

TEST(HostDevice, OneThreadRunsBlocksInIndexOrder) {
  const auto device = MakeDevice({.host_threads = 1});
  EXPECT_THAT(BlocksInOrder(*device, 5), ::testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(HostDevice, DelaysAlsoShuffleBlocksAndEveryBlockStillRunsOnce) {
  for (const unsigned num_blocks : {1u, 2u, 30u, 97u}) {
    const auto device = MakeDevice({.host_threads = 1}, {.max_us = 1, .seed = 7});
    const std::vector<unsigned> blocks = BlocksInOrder(*device, num_blocks);
    EXPECT_EQ(blocks.size(), num_blocks);
    EXPECT_EQ(std::set<unsigned>(blocks.begin(), blocks.end()).size(), num_blocks);
    if (num_blocks > 2) {
      EXPECT_FALSE(std::is_sorted(blocks.begin(), blocks.end()));
    }
  }
}

TEST(HostDevice, DelaysFollowFromTheSeed) {
  const auto blocks_with_seed = [](uint64_t seed) {
    return BlocksInOrder(*MakeDevice({.host_threads = 1}, {.max_us = 1, .seed = seed}), 97);
  };
  EXPECT_EQ(blocks_with_seed(7), blocks_with_seed(7));
  EXPECT_NE(blocks_with_seed(7), blocks_with_seed(8));
}

TEST(HostDevice, DelaysHoldKernelsBackWithoutReorderingThem) {
  const auto device = MakeDevice({.host_threads = 2}, {.max_us = 400});
  const auto module = *device->Load(ProbeImage());
  const auto stream = *device->CreateStream();
  const Kernel affine = *module->Find(testing::kProbeAffine);
  uint64_t cell = 1;
  uint64_t expected = 1;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_OK(stream->Launch(affine, {}, ProbeAffineArgs{&cell, 3, i}));
    expected = expected * 3 + i;
  }
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(cell, expected);
  // 100 delays of 200 us on average; less than a quarter of that is as good as impossible.
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(5));
}

TEST(HostDevice, StreamsShareTheWorkersAndAllFinish) {
  const auto device = MakeDevice({.host_threads = 3}, {.max_us = 20});
  const auto module = *device->Load(ProbeImage());
  const Kernel count = *module->Find(testing::kProbeCount);
  constexpr unsigned kBlocks = 40;
  constexpr uint32_t kLaunches = 50;
  std::vector<std::vector<uint32_t>> counts(4, std::vector<uint32_t>(kBlocks, 0));
  std::vector<std::thread> threads;
  for (auto& mine : counts) {
    threads.emplace_back([&] {
      const auto stream = *device->CreateStream();
      for (uint32_t i = 0; i < kLaunches; ++i) {
        ASSERT_OK(stream->Launch(count, {.grid_x = kBlocks, .shared_bytes = 400},
                                 ProbeCountArgs{mine.data(), 100}));
      }
      ASSERT_OK(stream->Synchronize());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : counts) EXPECT_THAT(mine, ::testing::Each(kLaunches));
}

TEST(HostDevice, WorkersServeBurstsWithPausesInBetween) {
  // Pauses longer than the spinning, so that workers and streams sleep and have to be woken.
  const auto device = MakeDevice({.host_threads = 2});
  const auto module = *device->Load(ProbeImage());
  const Kernel count = *module->Find(testing::kProbeCount);
  const auto stream = *device->CreateStream();
  std::vector<uint32_t> counts(16, 0);
  for (int burst = 0; burst < 50; ++burst) {
    for (int i = 0; i < 4; ++i) {
      ASSERT_OK(stream->Launch(count, {.grid_x = 16}, ProbeCountArgs{counts.data(), 0}));
    }
    ASSERT_OK(stream->Synchronize());
    std::this_thread::sleep_for(std::chrono::microseconds(burst * 10));
  }
  EXPECT_THAT(counts, ::testing::Each(200u));
}

TEST(HostDevice, HostFunctionsRunInStreamOrderAndAtEveryReplay) {
  const auto device = MakeDevice({}, {.max_us = 50});
  const auto module = *device->Load(ProbeImage());
  const Kernel affine = *module->Find(testing::kProbeAffine);
  const auto stream = *device->CreateStream();
  uint64_t cell = 1;
  std::vector<uint64_t> seen;
  ASSERT_OK(stream->BeginCapture());
  ASSERT_OK(stream->Launch(affine, {}, ProbeAffineArgs{&cell, 2, 0}));
  ASSERT_OK(stream->EnqueueHost([&] { seen.push_back(cell); }));
  ASSERT_OK(stream->Launch(affine, {}, ProbeAffineArgs{&cell, 1, 1}));
  ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 2);
  EXPECT_EQ(graph->num_other_nodes(), 1);
  EXPECT_TRUE(seen.empty());
  for (int i = 0; i < 3; ++i) ASSERT_OK(graph->Replay(*stream));
  ASSERT_OK(stream->Synchronize());
  EXPECT_THAT(seen, ::testing::ElementsAre(2, 6, 14));
}

TEST(HostDevice, RefusesAnEmptyHostFunction) {
  const auto device = MakeDevice({});
  const auto stream = *device->CreateStream();
  EXPECT_THAT(stream->EnqueueHost(nullptr), StatusIs(absl::StatusCode::kInvalidArgument, "empty"));
}

TEST(HostDevice, ReplaysOfOneGraphNeverOverlap) {
  const auto device = MakeDevice({});
  const auto a = *device->CreateStream();
  const auto b = *device->CreateStream();
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  ASSERT_OK(a->BeginCapture());
  ASSERT_OK(a->EnqueueHost([&] {
    most = std::max(most.load(), ++running);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    --running;
  }));
  ASSERT_OK_AND_ASSIGN(auto graph, a->EndCapture());
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(graph->Replay(*a));
    ASSERT_OK(graph->Replay(*b));
  }
  ASSERT_OK(a->Synchronize());
  ASSERT_OK(b->Synchronize());
  EXPECT_EQ(most.load(), 1);
}

TEST(HostDevice, WhatAFunctionHoldsIsReleasedBeforeSynchronizeReturns) {
  const auto device = MakeDevice({});
  const auto stream = *device->CreateStream();
  for (int i = 0; i < 100; ++i) {
    auto held = std::make_shared<int>(1);
    ASSERT_OK(stream->EnqueueHost([held] { ++*held; }));
    ASSERT_OK(stream->Synchronize());
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST(HostDevice, ThrowingKernelIsAFaultThatNamesKernelAndBlock) {
  const auto device = MakeDevice({.host_threads = 3});
  const auto module = *device->Load(ProbeImage());
  const auto stream = *device->CreateStream();
  ASSERT_OK(stream->Launch(*module->Find(testing::kProbeFault), {.grid_x = 20}, ProbeFaultArgs{}));
  EXPECT_THAT(stream->Synchronize(),
              StatusIs(absl::StatusCode::kInternal, "kernel 'reprise_probe_fault'"));
  EXPECT_THAT(stream->Synchronize(), StatusIs(absl::StatusCode::kInternal, "a fault on purpose"));
}

TEST(HostDevice, WorkAfterAFaultIsDropped) {
  const auto device = MakeDevice({});
  const auto stream = *device->CreateStream();
  std::atomic<bool> go{false};
  std::atomic<bool> ran{false};
  ASSERT_OK(stream->EnqueueHost([&] {
    while (!go) std::this_thread::yield();
    throw std::runtime_error("broken");
  }));
  ASSERT_OK(stream->EnqueueHost([&] { ran = true; }));
  go = true;
  EXPECT_THAT(stream->Synchronize(),
              StatusIs(absl::StatusCode::kInternal, "the function threw: broken"));
  EXPECT_FALSE(ran);
  EXPECT_THAT(stream->EnqueueHost([&] { ran = true; }),
              StatusIs(absl::StatusCode::kInternal, "broken"));
  // Other streams of the device go on.
  const auto other = *device->CreateStream();
  ASSERT_OK(other->EnqueueHost([&] { ran = true; }));
  EXPECT_OK(other->Synchronize());
  EXPECT_TRUE(ran);
}

TEST(HostDevice, QueueGrowsWithWhatIsEnqueued) {
  const auto device = MakeDevice({});
  const auto stream = *device->CreateStream();
  std::atomic<bool> go{false};
  std::vector<int> order;
  ASSERT_OK(stream->EnqueueHost([&] {
    while (!go) std::this_thread::yield();
  }));
  for (int i = 0; i < 1000; ++i)
    ASSERT_OK(stream->EnqueueHost([&order, i] { order.push_back(i); }));
  go = true;
  ASSERT_OK(stream->Synchronize());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

}  // namespace
}  // namespace reprise::runtime
