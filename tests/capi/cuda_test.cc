// SPDX-License-Identifier: Apache-2.0
// reprise.h inside a CUDA program: its own stream, and its own work in a captured graph. Built only
// with CUDA.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "capi/handles.h"
#include "graphs/bucket.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/capi/handles.h"
#include "tests/graphs/bench.h"
#include "tests/testing/status_matchers.h"

namespace reprise::capi {
namespace {

class CApiCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (runtime::CountCudaDevices(&why) == 0) GTEST_SKIP() << "no CUDA device: " << why;
    reprise_device_options options = {};
    options.struct_size = sizeof(options);
    options.kind = REPRISE_DEVICE_CUDA;
    device_ = Make<DeviceHandle>([&](reprise_device** made, reprise_error* error) {
      return reprise_device_create(&options, made, error);
    });
  }
  BufferHandle Mapped(size_t bytes) {
    return Make<BufferHandle>([&](reprise_buffer** made, reprise_error* error) {
      return reprise_buffer_create(device_.get(), REPRISE_MEMORY_MAPPED, bytes, made, error);
    });
  }
  DeviceHandle device_;
};

// Sets the first `capacity` bytes of the buffer that `context` is.
reprise_code SetBytes(void* context, reprise_stream* stream, int64_t capacity,
                      reprise_error* error) {
  const auto native = static_cast<cudaStream_t>(reprise_stream_native_handle(stream));
  void* data = reprise_buffer_device_data(static_cast<reprise_buffer*>(context));
  const cudaError_t set = cudaMemsetAsync(data, 7, static_cast<size_t>(capacity), native);
  if (set == cudaSuccess) return REPRISE_OK;
  std::strncpy(error->message, cudaGetErrorString(set), sizeof(error->message) - 1);
  return REPRISE_INTERNAL;
}

TEST_F(CApiCuda, OwnWorkOnAnOwnStreamIsCapturedAndReplayed) {
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), cudaSuccess);
  {
    const auto stream = Make<StreamHandle>([&](reprise_stream** made, reprise_error* error) {
      return reprise_stream_wrap(device_.get(), native, made, error);
    });
    EXPECT_EQ(reprise_stream_native_handle(stream.get()), native);
    const BufferHandle buffer = Mapped(64);
    const int64_t buckets[] = {8, 32};
    reprise_graph_options options;
    EXPECT_DONE(reprise_graph_options_init(&options, sizeof(options), &error));
    options.buckets = buckets;
    options.num_buckets = 2;
    options.warm_up = 0;
    const auto manager =
        Make<ManagerHandle>([&](reprise_graph_manager** made, reprise_error* error) {
          return reprise_graph_manager_create(stream.get(), &options, SetBytes, buffer.get(), made,
                                              error);
        });
    reprise_bucket_info bucket = {};
    bucket.struct_size = sizeof(bucket);
    EXPECT_DONE(reprise_graph_manager_get_bucket(manager.get(), 1, &bucket, &error));
    EXPECT_EQ(bucket.num_kernel_nodes + bucket.num_other_nodes, 1);
    EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 5, nullptr, &error));
    EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
    const auto* bytes = static_cast<const unsigned char*>(reprise_buffer_host_data(buffer.get()));
    EXPECT_EQ(bytes[7], 7);
    EXPECT_EQ(bytes[8], 0);
  }
  EXPECT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

reprise_code EnqueueProbes(void* context, reprise_stream* stream, const reprise_bucket* bucket,
                           reprise_error* error) {
  auto* bench = static_cast<graphs::Bench*>(context);
  graphs::Bucket told;
  told.capacity = bucket->rows;
  return Report(bench->Work()(*stream->shared->stream, told), error);
}

TEST_F(CApiCuda, KernelsAreCapturedInTheBackgroundVerifiedAuditedAndMoved) {
  graphs::Bench bench(*device_->device);
  ASSERT_OK(bench.stream->Synchronize());
  const auto stream = Make<StreamHandle>([&](reprise_stream** made, reprise_error* error) {
    return reprise_stream_create(device_.get(), made, error);
  });
  const int64_t buckets[] = {2, 4};
  const reprise_memory_range memory[] = {{"counts", bench.counts.data(), bench.counts.bytes()},
                                         {"cell", bench.cell.data(), bench.cell.bytes()}};
  reprise_graph_options options;
  EXPECT_DONE(reprise_graph_options_init(&options, sizeof(options), &error));
  options.buckets = buckets;
  options.num_buckets = 2;
  options.enqueue_bucket = EnqueueProbes;
  options.capture = REPRISE_CAPTURE_BACKGROUND;
  options.buffers = memory;
  options.num_buffers = 2;
  const auto manager = Make<ManagerHandle>([&](reprise_graph_manager** made, reprise_error* error) {
    return reprise_graph_manager_create(stream.get(), &options, nullptr, &bench, made, error);
  });
  EXPECT_DONE(reprise_graph_manager_wait_for_captures(manager.get(), &error));
  EXPECT_DONE(reprise_graph_manager_verify(manager.get(), 3, 1, memory, 2, nullptr, &error));
  reprise_audit_report audit = {};
  audit.struct_size = sizeof(audit);
  EXPECT_DONE(reprise_graph_manager_audit(manager.get(), 3, 1, &audit, &error));
  EXPECT_EQ(audit.num_pointers, 2u);
  EXPECT_EQ(audit.num_foreign, 0u);

  ASSERT_OK_AND_ASSIGN(auto elsewhere, runtime::DeviceBuffer::Create(*device_->device, 8));
  ASSERT_OK(bench.stream->Fill(elsewhere.data(), 0, 8));
  ASSERT_OK(bench.stream->Synchronize());
  reprise_move_report moved = {};
  moved.struct_size = sizeof(moved);
  EXPECT_DONE(
      reprise_graph_manager_move_buffer(manager.get(), "cell", elsewhere.data(), &moved, &error));
  EXPECT_EQ(moved.num_nodes, 2u);
  EXPECT_EQ(moved.num_recaptured, 0u);
  EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 4, nullptr, &error));
  uint64_t value = 0;
  EXPECT_DONE(reprise_stream_copy_to_host(stream.get(), &value, elsewhere.data(), 8, &error));
  EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
  EXPECT_EQ(value, 4u);
}

TEST_F(CApiCuda, MemoryOfTheDeviceHasNoAddressOnTheHost) {
  const auto buffer = Make<BufferHandle>([&](reprise_buffer** made, reprise_error* error) {
    return reprise_buffer_create(device_.get(), REPRISE_MEMORY_DEVICE, 64, made, error);
  });
  EXPECT_EQ(reprise_buffer_host_data(buffer.get()), nullptr);
  EXPECT_NE(reprise_buffer_device_data(buffer.get()), nullptr);
}

TEST_F(CApiCuda, FunctionsOfTheHostAreRefused) {
  const auto stream = Make<StreamHandle>([&](reprise_stream** made, reprise_error* error) {
    return reprise_stream_create(device_.get(), made, error);
  });
  const reprise_host_fn function = [](void*, reprise_error*) -> reprise_code { return REPRISE_OK; };
  EXPECT_REFUSED(reprise_stream_enqueue_function(stream.get(), function, nullptr, &error),
                 REPRISE_UNIMPLEMENTED, "device 'cuda' runs kernels only");
}

}  // namespace
}  // namespace reprise::capi
