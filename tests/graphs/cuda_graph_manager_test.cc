// SPDX-License-Identifier: Apache-2.0
// GraphManager inside a CUDA program: the embedder's own stream, its own launches in between, its
// own context. Built only with CUDA.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graphs/graph_manager.h"
#include "tests/testing/any_device.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::ProbeImage;
using ::reprise::testing::StatusIs;

class CudaGraphManager : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = testing::WhyNoDevice(runtime::DeviceKind::kCuda);
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

// x = 10 * x + capacity, once per replay.
struct Embedder {
  Embedder() {
    device = *runtime::Device::Create({.kind = runtime::DeviceKind::kCuda});
    module = *device->Load(ProbeImage());
    EXPECT_EQ(cudaStreamCreate(&native), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&cell), sizeof(uint64_t)), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(cell, 0, sizeof(uint64_t), native), cudaSuccess);
    stream = *device->WrapStream(native);
  }
  ~Embedder() {
    stream = nullptr;
    EXPECT_EQ(cudaStreamSynchronize(native), cudaSuccess);
    EXPECT_EQ(cudaFree(cell), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(native), cudaSuccess);
  }
  EnqueueFn Work() {
    return [affine = *module->Find(testing::kProbeAffine), cell = cell](runtime::Stream& s,
                                                                        const Bucket& bucket) {
      return s.Launch(affine, {},
                      ProbeAffineArgs{cell, 10, static_cast<uint64_t>(bucket.capacity)});
    };
  }
  uint64_t Get() {
    uint64_t value = 0;
    EXPECT_EQ(cudaMemcpyAsync(&value, cell, sizeof(value), cudaMemcpyDeviceToHost, native),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(native), cudaSuccess);
    return value;
  }

  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::KernelModule> module;
  std::unique_ptr<runtime::Stream> stream;
  cudaStream_t native = nullptr;
  uint64_t* cell = nullptr;
};

TEST_F(CudaGraphManager, ReplaysOnTheEmbeddersStreamInOrderWithItsOwnWork) {
  Embedder embedder;
  EXPECT_EQ(embedder.stream->native_handle(), embedder.native);
  ASSERT_OK_AND_ASSIGN(
      auto manager, GraphManager::Create(*embedder.stream, {.buckets = {1, 2, 4}, .warm_up = false},
                                         embedder.Work()));
  ASSERT_OK(manager->Replay(1));
  ASSERT_OK(manager->Replay(4));
  EXPECT_EQ(embedder.Get(), 14u);
  ASSERT_EQ(cudaMemsetAsync(embedder.cell, 0, 8, embedder.native), cudaSuccess);
  ASSERT_OK(manager->Replay(2));
  ASSERT_OK(manager->RunEager(3));
  EXPECT_EQ(embedder.Get(), 24u);
}

TEST_F(CudaGraphManager, EmbeddersOwnLaunchesAreCapturedToo) {
  Embedder embedder;
  // A memset through the vendor's own call, between two of our kernels.
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    absl::Status status = embedder.Work()(s, bucket);
    if (!status.ok()) return status;
    const auto native = static_cast<cudaStream_t>(s.native_handle());
    if (cudaMemsetAsync(embedder.cell, 1, 1, native) != cudaSuccess)
      return absl::InternalError("memset");
    return embedder.Work()(s, bucket);
  };
  ASSERT_OK_AND_ASSIGN(
      auto manager,
      GraphManager::Create(*embedder.stream, {.buckets = {8}, .warm_up = false}, work));
  EXPECT_EQ(manager->captured()[0].num_kernel_nodes, 2);
  EXPECT_EQ(manager->captured()[0].num_other_nodes, 1);
  ASSERT_OK(manager->Replay(8));
  EXPECT_EQ(embedder.Get(), 18u);
}

TEST_F(CudaGraphManager, GraphsTakeDeviceMemoryThatIsMeasured) {
  Embedder embedder;
  const EnqueueFn many = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    for (int i = 0; i < 2000; ++i) {
      absl::Status status = embedder.Work()(s, bucket);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(auto manager,
                       GraphManager::Create(*embedder.stream, {.buckets = {1, 2, 3, 4}}, many));
  size_t bytes = 0;
  for (const CapturedBucket& captured : manager->captured()) bytes += captured.device_bytes;
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, size_t{256} << 20);
}

