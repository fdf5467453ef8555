// SPDX-License-Identifier: Apache-2.0
// The code that CUDA and HIP share, over a vendor without a GPU: lifetimes, contexts, and every
// error on the way.
#include "runtime/gpu/gpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/captured_node.h"
#include "runtime/memory/buffer.h"
#include "tests/runtime/fake_gpu_vendor.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kUnavailable;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Args {
  uint64_t value;
};

constexpr KernelDef kKernels[] = {{"add"}, {"mul"}, {"other_arch"}, {"nowhere"}};
constexpr std::string_view kFatbinA = "add 8 1024\n-other_arch 8 0\n";
constexpr std::string_view kFatbinB = "mul 8 0\n";

class GpuDeviceTest : public ::testing::Test {
 protected:
  // Whatever a test did, nothing is left behind and the thread's device is what it was.
  ~GpuDeviceTest() override {
    device_ = nullptr;
    EXPECT_EQ(gpu_.live_allocations, 0);
    EXPECT_EQ(gpu_.live_mapped, 0);
    EXPECT_EQ(gpu_.live_libraries, 0);
    EXPECT_EQ(gpu_.live_execs, 0);
    EXPECT_THAT(gpu_.graphs, IsEmpty());
    EXPECT_THAT(gpu_.captures, IsEmpty());
    EXPECT_THAT(gpu_.streams, IsEmpty());
    EXPECT_EQ(gpu_.current, 0);
  }
  absl::StatusOr<std::unique_ptr<Device>> Create(int ordinal) {
    return CreateGpuDevice(std::make_unique<FakeGpuVendor>(&gpu_), ordinal);
  }
  void MakeDevice(int ordinal = 0) {
    auto device = Create(ordinal);
    ASSERT_OK(device);
    device_ = *std::move(device);
    gpu_.calls.clear();
  }
  std::unique_ptr<KernelModule> Load() {
    const std::span<const std::byte> fatbins[] = {Bytes(kFatbinA), Bytes("!"), Bytes(kFatbinB)};
    auto module = device_->Load({.kernels = kKernels, .cuda_fatbins = fatbins});
    EXPECT_OK(module);
    return *std::move(module);
  }
  void Fail(const std::string& call) {
    gpu_.fail[call] = absl::InternalError("fake" + call + ": broken");
  }

  FakeGpu gpu_;
  std::unique_ptr<Device> device_;
};

TEST_F(GpuDeviceTest, WithoutADriverItIsUnavailableWithTheReason) {
  gpu_.fail["GetDeviceCount"] = absl::UnavailableError("fakeGetDeviceCount: driver too old");
  EXPECT_THAT(Create(0), StatusIs(kUnavailable, "driver too old"));
}

TEST_F(GpuDeviceTest, OrdinalMustExist) {
  EXPECT_THAT(Create(2), StatusIs(kUnavailable, "ordinal is 2; this machine has 2"));
  EXPECT_THAT(Create(-1), StatusIs(kInvalid, "ordinal is -1"));
  gpu_.num_devices = 0;
  EXPECT_THAT(Create(0), StatusIs(kUnavailable, "this machine has 0"));
}

TEST_F(GpuDeviceTest, BrokenDeviceFailsAtCreation) {
  Fail("MemGetInfo");
  EXPECT_THAT(Create(0), StatusIs(absl::StatusCode::kInternal, "fakeMemGetInfo: broken"));
}

TEST_F(GpuDeviceTest, DeviceThatIsCurrentAlreadyIsNeverSet) {
  MakeDevice(0);
  const auto module = Load();
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  ASSERT_OK(stream->BeginCapture());
  ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
  ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
  ASSERT_OK(graph->Replay(*stream));
  ASSERT_OK(DeviceBuffer::Create(*device_, 10));
  EXPECT_EQ(gpu_.CountCalls("SetDevice"), 0);
}

TEST_F(GpuDeviceTest, AnotherCurrentDeviceIsPutBackAfterEveryCall) {
  MakeDevice(1);
  {
    const auto module = Load();
    ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
    ASSERT_OK_AND_ASSIGN(auto buffer, DeviceBuffer::Create(*device_, 10));
    ASSERT_OK_AND_ASSIGN(auto mapped, MappedBuffer::Create(*device_, 10));
    ASSERT_OK(stream->Fill(buffer.data(), 0, 10));
    ASSERT_OK(stream->CopyToHost(mapped.host(), buffer.data(), 10));
    ASSERT_OK(stream->BeginCapture());
    ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
    ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
    ASSERT_OK(graph->Replay(*stream));
    ASSERT_OK(stream->Synchronize());
    ASSERT_OK(stream->Query());
    EXPECT_EQ(gpu_.current, 0);
  }
  device_ = nullptr;
  for (const FakeGpu::Call& call : gpu_.calls) {
    if (call.name == "GetDevice" || call.name == "SetDevice") continue;
    EXPECT_EQ(call.device, 1) << call.name;
  }
}

