// SPDX-License-Identifier: Apache-2.0
// What runtime/device.h promises of every device, on every device that this machine has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/device.h"
#include "tests/testing/any_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::ProbeCountArgs;
using ::reprise::testing::ProbeFaultArgs;
using ::reprise::testing::ProbeImage;
using ::reprise::testing::ProbeLargeArgs;
using ::reprise::testing::ProbeWaitArgs;
using ::reprise::testing::StatusIs;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

// A flag that ProbeWait waits for; set at the latest when the test is left, so that no stream
// hangs.
class Gate {
 public:
  explicit Gate(Device& device) : buffer_(*MappedBuffer::Create(device, sizeof(uint32_t))) {}
  ~Gate() { Open(); }
  void Open() {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(buffer_.host()))
        .store(1, std::memory_order_seq_cst);
  }
  ProbeWaitArgs args() const { return {reinterpret_cast<const uint32_t*>(buffer_.device())}; }

 private:
  MappedBuffer buffer_;
};

// A device with the probe kernels, a stream and a 64-bit cell that starts at 1.
struct Bench {
  explicit Bench(Device& device)
      : device(device),
        module(*device.Load(ProbeImage())),
        affine(*module->Find(testing::kProbeAffine)),
        wait(*module->Find(testing::kProbeWait)),
        cell(*DeviceBuffer::Create(device, sizeof(uint64_t))),
        stream(*device.CreateStream()) {
    Set(1);
  }
  void Set(uint64_t value) {
    EXPECT_OK(stream->CopyToDevice(cell.data(), &value, sizeof(value)));
    EXPECT_OK(stream->Synchronize());
  }
  uint64_t Get() {
    uint64_t value = 0;
    EXPECT_OK(stream->CopyToHost(&value, cell.data(), sizeof(value)));
    EXPECT_OK(stream->Synchronize());
    return value;
  }
  absl::Status Affine(uint64_t mul, uint64_t add) {
    return stream->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), mul, add});
  }
  std::unique_ptr<CapturedGraph> Capture(const std::vector<uint64_t>& adds) {
    EXPECT_OK(stream->BeginCapture());
    for (const uint64_t add : adds) EXPECT_OK(Affine(3, add));
    auto graph = stream->EndCapture();
    EXPECT_OK(graph);
    return *std::move(graph);
  }

  Device& device;
  std::unique_ptr<KernelModule> module;
  Kernel affine;
  Kernel wait;
  DeviceBuffer cell;
  std::unique_ptr<Stream> stream;
};

class DeviceContract : public ::testing::TestWithParam<DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(DeviceContract);

TEST_P(DeviceContract, DescribesItself) {
  REPRISE_DEVICE_OR_SKIP(device);
  const DeviceProperties& properties = device->properties();
  EXPECT_EQ(device->kind(), GetParam());
  EXPECT_FALSE(properties.name.empty());
  EXPECT_EQ(properties.driver.empty(), GetParam() == DeviceKind::kHost);
  EXPECT_GE(properties.num_multiprocessors, 1);
  EXPECT_GE(properties.warp_size, 1);
  EXPECT_GE(properties.max_shared_bytes, 48u << 10);
  EXPECT_GE(properties.shared_bytes_per_multiprocessor, properties.max_shared_bytes);
  ASSERT_OK_AND_ASSIGN(const size_t free_bytes, device->FreeBytes());
  EXPECT_GT(free_bytes, 0u);
  EXPECT_LE(free_bytes, properties.total_bytes);
}

TEST_P(DeviceContract, AllocationsAreAlignedAndDoNotOverlap) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream());
  const std::vector<size_t> sizes = {1, 255, 256, 257, 100001, size_t{3} << 20};
  std::vector<DeviceBuffer> buffers;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, DeviceBuffer::Create(*device, sizes[i]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    ASSERT_OK(stream->Fill(buffer.data(), static_cast<unsigned char>(i + 1), sizes[i]));
    buffers.push_back(std::move(buffer));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<unsigned char> bytes(sizes[i]);
    ASSERT_OK(stream->CopyToHost(bytes.data(), buffers[i].data(), sizes[i]));
    ASSERT_OK(stream->Synchronize());
    EXPECT_THAT(bytes, ::testing::Each(static_cast<unsigned char>(i + 1)));
  }
}

