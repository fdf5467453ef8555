// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/shared_buffer.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {

absl::StatusOr<SharedMemory*> SharedMemoryOf(Device& device) {
  if (auto* memory = dynamic_cast<SharedMemory*>(&device)) return memory;
  return absl::UnimplementedError(absl::StrCat("device '", device.properties().name,
                                               "' has no memory that processes can share"));
}

absl::StatusOr<SharedBuffer> SharedBuffer::Create(Device& device, size_t bytes) {
  SharedBuffer buffer;
  REPRISE_ASSIGN_OR_RETURN(SharedMemory * memory, SharedMemoryOf(device));
  REPRISE_ASSIGN_OR_RETURN(buffer.allocation_, memory->AllocateShared(bytes));
  buffer.memory_ = memory;
  return buffer;
}

SharedBuffer::~SharedBuffer() {
  if (allocation_.data != nullptr) memory_->FreeShared(allocation_.data);
}

absl::StatusOr<OpenedBuffer> OpenedBuffer::Open(Device& device, std::string_view handle,
                                                size_t bytes) {
  OpenedBuffer buffer;
  REPRISE_ASSIGN_OR_RETURN(SharedMemory * memory, SharedMemoryOf(device));
  REPRISE_ASSIGN_OR_RETURN(buffer.data_, memory->OpenShared(handle, bytes));
  buffer.memory_ = memory;
  return buffer;
}

OpenedBuffer::~OpenedBuffer() {
  if (data_ != nullptr) memory_->CloseShared(data_);
}

}  // namespace reprise::runtime
