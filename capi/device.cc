// SPDX-License-Identifier: Apache-2.0
// Devices, memory and streams of reprise.h.
#include "runtime/device.h"

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "engine/default_device.h"
#include "runtime/memory/buffer.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

using runtime::DeviceKind;

absl::StatusOr<DeviceKind> KindOf(const reprise_device_options& options,
                                  std::string_view hip_library) {
  switch (options.kind) {
    case REPRISE_DEVICE_AUTO:
      return engine::ChooseDefaultDevice(hip_library).kind;
    case REPRISE_DEVICE_HOST:
      return DeviceKind::kHost;
    case REPRISE_DEVICE_CUDA:
      return DeviceKind::kCuda;
    case REPRISE_DEVICE_HIP:
      return DeviceKind::kHip;
    default:
      return absl::InvalidArgumentError(absl::StrCat("device options: kind is ", options.kind,
                                                     "; allowed: 0 (auto), 1 (host), 2 (cuda), 3 "
                                                     "(hip)"));
  }
}

reprise_device_kind NumberOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCuda:
      return REPRISE_DEVICE_CUDA;
    case DeviceKind::kHip:
      return REPRISE_DEVICE_HIP;
    case DeviceKind::kHost:
      break;
  }
  return REPRISE_DEVICE_HOST;
}

absl::Status CheckNumber(std::string_view name, int32_t got) {
  if (got >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("device options: ", std::string(name), " is ", got, "; allowed: at least 0"));
}

absl::Status CreateDevice(const reprise_device_options* given, reprise_device** device) {
  REPRISE_RETURN_IF_ERROR(CheckNotNull("device", device));
  reprise_device_options options = {};
  if (given != nullptr) REPRISE_RETURN_IF_ERROR(ReadStruct(given, &options));
  REPRISE_RETURN_IF_ERROR(CheckNumber("ordinal", options.ordinal));
  REPRISE_RETURN_IF_ERROR(CheckNumber("host_threads", options.host_threads));
  const std::string_view hip_library = options.hip_library == nullptr ? "" : options.hip_library;
  REPRISE_ASSIGN_OR_RETURN(const DeviceKind kind, KindOf(options, hip_library));
  REPRISE_ASSIGN_OR_RETURN(auto created,
                           runtime::Device::Create({.kind = kind,
                                                    .ordinal = options.ordinal,
                                                    .host_threads = options.host_threads,
                                                    .hip_library = hip_library}));
  *device = new reprise_device{.tag = {}, .device = std::move(created)};
  return absl::OkStatus();
}

absl::Status CreateBuffer(const reprise_device* device, reprise_memory_kind kind, size_t bytes,
                          reprise_buffer** buffer) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(device));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("buffer", buffer));
  auto made = std::make_unique<reprise_buffer>();
  made->device = device->device;
  if (kind == REPRISE_MEMORY_DEVICE) {
    REPRISE_ASSIGN_OR_RETURN(made->memory, runtime::DeviceBuffer::Create(*made->device, bytes));
  } else if (kind == REPRISE_MEMORY_MAPPED) {
    REPRISE_ASSIGN_OR_RETURN(made->mapped, runtime::MappedBuffer::Create(*made->device, bytes));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("memory kind is ", kind, "; allowed: 0 (device), 1 (mapped)"));
  }
  *buffer = made.release();
  return absl::OkStatus();
}

// A stream of `device`: one of its own, or one that wraps `*native`.
absl::Status CreateStream(const reprise_device* device, void* const* native,
                          reprise_stream** stream) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(device));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("stream", stream));
  auto shared = std::make_shared<SharedStream>();
  shared->device = device->device;
  if (native == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(shared->owned, shared->device->CreateStream());
  } else {
    REPRISE_ASSIGN_OR_RETURN(shared->owned, shared->device->WrapStream(*native));
  }
  shared->stream = shared->owned.get();
  *stream = new reprise_stream{.tag = {}, .shared = std::move(shared)};
  return absl::OkStatus();
}

