// SPDX-License-Identifier: Apache-2.0
// Capture and graphs of the hip device over fake libraries: what it asks of them, and every error
// on the way. What holds for every device is in capture_contract_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/memory/buffer.h"
#include "tests/runtime/hip_fake_test.h"
#include "tests/testing/fake_hip/fake_hip_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::FakeHipRelease;
using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::StatusIs;

using ::reprise::testing::kInternal;
using ::reprise::testing::kPrecondition;

class HipCaptureTest : public HipFakeTest {};
REPRISE_ON_EVERY_HIP_RELEASE(HipCaptureTest);

// Copies and fills beside kernels: node types have other numbers in each release.
TEST_P(HipCaptureTest, CaptureCountsKernelsAndOthersInEveryRelease) {
  MakeStream();
  const Kernel affine = Affine();
  ASSERT_OK_AND_ASSIGN(const auto cell, DeviceBuffer::Create(*device_, 8));
  const size_t free_before = *device_->FreeBytes();
  ASSERT_OK(stream_->BeginCapture());
  uint64_t value = 5;
  ASSERT_OK(stream_->CopyToDevice(cell.data(), &value, 8));
  for (const uint64_t add : {1, 2, 3}) {
    ASSERT_OK(stream_->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 2, add}));
  }
  ASSERT_OK(stream_->Fill(cell.as<char>() + 7, 0, 1));
  ASSERT_OK_AND_ASSIGN(const auto graph, stream_->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 3);
  EXPECT_EQ(graph->num_other_nodes(), 2);
  EXPECT_EQ(graph->device_bytes(), fake_.machine().bytes_per_graph);
  EXPECT_EQ(*device_->FreeBytes(), free_before - graph->device_bytes());
  EXPECT_EQ(fake_.counts().graphs, 0);  // only the executable form is kept
  ASSERT_OK(graph->Replay(*stream_));
  ASSERT_OK(stream_->CopyToHost(&value, cell.data(), 8));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(value, ((5u * 2 + 1) * 2 + 2) * 2 + 3);
  EXPECT_EQ(fake_.CountCalls("hipGraphUpload"), GetParam() == FakeHipRelease::kCurrent ? 1 : 0);
}

TEST_P(HipCaptureTest, ArgumentsAreFrozenAtCapture) {
  MakeStream();
  const Kernel affine = Affine();
  ASSERT_OK_AND_ASSIGN(const auto cell, DeviceBuffer::Create(*device_, 8));
  ASSERT_OK(stream_->Fill(cell.data(), 0, 8));
  ASSERT_OK(stream_->BeginCapture());
  ProbeAffineArgs args{cell.as<uint64_t>(), 10, 3};
  ASSERT_OK(stream_->Launch(affine, {}, args));
  args = {};
  ASSERT_OK_AND_ASSIGN(const auto graph, stream_->EndCapture());
  for (int i = 0; i < 3; ++i) ASSERT_OK(graph->Replay(*stream_));
  uint64_t value = 0;
  ASSERT_OK(stream_->CopyToHost(&value, cell.data(), 8));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(value, 333u);
}

// Fails every call that ends a capture, one at a time; the fixture checks that nothing leaks.
TEST_P(HipCaptureTest, CaptureThatFailsAnywhereLeavesTheStreamUsable) {
  MakeStream();
  const Kernel affine = Affine();
  ASSERT_OK_AND_ASSIGN(const auto cell, DeviceBuffer::Create(*device_, 8));
  std::vector<const char*> calls = {
      "hipStreamBeginCapture", "hipStreamEndCapture",  "hipGraphGetNodes",
      "hipGraphCreate",        "hipGraphAddEmptyNode", "hipGraphNodeGetType",
      "hipMemGetInfo",         "hipGraphInstantiate",  "hipStreamSynchronize"};
  if (GetParam() == FakeHipRelease::kCurrent) calls.push_back("hipGraphUpload");
  for (const char* call : calls) {
    fake_.Fail(call, 999);
    absl::Status status = stream_->BeginCapture();
    if (status.ok()) {
      ASSERT_OK(stream_->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 1, 1}));
      status = stream_->EndCapture().status();
    }
    EXPECT_THAT(status, StatusIs(kInternal, std::string(call) + ": "));
    EXPECT_EQ(fake_.counts().execs, 0) << call;
    EXPECT_EQ(fake_.counts().graphs, 0) << call;
    ASSERT_OK(stream_->BeginCapture()) << "after " << call;
    ASSERT_OK(stream_->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 1, 1}));
    ASSERT_OK_AND_ASSIGN(auto graph, stream_->EndCapture());
    ASSERT_OK(graph->Replay(*stream_));
    ASSERT_OK(stream_->Synchronize());
  }
}

TEST_P(HipCaptureTest, AllocationByTheCapturingThreadSpoilsTheCapture) {
  MakeStream();
  const Kernel affine = Affine();
  ASSERT_OK_AND_ASSIGN(const auto cell, DeviceBuffer::Create(*device_, 8));
  ASSERT_OK(stream_->BeginCapture());
  EXPECT_THAT(device_->Allocate(8),
              StatusIs(kPrecondition,
                       "hipMalloc: " + Said("operation not permitted when stream is capturing",
                                            "hipErrorStreamCaptureUnsupported")));
  EXPECT_THAT(stream_->Launch(affine, {}, ProbeAffineArgs{cell.as<uint64_t>(), 1, 1}),
              StatusIs(kPrecondition, "hipErrorStreamCaptureInvalidated"));
  EXPECT_THAT(
      stream_->EndCapture(),
      StatusIs(kPrecondition, "hipStreamEndCapture: " +
                                  Said("operation failed due to a previous error during capture",
                                       "hipErrorStreamCaptureInvalidated")));
  EXPECT_OK(stream_->BeginCapture());
  stream_->AbortCapture();
  EXPECT_OK(stream_->Synchronize());
}

TEST_P(HipCaptureTest, CaptureMayNotBeEndedByAnotherThread) {
  MakeStream();
  ASSERT_OK(stream_->BeginCapture());
  absl::Status status;
  std::thread other([&] { status = stream_->EndCapture().status(); });
  other.join();
  EXPECT_THAT(status, StatusIs(kPrecondition, "hipErrorStreamCaptureWrongThread"));
}

}  // namespace
}  // namespace reprise::runtime