TEST_P(DeviceContract, RefusesZeroAndAbsurdSizes) {
  REPRISE_DEVICE_OR_SKIP(device);
  EXPECT_THAT(device->Allocate(0), StatusIs(kInvalid, "0 bytes"));
  EXPECT_THAT(device->AllocateMapped(0), StatusIs(kInvalid, "0 bytes"));
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  for (const size_t bytes : {kMax, kMax - 255, kMax / 2, device->properties().total_bytes + 1}) {
    EXPECT_THAT(device->Allocate(bytes),
                StatusIs(kExhausted, std::to_string(bytes) + " bytes asked"));
  }
  for (const size_t bytes : {kMax, kMax - 255, kMax / 2}) {
    EXPECT_THAT(device->AllocateMapped(bytes), StatusIs(kExhausted, std::to_string(bytes)));
  }
  // A refusal changes nothing.
  EXPECT_OK(DeviceBuffer::Create(*device, 4096));
}

TEST_P(DeviceContract, FreeOfNullDoesNothing) {
  REPRISE_DEVICE_OR_SKIP(device);
  device->Free(nullptr);
  device->FreeMapped({});
}

TEST_P(DeviceContract, MappedMemoryIsZeroedAndSeenByBothSides) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(MappedBuffer mapped, MappedBuffer::Create(*device, 5000));
  EXPECT_THAT(std::vector<std::byte>(mapped.host(), mapped.host() + 5000),
              ::testing::Each(std::byte{0}));
  if (GetParam() == DeviceKind::kHost) {
    EXPECT_EQ(mapped.host(), mapped.device());
  }
  auto* host_cell = reinterpret_cast<uint64_t*>(mapped.host());
  *host_cell = 5;
  auto* device_cell = reinterpret_cast<uint64_t*>(mapped.device());
  ASSERT_OK(bench.stream->Launch(bench.affine, {}, ProbeAffineArgs{device_cell, 7, 2}));
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_EQ(*host_cell, 37u);
}

TEST_P(DeviceContract, CopiesAndFillsRunInStreamOrder) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, DeviceBuffer::Create(*device, 1000));
  std::vector<unsigned char> in(1000);
  std::iota(in.begin(), in.end(), 0);
  std::vector<unsigned char> out(1000);
  ASSERT_OK(stream->CopyToDevice(buffer.data(), in.data(), in.size()));
  ASSERT_OK(stream->Fill(buffer.as<char>() + 10, 0xab, 20));
  ASSERT_OK(stream->CopyToHost(out.data(), buffer.data(), out.size()));
  ASSERT_OK(stream->Synchronize());
  std::fill(in.begin() + 10, in.begin() + 30, 0xab);
  EXPECT_EQ(out, in);
}

TEST_P(DeviceContract, TransfersRefuseNullAndIgnoreZeroBytes) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, DeviceBuffer::Create(*device, 8));
  char byte = 0;
  EXPECT_THAT(stream->CopyToDevice(nullptr, &byte, 1), StatusIs(kInvalid, "dst is null"));
  EXPECT_THAT(stream->CopyToDevice(buffer.data(), nullptr, 1), StatusIs(kInvalid, "src is null"));
  EXPECT_THAT(stream->CopyToHost(&byte, nullptr, 1), StatusIs(kInvalid, "src is null"));
  EXPECT_THAT(stream->Fill(nullptr, 0, 1), StatusIs(kInvalid, "dst is null"));
  EXPECT_OK(stream->CopyToDevice(nullptr, nullptr, 0));
  EXPECT_OK(stream->CopyToHost(nullptr, nullptr, 0));
  EXPECT_OK(stream->Fill(nullptr, 0, 0));
  EXPECT_OK(stream->Synchronize());
}

TEST_P(DeviceContract, KernelsOfOneStreamRunInOrder) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  uint64_t expected = 1;
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_OK(bench.Affine(3, i));
    expected = expected * 3 + i;
  }
  EXPECT_EQ(bench.Get(), expected);
}