TEST_F(GpuDeviceTest, DeviceThatCannotBeMadeCurrentIsAnError) {
  MakeDevice(1);
  Fail("SetDevice");
  EXPECT_THAT(device_->Allocate(10), StatusIs(absl::StatusCode::kInternal, "fakeSetDevice"));
}

TEST_F(GpuDeviceTest, OutOfMemorySaysAskedAndFree) {
  MakeDevice();
  EXPECT_THAT(device_->Allocate(gpu_.free_bytes + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "536870913 bytes (512.00 MiB) asked, 536870912 bytes (512.00 MiB) free"));
  EXPECT_THAT(device_->Allocate(~size_t{0}),
              StatusIs(absl::StatusCode::kResourceExhausted, "GiB) asked"));
  EXPECT_EQ(gpu_.CountCalls("Malloc"), 1);  // the absurd size never reaches the driver
}

TEST_F(GpuDeviceTest, MappedMemoryIsZeroed) {
  MakeDevice();
  ASSERT_OK_AND_ASSIGN(auto mapped, MappedBuffer::Create(*device_, 100));
  EXPECT_THAT(std::vector<std::byte>(mapped.host(), mapped.host() + 100),
              ::testing::Each(std::byte{0}));
}

TEST_F(GpuDeviceTest, LoadFindsKernelsInAnyFatbinAndSaysWhyOthersAreMissing) {
  MakeDevice();
  const auto module = Load();
  EXPECT_OK(module->Find("add"));
  EXPECT_OK(module->Find("mul"));
  EXPECT_THAT(module->Find("other_arch"),
              StatusIs(kNotFound, "'other_arch' has no code for Fake GPU"));
  EXPECT_THAT(module->Find("nowhere"), StatusIs(kNotFound, "no kernel image for this device"));
  EXPECT_THAT(module->Find("unheard_of"), StatusIs(kNotFound, "no such kernel in this image"));
  // Static shared memory takes its part of what launches may ask for.
  EXPECT_EQ(gpu_.kernels[0]->max_shared_bytes, (200u << 10) - 1024u);
}

TEST_F(GpuDeviceTest, LoadReportsOtherFailures) {
  MakeDevice();
  const std::span<const std::byte> fatbins[] = {Bytes(kFatbinA)};
  const KernelImage image = {.kernels = kKernels, .cuda_fatbins = fatbins};
  for (const std::string call :
       {"LibraryLoad", "LibraryFindKernels", "KernelGetInfo", "KernelSetMaxSharedBytes"}) {
    Fail(call);
    EXPECT_THAT(device_->Load(image), StatusIs(absl::StatusCode::kInternal, "fake" + call));
  }
  EXPECT_OK(device_->Load(image));
}

TEST_F(GpuDeviceTest, KernelIsTakenFromTheFatbinThatHasCodeForTheDevice) {
  MakeDevice();
  const KernelDef kernels[] = {{"both"}};
  const std::span<const std::byte> fatbins[] = {Bytes("-both 8 0\n"), Bytes("both 16 0\n")};
  ASSERT_OK_AND_ASSIGN(const auto module,
                       device_->Load({.kernels = kernels, .cuda_fatbins = fatbins}));
  ASSERT_OK_AND_ASSIGN(const Kernel both, module->Find("both"));
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  EXPECT_THAT(stream->Launch(both, {}, Args{1}), StatusIs(kInvalid, "its argument has 16"));
}

TEST_F(GpuDeviceTest, ArgumentSizeThatTheVendorCannotTellIsNotChecked) {
  MakeDevice();
  const KernelDef kernels[] = {{"unknown"}};
  const std::span<const std::byte> fatbins[] = {Bytes("unknown 0 0\n")};
  ASSERT_OK_AND_ASSIGN(const auto module,
                       device_->Load({.kernels = kernels, .cuda_fatbins = fatbins}));
  ASSERT_OK_AND_ASSIGN(const Kernel unknown, module->Find("unknown"));
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  EXPECT_OK(stream->Launch(unknown, {}, Args{1}));
}

