// SPDX-License-Identifier: Apache-2.0
// What runtime/device.h promises of every device, on every device that this machine has: memory,
// transfers, faults. Kernels and streams: stream_contract_test.cc; capture:
// capture_contract_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numeric>
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
using ::reprise::testing::ProbeFaultArgs;
using ::reprise::testing::ProbeImage;
using ::reprise::testing::StatusIs;

using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;

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
    EXPECT_THAT(device->Allocate(bytes), StatusIs(kExhausted, std::to_string(bytes) + " bytes ("));
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

// Which a GPU may hold in other pages than small ones.
TEST_P(DeviceContract, LargeMappedMemoryIsZeroedAndSeenByBothSidesEveryTime) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  constexpr size_t kBytes = (size_t{5} << 20) + 24;
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_OK_AND_ASSIGN(MappedBuffer mapped, MappedBuffer::Create(*device, kBytes));
    ASSERT_EQ(std::count(mapped.host(), mapped.host() + kBytes, std::byte{0}),
              static_cast<int64_t>(kBytes));
    auto* const host_cell = reinterpret_cast<uint64_t*>(mapped.host() + kBytes - sizeof(uint64_t));
    auto* const device_cell =
        reinterpret_cast<uint64_t*>(mapped.device() + kBytes - sizeof(uint64_t));
    *host_cell = 5;
    ASSERT_OK(bench.stream->Launch(bench.affine, {}, ProbeAffineArgs{device_cell, 7, 2}));
    ASSERT_OK(bench.stream->Synchronize());
    EXPECT_EQ(*host_cell, 37u);
    ASSERT_OK_AND_ASSIGN(DeviceBuffer copy, DeviceBuffer::Create(*device, kBytes));
    ASSERT_OK(bench.stream->CopyToDevice(copy.data(), mapped.host(), kBytes));
    ASSERT_OK(bench.stream->Synchronize());
    std::fill_n(mapped.host(), kBytes, std::byte{1});
    ASSERT_OK(bench.stream->CopyToHost(mapped.host(), copy.data(), kBytes));
    ASSERT_OK(bench.stream->Synchronize());
    EXPECT_EQ(*host_cell, 37u);
    EXPECT_EQ(std::count(mapped.host(), mapped.host() + kBytes, std::byte{0}),
              static_cast<int64_t>(kBytes) - 1);
  }
}

// Pages that a fork left to both processes would be copied at the parent's next write, and a device
// would go on with those that the child has.
TEST_P(DeviceContract, MappedMemoryStaysTheParentsAcrossAFork) {
  REPRISE_DEVICE_OR_SKIP(device);
  Bench bench(*device);
  for (const size_t bytes : {size_t{4096}, size_t{4} << 20}) {
    ASSERT_OK_AND_ASSIGN(MappedBuffer mapped, MappedBuffer::Create(*device, bytes));
    int hold[2];
    ASSERT_EQ(pipe(hold), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(hold[1]);
      char byte;
      _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);  // until the parent closes
    }
    close(hold[0]);
    auto* const host_cell = reinterpret_cast<uint64_t*>(mapped.host());
    *host_cell = 5;
    ASSERT_OK(bench.stream->Launch(
        bench.affine, {}, ProbeAffineArgs{reinterpret_cast<uint64_t*>(mapped.device()), 7, 2}));
    ASSERT_OK(bench.stream->Synchronize());
    EXPECT_EQ(*host_cell, 37u) << bytes;
    close(hold[1]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
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