TEST_P(DeviceContract, ArgumentsAreCopiedBeforeLaunchReturns) {
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

TEST_P(DeviceContract, EveryBlockRunsOnceWithSharedMemoryOfItsOwn) {
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

TEST_P(DeviceContract, BlockMayUseAllSharedMemory) {
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

TEST_P(DeviceContract, LaunchRefusesShapesBeyondTheDevice) {
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

TEST_P(DeviceContract, FindNamesTheMissingKernel) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto module, device->Load(ProbeImage()));
  EXPECT_THAT(module->Find("no_such_kernel"), StatusIs(kNotFound, "'no_such_kernel'"));
  EXPECT_THAT(module->Find(testing::kProbeNowhere),
              StatusIs(kNotFound, "'reprise_probe_nowhere' has no code"));
}

TEST_P(DeviceContract, LoadRefusesAKernelNamedTwice) {
  REPRISE_DEVICE_OR_SKIP(device);
  const KernelDef twice[] = {{"same", nullptr}, {"same", nullptr}};
  EXPECT_THAT(device->Load({.kernels = twice, .cuda_fatbins = {}}),
              StatusIs(kInvalid, "'same' is in the image twice"));
}

TEST_P(DeviceContract, KernelOutlivesItsModule) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bench.module = nullptr;
  ASSERT_OK(bench.Affine(3, 4));
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(DeviceContract, QueryTellsBusyFromIdleAndNeverBlocks) {
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

TEST_P(DeviceContract, StreamsAreIndependent) {
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

TEST_P(DeviceContract, DestroyedStreamFinishesItsWork) {
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

TEST_P(DeviceContract, TwoDevicesInOneProcessDoNotMeet) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(auto other, testing::MakeDevice(GetParam()));
  Bench a(*device);
  Bench b(*other);
  ASSERT_OK(a.Affine(3, 4));
  ASSERT_OK(b.Affine(5, 6));
  EXPECT_EQ(a.Get(), 7u);
  EXPECT_EQ(b.Get(), 11u);
  const auto graph = a.Capture({1});
  EXPECT_THAT(graph->Replay(*b.stream), StatusIs(kInvalid, "another"));
}

TEST_P(DeviceContract, EnqueueHostRunsOnTheHostDeviceAlone) {
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

TEST_P(DeviceContract, CaptureRecordsAndReplayRuns) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({1, 2, 3});
  EXPECT_EQ(bench.Get(), 1u);  // recording ran nothing
  EXPECT_EQ(graph->num_kernel_nodes(), 3);
  EXPECT_EQ(graph->num_other_nodes(), 0);
  uint64_t expected = 1;
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK(graph->Replay(*bench.stream));
    for (const uint64_t add : {1, 2, 3}) expected = expected * 3 + add;
  }
  EXPECT_EQ(bench.Get(), expected);
}

TEST_P(DeviceContract, ReplayEqualsEagerAndInterleavesWithIt) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({8});
  ASSERT_OK(bench.Affine(3, 8));
  ASSERT_OK(graph->Replay(*bench.stream));
  ASSERT_OK(bench.Affine(2, 0));
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), (((1u * 3 + 8) * 3 + 8) * 2) * 3 + 8);
}

TEST_P(DeviceContract, CaptureCountsCopiesAndFillsAsOtherNodes) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK_AND_ASSIGN(MappedBuffer mapped, MappedBuffer::Create(*device, 8));
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.stream->Fill(bench.cell.data(), 0, 8));
  ASSERT_OK(bench.Affine(1, 9));
  ASSERT_OK(bench.stream->CopyToHost(mapped.host(), bench.cell.data(), 8));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 1);
  EXPECT_EQ(graph->num_other_nodes(), 2);
  ASSERT_OK(graph->Replay(*bench.stream));
  ASSERT_OK(bench.stream->Synchronize());
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(mapped.host()), 9u);
}

TEST_P(DeviceContract, EmptyCaptureReplaysNothing) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({});
  EXPECT_EQ(graph->num_kernel_nodes(), 0);
  EXPECT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 1u);
}

TEST_P(DeviceContract, ReplayIsAsynchronous) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  Gate gate(*device);
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  ASSERT_OK(bench.Affine(3, 4));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  ASSERT_OK(graph->Replay(*bench.stream));
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_THAT(bench.stream->Query(), StatusIs(kUnavailable, ""));
  gate.Open();
  EXPECT_EQ(bench.Get(), 25u);
}

TEST_P(DeviceContract, GraphMayGoWhileItsReplayIsInFlight) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  Gate gate(*device);
  ASSERT_OK(bench.stream->Launch(bench.wait, {}, gate.args()));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.Open();
  });
  {
    // Capture on another stream: instantiation waits for its own stream.
    Bench other(*device);
    ASSERT_OK(other.stream->BeginCapture());
    ASSERT_OK(
        other.stream->Launch(bench.affine, {}, ProbeAffineArgs{bench.cell.as<uint64_t>(), 3, 4}));
    ASSERT_OK_AND_ASSIGN(auto graph, other.stream->EndCapture());
    ASSERT_OK(graph->Replay(*bench.stream));
  }
  opener.join();
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(DeviceContract, ReplayRunsOnAnotherStreamOfTheDevice) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto graph = bench.Capture({4});
  ASSERT_OK_AND_ASSIGN(auto other, device->CreateStream());
  ASSERT_OK(graph->Replay(*other));
  ASSERT_OK(other->Synchronize());
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(DeviceContract, AbortedCaptureLeavesNothingBehind) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  bench.stream->AbortCapture();  // not capturing: nothing happens
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.Affine(100, 100));
  bench.stream->AbortCapture();
  EXPECT_EQ(bench.Get(), 1u);
  EXPECT_THAT(bench.stream->EndCapture(), StatusIs(kPrecondition, "not capturing"));
  const auto graph = bench.Capture({4});
  EXPECT_EQ(graph->num_kernel_nodes(), 1);
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(DeviceContract, StreamMayGoWhileCapturing) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  {
    ASSERT_OK_AND_ASSIGN(auto other, device->CreateStream());
    ASSERT_OK(other->BeginCapture());
    ASSERT_OK(other->Launch(bench.affine, {}, ProbeAffineArgs{bench.cell.as<uint64_t>(), 3, 4}));
  }
  EXPECT_EQ(bench.Get(), 1u);
}