TEST_F(GpuDeviceTest, LaunchChecksArgumentSizeAndSharedMemoryAgainstTheCode) {
  MakeDevice();
  const auto module = Load();
  const Kernel add = *module->Find("add");
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  EXPECT_THAT(stream->Launch(add, {}, uint32_t{1}),
              StatusIs(kInvalid, "args_bytes is 4; its argument has 8"));
  EXPECT_THAT(stream->Launch(add, {.shared_bytes = 200 << 10}, Args{1}),
              StatusIs(kInvalid, "allowed beside its static shared memory: 0 to 203776"));
  EXPECT_OK(stream->Launch(add, {.shared_bytes = (200 << 10) - 1024}, Args{1}));
  EXPECT_THAT(gpu_.launched, ElementsAre("add"));
}

TEST_F(GpuDeviceTest, KernelsBeginEarlyIfTheyAndTheirCodeWaitForThePrevious) {
  MakeDevice();
  constexpr KernelDef kDefs[] = {{.name = "add", .waits_for_previous = true}, {.name = "mul"}};
  for (const bool can_wait : {false, true}) {
    gpu_.code_can_wait = can_wait;
    const std::span<const std::byte> fatbins[] = {Bytes(kFatbinA), Bytes(kFatbinB)};
    ASSERT_OK_AND_ASSIGN(const auto module,
                         device_->Load({.kernels = kDefs, .cuda_fatbins = fatbins}));
    ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
    EXPECT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
    EXPECT_OK(stream->Launch(*module->Find("mul"), {}, Args{2}));
    ASSERT_OK(stream->Synchronize());
    EXPECT_EQ(gpu_.launched_early.size(), can_wait ? 1u : 0u);
  }
  EXPECT_THAT(gpu_.launched_early, ElementsAre("add"));
}

TEST_F(GpuDeviceTest, DriversLaunchErrorNamesTheKernelAndTheShape) {
  MakeDevice();
  const auto module = Load();
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  Fail("LaunchKernel");
  const absl::Status status =
      stream->Launch(*module->Find("add"), {.grid_x = 3, .block = 64}, Args{1});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "kernel 'add', grid 3 x 1, block 64"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("fakeLaunchKernel: broken"));
}

TEST_F(GpuDeviceTest, CaptureCountsNodesAndMeasuresBytes) {
  MakeDevice();
  const auto module = Load();
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  ASSERT_OK_AND_ASSIGN(auto buffer, DeviceBuffer::Create(*device_, 10));
  ASSERT_OK(stream->BeginCapture());
  ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
  ASSERT_OK(stream->Launch(*module->Find("mul"), {}, Args{2}));
  ASSERT_OK(stream->Fill(buffer.data(), 0, 10));
  ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
  EXPECT_EQ(graph->num_kernel_nodes(), 2);
  EXPECT_EQ(graph->num_other_nodes(), 1);
  EXPECT_EQ(graph->device_bytes(), gpu_.bytes_per_graph);
  EXPECT_THAT(gpu_.launched, IsEmpty());
  ASSERT_OK(graph->Replay(*stream));
  EXPECT_THAT(gpu_.launched, ElementsAre("graph"));
  EXPECT_THAT(stream->Query(), StatusIs(kUnavailable, ""));
}

TEST_F(GpuDeviceTest, MemoryFreedByOthersMeanwhileCountsAsNone) {
  MakeDevice();
  gpu_.bytes_per_graph = static_cast<size_t>(-4096);
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  ASSERT_OK(stream->BeginCapture());
  ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
  EXPECT_EQ(graph->device_bytes(), 0u);
}

TEST_F(GpuDeviceTest, GraphTellsItsNodesWhereTheStreamWasToldToKeepThem) {
  MakeDevice(1);
  const auto module = Load();
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  ASSERT_OK_AND_ASSIGN(auto buffer, DeviceBuffer::Create(*device_, 8));
  const auto capture = [&]() -> std::unique_ptr<CapturedGraph> {
    EXPECT_OK(stream->BeginCapture());
    EXPECT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
    EXPECT_OK(stream->Launch(*module->Find("mul"), {}, Args{2}));
    EXPECT_OK(stream->Fill(buffer.data(), 0, 4));
    return *stream->EndCapture();
  };
  EXPECT_EQ(NodesOf(*capture()), nullptr);
  EXPECT_THAT(gpu_.graphs, IsEmpty());
  KeepNodes(*stream);
  auto graph = capture();
  EXPECT_EQ(gpu_.graphs.size(), 1u);
  CapturedNodeAccess* nodes = NodesOf(*graph);
  ASSERT_NE(nodes, nullptr);
  ASSERT_OK_AND_ASSIGN(const std::span<const CapturedNode> list, nodes->List());
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[1].name, "mul");
  EXPECT_EQ(list[2].kind, CapturedNode::Kind::kFill);
  EXPECT_EQ(ArgsFromBytes<FillNodeArgs>(list[2].args).dst, buffer.data());
  const Args other{7};
  ASSERT_OK(nodes->SetArgs(1, std::as_bytes(std::span(&other, 1))));
  ASSERT_EQ(gpu_.set_args.size(), 1u);
  EXPECT_EQ(gpu_.set_args.begin()->second, list[1].args);
  EXPECT_EQ(list[1].args[0], std::byte{7});
  Fail("GraphExecSetNodeArgs");
  const Args third{9};
  EXPECT_THAT(nodes->SetArgs(1, std::as_bytes(std::span(&third, 1))),
              StatusIs(absl::StatusCode::kInternal, "fakeGraphExecSetNodeArgs"));
  EXPECT_EQ(list[1].args[0], std::byte{7});
  EXPECT_TRUE(nodes->IsAddress(4096));
  EXPECT_FALSE(nodes->IsAddress(0));
  for (const FakeGpu::Call& call : gpu_.calls) {
    if (call.name != "GetDevice" && call.name != "SetDevice") {
      EXPECT_EQ(call.device, 1) << call.name;
    }
  }
}

