// SPDX-License-Identifier: Apache-2.0
// Owners of memory that processes share: SharedBuffer made it, OpenedBuffer maps another
// process's. Move-only. Must not outlive their Device.
#ifndef REPRISE_RUNTIME_MEMORY_SHARED_BUFFER_H_
#define REPRISE_RUNTIME_MEMORY_SHARED_BUFFER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/shared_memory.h"

namespace reprise::runtime {

class SharedBuffer {
 public:
  SharedBuffer() = default;
  // Errors: those of SharedMemoryOf and AllocateShared.
  static absl::StatusOr<SharedBuffer> Create(Device& device, size_t bytes);
  SharedBuffer(SharedBuffer&& other) noexcept { Swap(other); }
  SharedBuffer& operator=(SharedBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~SharedBuffer();

  std::byte* data() const { return static_cast<std::byte*>(allocation_.data); }
  const std::string& handle() const { return allocation_.handle; }

 private:
  void Swap(SharedBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(allocation_, other.allocation_);
  }
  SharedMemory* memory_ = nullptr;
  SharedAllocation allocation_;
};

class OpenedBuffer {
 public:
  OpenedBuffer() = default;
  // Errors: those of SharedMemoryOf and OpenShared.
  static absl::StatusOr<OpenedBuffer> Open(Device& device, std::string_view handle, size_t bytes);
  OpenedBuffer(OpenedBuffer&& other) noexcept { Swap(other); }
  OpenedBuffer& operator=(OpenedBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~OpenedBuffer();

  const std::byte* data() const { return static_cast<const std::byte*>(data_); }

 private:
  void Swap(OpenedBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
  }
  SharedMemory* memory_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MEMORY_SHARED_BUFFER_H_