TEST_P(DeviceContract, WrongCallsDuringCaptureAreRefusedAndDoNotSpoilIt) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  const auto before = bench.Capture({1});
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.Affine(3, 4));
  EXPECT_THAT(bench.stream->BeginCapture(), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(bench.stream->Synchronize(), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(bench.stream->Query(), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(before->Replay(*bench.stream), StatusIs(kPrecondition, "capturing"));
  EXPECT_THAT(bench.stream->Launch(bench.affine, {.block = 5000}, ProbeAffineArgs{}),
              StatusIs(kInvalid, "block"));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 1);
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 7u);
}

TEST_P(DeviceContract, OtherThreadsMayAllocateDuringCapture) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  ASSERT_OK(bench.stream->BeginCapture());
  ASSERT_OK(bench.Affine(3, 1));
  std::thread other([&] {
    for (int i = 0; i < 10; ++i) {
      EXPECT_OK(DeviceBuffer::Create(*device, 100000));
      EXPECT_OK(MappedBuffer::Create(*device, 1000));
      auto stream = device->CreateStream();
      ASSERT_OK(stream);
      ASSERT_OK_AND_ASSIGN(DeviceBuffer cell, DeviceBuffer::Create(*device, 8));
      ASSERT_OK((*stream)->Launch(bench.affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 0, 1}));
      ASSERT_OK((*stream)->Synchronize());
    }
  });
  other.join();
  ASSERT_OK(bench.Affine(3, 2));
  ASSERT_OK_AND_ASSIGN(auto graph, bench.stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 2);
  ASSERT_OK(graph->Replay(*bench.stream));
  EXPECT_EQ(bench.Get(), 14u);
}

TEST_P(DeviceContract, TwoThreadsMayCaptureAtOnce) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench a(*device);
  Bench b(*device);
  // Neither ends its capture before both have begun.
  std::atomic<int> begun{0};
  const auto capture = [&begun](Bench& bench, uint64_t add, std::unique_ptr<CapturedGraph>* graph) {
    ASSERT_OK(bench.stream->BeginCapture());
    ASSERT_OK(bench.Affine(3, add));
    ++begun;
    for (int ms = 0; begun < 2 && ms < 10000; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_OK_AND_ASSIGN(*graph, bench.stream->EndCapture());
  };
  std::unique_ptr<CapturedGraph> graph_a, graph_b;
  std::thread other([&] { capture(b, 6, &graph_b); });
  capture(a, 4, &graph_a);
  other.join();
  ASSERT_TRUE(graph_a != nullptr && graph_b != nullptr);
  ASSERT_OK(graph_a->Replay(*a.stream));
  ASSERT_OK(graph_b->Replay(*b.stream));
  EXPECT_EQ(a.Get(), 7u);
  EXPECT_EQ(b.Get(), 9u);
}

// Runs in a process of its own, since a fault on a GPU takes the process's context with it. 0: all
// as it should be.
int FaultIsStickyAndNamed(DeviceKind kind) {
  const auto device = *testing::MakeDevice(kind);
  const auto module = *device->Load(ProbeImage());
  const auto stream = *device->CreateStream();
  const Kernel fault = *module->Find(testing::kProbeFault);
  if (!stream->Launch(fault, {}, ProbeFaultArgs{.illegal_address = 4}).ok()) return 1;
  const absl::Status status = stream->Synchronize();
  if (!absl::IsInternal(status)) return 2;
  if (status.message().empty()) return 3;
  if (!absl::IsInternal(stream->Query())) return 4;
  if (stream->Launch(fault, {}, ProbeFaultArgs{.illegal_address = 4}).ok()) return 5;
  if (!absl::IsInternal(stream->Synchronize())) return 6;
  if (stream->BeginCapture().ok()) return 7;
  return 0;
}

class DeviceContractDeathTest : public DeviceContract {};
REPRISE_ON_EVERY_DEVICE(DeviceContractDeathTest);

TEST_P(DeviceContractDeathTest, FaultIsStickyAndNamed) {
  REPRISE_DEVICE_OR_SKIP(device);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(FaultIsStickyAndNamed(GetParam())), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reprise::runtime
