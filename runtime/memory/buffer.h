// SPDX-License-Identifier: Apache-2.0
// Owners of device memory: DeviceBuffer (device) and MappedBuffer (pinned, addressed by both
// sides). Move-only; others hold plain pointers into them. Must not outlive their Device.
#ifndef REPRISE_RUNTIME_MEMORY_BUFFER_H_
#define REPRISE_RUNTIME_MEMORY_BUFFER_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Errors: those of Device::Allocate.
  static absl::StatusOr<DeviceBuffer> Create(Device& device, size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept { Swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~DeviceBuffer();

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void Swap(DeviceBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class MappedBuffer {
 public:
  MappedBuffer() = default;
  // Zero-filled. Errors: those of Device::AllocateMapped.
  static absl::StatusOr<MappedBuffer> Create(Device& device, size_t bytes);
  MappedBuffer(MappedBuffer&& other) noexcept { Swap(other); }
  MappedBuffer& operator=(MappedBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~MappedBuffer();

  std::byte* host() const { return static_cast<std::byte*>(pointers_.host); }
  std::byte* device() const { return static_cast<std::byte*>(pointers_.device); }
  size_t bytes() const { return bytes_; }

 private:
  void Swap(MappedBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointers_, other.pointers_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  MappedPointers pointers_;
  size_t bytes_ = 0;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MEMORY_BUFFER_H_