TEST_F(CudaGraphManager, CaptureThatTheWorkSpoilsIsAnErrorAndTheStreamGoesOn) {
  Embedder embedder;
  const EnqueueFn spoils = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    // Waiting for a stream that is being captured ends the capture with an error.
    EXPECT_NE(cudaStreamSynchronize(static_cast<cudaStream_t>(s.native_handle())), cudaSuccess);
    return embedder.Work()(s, bucket);
  };
  const auto manager =
      GraphManager::Create(*embedder.stream, {.buckets = {8}, .warm_up = false}, spoils);
  EXPECT_THAT(manager,
              StatusIs(absl::StatusCode::kFailedPrecondition, "bucket 'graph/8', capture: "));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_OK_AND_ASSIGN(
      auto good,
      GraphManager::Create(*embedder.stream, {.buckets = {8}, .warm_up = false}, embedder.Work()));
  ASSERT_OK(good->Replay(8));
  EXPECT_EQ(embedder.Get(), 8u);
}

// The driver's context calls, found through the runtime, since nothing here links libcuda.
template <typename Function>
Function DriverCall(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &result),
            cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSuccess) << name;
  return reinterpret_cast<Function>(entry);
}

using CreateContext = CUresult (*)(CUcontext*, CUctxCreateParams*, unsigned, CUdevice);

TEST_F(CudaGraphManager, WorksInTheEmbeddersOwnContextAndLeavesItCurrent) {
  const auto create = DriverCall<CreateContext>("cuCtxCreate", 12050);
  const auto destroy = DriverCall<CUresult (*)(CUcontext)>("cuCtxDestroy", 12000);
  const auto current = DriverCall<CUresult (*)(CUcontext*)>("cuCtxGetCurrent", 12000);
  ASSERT_TRUE(create != nullptr && destroy != nullptr && current != nullptr);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // initialises the driver
  CUcontext mine = nullptr;
  ASSERT_EQ(create(&mine, nullptr, 0, 0), CUDA_SUCCESS);
  {
    Embedder embedder;
    ASSERT_OK_AND_ASSIGN(
        auto manager, GraphManager::Create(*embedder.stream, {.buckets = {1, 2}}, embedder.Work()));
    ASSERT_EQ(cudaMemsetAsync(embedder.cell, 0, 8, embedder.native), cudaSuccess);
    ASSERT_OK(manager->Replay(2));
    ASSERT_OK(manager->RunEager(1));
    EXPECT_EQ(embedder.Get(), 21u);
    CUcontext now = nullptr;
    ASSERT_EQ(current(&now), CUDA_SUCCESS);
    EXPECT_EQ(now, mine);
  }
  EXPECT_EQ(destroy(mine), CUDA_SUCCESS);
}

TEST_F(CudaGraphManager, BackgroundCapturesInTheEmbeddersOwnContext) {
  const auto create = DriverCall<CreateContext>("cuCtxCreate", 12050);
  const auto destroy = DriverCall<CUresult (*)(CUcontext)>("cuCtxDestroy", 12000);
  const auto set_current = DriverCall<CUresult (*)(CUcontext)>("cuCtxSetCurrent", 12000);
  ASSERT_TRUE(create != nullptr && destroy != nullptr && set_current != nullptr);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // initialises the driver
  CUcontext mine = nullptr;
  ASSERT_EQ(create(&mine, nullptr, 0, 0), CUDA_SUCCESS);
  {
    Embedder embedder;
    GraphManagerOptions options{.buckets = {1, 2, 4}, .warm_up = false};
    options.capture = CaptureMode::kBackground;
    options.device = embedder.device.get();
    options.on_capture_thread = [&] {
      return set_current(mine) == CUDA_SUCCESS ? absl::OkStatus()
                                               : absl::InternalError("cuCtxSetCurrent");
    };
    ASSERT_OK_AND_ASSIGN(auto manager,
                         GraphManager::Create(*embedder.stream, options, embedder.Work()));
    ASSERT_OK(manager->Replay(1));
    ASSERT_OK(manager->WaitForCaptures());
    ASSERT_OK(manager->Replay(4));
    EXPECT_EQ(embedder.Get(), 14u);
  }
  EXPECT_EQ(destroy(mine), CUDA_SUCCESS);
}