// Fails every call that ends a capture, one at a time; the fixture checks that nothing leaks.
TEST_F(GpuDeviceTest, CaptureThatFailsAnywhereLeavesTheStreamUsable) {
  MakeDevice();
  const auto module = Load();
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  for (const std::string call :
       {"StreamBeginCapture", "StreamEndCapture", "GraphCountNodes", "MemGetInfo",
        "GraphInstantiate", "GraphUpload", "StreamSynchronize"}) {
    Fail(call);
    absl::Status status = stream->BeginCapture();
    if (status.ok()) {
      ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
      status = stream->EndCapture().status();
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "fake" + call));
    EXPECT_THAT(gpu_.graphs, IsEmpty()) << call;
    EXPECT_EQ(gpu_.live_execs, 0) << call;
    ASSERT_OK(stream->BeginCapture()) << "after " << call;
    ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
    ASSERT_OK_AND_ASSIGN(auto graph, stream->EndCapture());
    ASSERT_OK(graph->Replay(*stream));
  }
}

TEST_F(GpuDeviceTest, AbortIgnoresThatTheCaptureWasSpoilt) {
  MakeDevice();
  ASSERT_OK_AND_ASSIGN(auto stream, device_->CreateStream());
  ASSERT_OK(stream->BeginCapture());
  Fail("StreamEndCapture");
  stream->AbortCapture();
  EXPECT_OK(stream->Synchronize());
  EXPECT_THAT(stream->EndCapture(), StatusIs(kPrecondition, "not capturing"));
}

TEST_F(GpuDeviceTest, WrappedStreamIsNeitherWaitedForNorDestroyed) {
  MakeDevice();
  const auto module = Load();
  void* native = gpu_.NewHandle();
  gpu_.streams[native] = false;
  {
    ASSERT_OK_AND_ASSIGN(auto stream, device_->WrapStream(native));
    EXPECT_EQ(stream->native_handle(), native);
    ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
  }
  EXPECT_EQ(gpu_.CountCalls("StreamSynchronize"), 0);
  EXPECT_EQ(gpu_.streams.count(native), 1u);
  gpu_.streams.erase(native);
}

TEST_F(GpuDeviceTest, WrapRefusesTheDefaultStream) {
  MakeDevice();
  EXPECT_THAT(device_->WrapStream(nullptr), StatusIs(kInvalid, "default stream"));
}

TEST_F(GpuDeviceTest, CaptureBegunByTheEmbedderIsNotSpoilt) {
  MakeDevice();
  const auto module = Load();
  void* native = gpu_.NewHandle();
  gpu_.streams[native] = false;
  gpu_.captures[native] = {};
  {
    ASSERT_OK_AND_ASSIGN(auto stream, device_->WrapStream(native));
    EXPECT_THAT(stream->Synchronize(), StatusIs(kPrecondition, "capturing"));
    EXPECT_THAT(stream->Query(), StatusIs(kPrecondition, "capturing"));
    EXPECT_THAT(stream->BeginCapture(), StatusIs(kPrecondition, "capturing"));
    ASSERT_OK(stream->Launch(*module->Find("add"), {}, Args{1}));
    stream->AbortCapture();  // not ours
  }
  EXPECT_EQ(gpu_.CountCalls("StreamEndCapture"), 0);
  EXPECT_EQ(gpu_.captures.at(native).num_kernels, 1);
  gpu_.captures.clear();
  gpu_.streams.clear();
}

}  // namespace
}  // namespace reprise::runtime