// The host device makes a fault of the stream of what its functions throw, and of nothing else.
std::function<void()> HostFunction(reprise_host_fn function, void* context) {
  return [function, context] {
    reprise_error error = {};
    const absl::Status status = FromCaller(function(context, &error), error, "it");
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  };
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::CheckHandle;
using reprise::capi::CheckNotNull;

reprise_code reprise_device_create(const reprise_device_options* options, reprise_device** device,
                                   reprise_error* error) {
  return Call(error, [&] { return reprise::capi::CreateDevice(options, device); });
}

reprise_code reprise_device_destroy(reprise_device* device) {
  return reprise::capi::Destroy(device);
}

reprise_code reprise_device_get_info(const reprise_device* device, reprise_device_info* info,
                                     reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(device));
    const reprise::runtime::DeviceProperties& properties = device->device->properties();
    reprise_device_info value = {};
    value.kind = reprise::capi::NumberOf(properties.kind);
    value.ordinal = properties.ordinal;
    value.num_multiprocessors = properties.num_multiprocessors;
    value.warp_size = properties.warp_size;
    value.compute_capability = properties.compute_capability;
    value.name = properties.name.c_str();
    value.driver = properties.driver.c_str();
    value.architecture = properties.architecture.c_str();
    value.total_bytes = properties.total_bytes;
    return reprise::capi::WriteStruct(value, info);
  });
}

reprise_code reprise_buffer_create(reprise_device* device, reprise_memory_kind kind, size_t bytes,
                                   reprise_buffer** buffer, reprise_error* error) {
  return Call(error, [&] { return reprise::capi::CreateBuffer(device, kind, bytes, buffer); });
}

reprise_code reprise_buffer_destroy(reprise_buffer* buffer) {
  return reprise::capi::Destroy(buffer);
}

void* reprise_buffer_device_data(const reprise_buffer* buffer) {
  if (!CheckHandle(buffer).ok()) return nullptr;
  if (buffer->memory.data() != nullptr) return buffer->memory.data();
  return buffer->mapped.device();
}

void* reprise_buffer_host_data(const reprise_buffer* buffer) {
  if (!CheckHandle(buffer).ok()) return nullptr;
  const bool is_host = buffer->device->kind() == reprise::runtime::DeviceKind::kHost;
  if (buffer->memory.data() != nullptr) return is_host ? buffer->memory.data() : nullptr;
  return buffer->mapped.host();
}

size_t reprise_buffer_bytes(const reprise_buffer* buffer) {
  if (!CheckHandle(buffer).ok()) return 0;
  return buffer->memory.bytes() + buffer->mapped.bytes();
}

reprise_code reprise_stream_create(reprise_device* device, reprise_stream** stream,
                                   reprise_error* error) {
  return Call(error, [&] { return reprise::capi::CreateStream(device, nullptr, stream); });
}

reprise_code reprise_stream_wrap(reprise_device* device, void* native, reprise_stream** stream,
                                 reprise_error* error) {
  return Call(error, [&] { return reprise::capi::CreateStream(device, &native, stream); });
}

reprise_code reprise_stream_destroy(reprise_stream* stream) {
  return reprise::capi::Destroy(stream);
}

reprise_code reprise_stream_synchronize(reprise_stream* stream, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(stream));
    return stream->shared->stream->Synchronize();
  });
}

void* reprise_stream_native_handle(const reprise_stream* stream) {
  return CheckHandle(stream).ok() ? stream->shared->stream->native_handle() : nullptr;
}

reprise_code reprise_stream_enqueue_function(reprise_stream* stream, reprise_host_fn function,
                                             void* context, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(stream));
    if (function == nullptr) return CheckNotNull("function", nullptr);
    return stream->shared->stream->EnqueueHost(reprise::capi::HostFunction(function, context));
  });
}

reprise_code reprise_stream_copy_to_device(reprise_stream* stream, void* destination,
                                           const void* source, size_t bytes, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(stream));
    return stream->shared->stream->CopyToDevice(destination, source, bytes);
  });
}

reprise_code reprise_stream_copy_to_host(reprise_stream* stream, void* destination,
                                         const void* source, size_t bytes, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(stream));
    return stream->shared->stream->CopyToHost(destination, source, bytes);
  });
}