// Replays go on, and what CUDA forbids a capturing thread goes on beside it too.
TEST_F(CudaGraphManager, ReplaysAndAllocationsGoOnWhileManyNodesAreCaptured) {
  Embedder embedder;
  const EnqueueFn many = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    for (int i = 0; i < (bucket.capacity == 8 ? 1 : 2000); ++i) {
      absl::Status status = embedder.Work()(s, bucket);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  GraphManagerOptions options{.buckets = {1, 2, 4, 8}, .warm_up = false};
  options.capture = CaptureMode::kBackground;
  options.device = embedder.device.get();
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*embedder.stream, options, many));
  bool pending = true;
  for (int i = 0; i < 10000 && pending; ++i) {
    ASSERT_OK(manager->Replay(8));
    void* data = nullptr;
    ASSERT_EQ(cudaMalloc(&data, 4096), cudaSuccess);
    ASSERT_EQ(cudaFree(data), cudaSuccess);
    pending = false;
    for (const BucketReport& report : manager->Report()) {
      ASSERT_OK(report.error);
      pending = pending || report.state != BucketState::kCaptured;
    }
  }
  EXPECT_FALSE(pending);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaGraphManager, AuditTellsTheEmbeddersOwnCopiesAndFills) {
  Embedder embedder;
  uint64_t* other = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&other), 4 * sizeof(uint64_t)), cudaSuccess);
  // In the order of the graph: a kernel, a fill, a copy, a fill of two lines, a host function.
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    absl::Status status = embedder.Work()(s, bucket);
    if (!status.ok()) return status;
    const auto native = static_cast<cudaStream_t>(s.native_handle());
    if (cudaMemsetAsync(embedder.cell, 1, 1, native) != cudaSuccess ||
        cudaMemcpyAsync(other, embedder.cell, 8, cudaMemcpyDeviceToDevice, native) != cudaSuccess ||
        cudaMemset2DAsync(other, 16, 0, 8, 2, native) != cudaSuccess ||
        cudaLaunchHostFunc(
            native, [](void*) {}, nullptr) != cudaSuccess)
      return absl::InternalError("the embedder's own");
    return absl::OkStatus();
  };
  GraphManagerOptions options{.buckets = {8}, .warm_up = false};
  options.buffers = {{"other", other, 4 * sizeof(uint64_t)}};
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*embedder.stream, options, work));
  ASSERT_OK_AND_ASSIGN(const AuditReport report, manager->Audit({.rows = 8}));
  ASSERT_EQ(report.foreign.size(), 3u);
  EXPECT_EQ(report.foreign[0].kernel, testing::kProbeAffine);
  EXPECT_EQ(report.foreign[1].kernel, "fill");
  EXPECT_EQ(report.foreign[1].offset, 0u);
  EXPECT_EQ(report.foreign[2].kernel, "copy");
  EXPECT_EQ(report.foreign[2].offset, 8u);
  for (const ForeignPointer& pointer : report.foreign)
    EXPECT_EQ(pointer.address, reinterpret_cast<uint64_t>(embedder.cell));
  EXPECT_EQ(report.num_kernels, 1);
  EXPECT_EQ(report.num_pointers, 4);
  EXPECT_EQ(report.num_untold, 2);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  manager = nullptr;
  EXPECT_EQ(cudaFree(other), cudaSuccess);
}

TEST_F(CudaGraphManager, GraphWithAHostFunctionIsCapturedAgainWhenABufferMoves) {
  Embedder embedder;
  uint64_t* other = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&other), sizeof(uint64_t)), cudaSuccess);
  ASSERT_EQ(cudaMemset(other, 0, sizeof(uint64_t)), cudaSuccess);
  const EnqueueFn work = [&](runtime::Stream& s, const Bucket& bucket) -> absl::Status {
    const auto native = static_cast<cudaStream_t>(s.native_handle());
    if (cudaLaunchHostFunc(
            native, [](void*) {}, nullptr) != cudaSuccess)
      return absl::InternalError("cudaLaunchHostFunc");
    return embedder.Work()(s, bucket);
  };
  GraphManagerOptions options{.buckets = {8}, .warm_up = false};
  options.buffers = {{"cell", embedder.cell, sizeof(uint64_t)}};
  ASSERT_OK_AND_ASSIGN(auto manager, GraphManager::Create(*embedder.stream, options, work));
  ASSERT_OK(manager->Replay(8));
  std::swap(embedder.cell, other);
  ASSERT_OK_AND_ASSIGN(const MoveReport moved, manager->MoveBuffer("cell", embedder.cell));
  EXPECT_EQ(moved.num_graphs, 0);
  EXPECT_EQ(moved.num_recaptured, 1);
  ASSERT_OK(manager->Replay(8));
  EXPECT_EQ(embedder.Get(), 8u);
  manager = nullptr;
  EXPECT_EQ(cudaFree(other), cudaSuccess);
}

}  // namespace
}  // namespace reprise::graphs
