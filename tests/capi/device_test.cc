// SPDX-License-Identifier: Apache-2.0
// Devices, memory and streams through reprise.h.
#include "runtime/device.h"

#include <gtest/gtest.h>
#include <reprise.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

reprise_device_options OptionsOf(reprise_device_kind kind) {
  reprise_device_options options = {};
  options.struct_size = sizeof(options);
  options.kind = kind;
  return options;
}

TEST(CApiDevice, HostSaysWhatItIs) {
  const DeviceHandle device = HostDevice();
  reprise_device_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_device_get_info(device.get(), &info, &error));
  EXPECT_EQ(info.kind, REPRISE_DEVICE_HOST);
  EXPECT_EQ(info.num_multiprocessors, 2);
  EXPECT_EQ(info.warp_size, 1);
  EXPECT_STRNE(info.name, "");
  EXPECT_STREQ(info.driver, "");
  EXPECT_GT(info.total_bytes, 0u);
}

TEST(CApiDevice, AutoTakesTheBestThatIsThere) {
  const auto device = Make<DeviceHandle>([](reprise_device** made, reprise_error* error) {
    return reprise_device_create(nullptr, made, error);
  });
  reprise_device_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_device_get_info(device.get(), &info, &error));
  std::string why;
  const bool has_cuda = runtime::CountCudaDevices(&why) > 0;
  EXPECT_EQ(info.kind == REPRISE_DEVICE_CUDA, has_cuda) << why;
}

TEST(CApiDevice, RefusesWhatThereIsNot) {
  reprise_device* device = nullptr;
  reprise_device_options options = OptionsOf(9);
  EXPECT_REFUSED(reprise_device_create(&options, &device, &error), REPRISE_INVALID_ARGUMENT,
                 "kind is 9; allowed: 0 (auto)");
  options = OptionsOf(REPRISE_DEVICE_HOST);
  options.host_threads = -1;
  EXPECT_REFUSED(reprise_device_create(&options, &device, &error), REPRISE_INVALID_ARGUMENT,
                 "host_threads is -1; allowed: at least 0");
  options = OptionsOf(REPRISE_DEVICE_HIP);
  options.hip_library = "/no/such/library";
  EXPECT_REFUSED(reprise_device_create(&options, &device, &error), REPRISE_UNAVAILABLE,
                 "/no/such/library");
  EXPECT_EQ(device, nullptr);
}

TEST(CApiBuffer, HasTheBytesThatWereAskedFor) {
  const DeviceHandle device = HostDevice();
  for (const reprise_memory_kind kind : {REPRISE_MEMORY_DEVICE, REPRISE_MEMORY_MAPPED}) {
    const auto buffer = Make<BufferHandle>([&](reprise_buffer** made, reprise_error* error) {
      return reprise_buffer_create(device.get(), kind, 1000, made, error);
    });
    EXPECT_EQ(reprise_buffer_bytes(buffer.get()), 1000u);
    void* host = reprise_buffer_host_data(buffer.get());
    ASSERT_NE(host, nullptr);
    EXPECT_EQ(host, reprise_buffer_device_data(buffer.get()));  // on the host device
    std::memset(host, 7, 1000);
  }
  reprise_buffer* buffer = nullptr;
  EXPECT_REFUSED(reprise_buffer_create(device.get(), REPRISE_MEMORY_DEVICE, 0, &buffer, &error),
                 REPRISE_INVALID_ARGUMENT, "");
  EXPECT_REFUSED(reprise_buffer_create(device.get(), 5, 8, &buffer, &error),
                 REPRISE_INVALID_ARGUMENT, "memory kind is 5; allowed: 0 (device), 1 (mapped)");
}

TEST(CApiStream, CopiesInOrder) {
  const DeviceHandle device = HostDevice();
  const StreamHandle stream = HostStream(device.get());
  const auto buffer = Make<BufferHandle>([&](reprise_buffer** made, reprise_error* error) {
    return reprise_buffer_create(device.get(), REPRISE_MEMORY_DEVICE, 12, made, error);
  });
  void* data = reprise_buffer_device_data(buffer.get());
  const std::vector<int32_t> in = {3, 1, 4};
  std::vector<int32_t> out(3);
  EXPECT_DONE(reprise_stream_copy_to_device(stream.get(), data, in.data(), 12, &error));
  EXPECT_DONE(reprise_stream_copy_to_host(stream.get(), out.data(), data, 12, &error));
  EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
  EXPECT_EQ(out, in);
  EXPECT_REFUSED(reprise_stream_copy_to_host(stream.get(), nullptr, data, 12, &error),
                 REPRISE_INVALID_ARGUMENT, "CopyToHost");
}

TEST(CApiStream, OfTheHostHasNoNativeHandleAndWrapsNone) {
  const DeviceHandle device = HostDevice();
  const StreamHandle stream = HostStream(device.get());
  EXPECT_EQ(reprise_stream_native_handle(stream.get()), nullptr);
  reprise_stream* wrapped = nullptr;
  int anything = 0;
  EXPECT_REFUSED(reprise_stream_wrap(device.get(), &anything, &wrapped, &error),
                 REPRISE_UNIMPLEMENTED, "");
  EXPECT_EQ(wrapped, nullptr);
}

reprise_code CountUp(void* context, reprise_error*) {
  ++*static_cast<int*>(context);
  return REPRISE_OK;
}

reprise_code Fail(void*, reprise_error* error) {
  std::snprintf(error->message, sizeof(error->message), "the disk is gone");
  return REPRISE_UNAVAILABLE;
}

TEST(CApiStream, RunsFunctionsUntilOneFails) {
  const DeviceHandle device = HostDevice();
  const StreamHandle stream = HostStream(device.get());
  int count = 0;
  EXPECT_DONE(reprise_stream_enqueue_function(stream.get(), CountUp, &count, &error));
  EXPECT_DONE(reprise_stream_enqueue_function(stream.get(), CountUp, &count, &error));
  EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
  EXPECT_EQ(count, 2);
  EXPECT_REFUSED(reprise_stream_enqueue_function(stream.get(), nullptr, &count, &error),
                 REPRISE_INVALID_ARGUMENT, "function: got NULL");
  EXPECT_DONE(reprise_stream_enqueue_function(stream.get(), Fail, nullptr, &error));
  EXPECT_REFUSED(reprise_stream_synchronize(stream.get(), &error), REPRISE_INTERNAL,
                 "the disk is gone");
  EXPECT_REFUSED(reprise_stream_enqueue_function(stream.get(), CountUp, &count, &error),
                 REPRISE_INTERNAL, "the disk is gone");
  EXPECT_EQ(count, 2);
}

TEST(CApiStream, OutlivesTheHandleOfItsDevice) {
  DeviceHandle device = HostDevice();
  const StreamHandle stream = HostStream(device.get());
  device.reset();
  int count = 0;
  EXPECT_DONE(reprise_stream_enqueue_function(stream.get(), CountUp, &count, &error));
  EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace reprise::capi
