// SPDX-License-Identifier: Apache-2.0
// Owners of device memory; see buffer.h.
#include "runtime/memory/buffer.h"

#include "absl/status/statusor.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(Device& device, size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(void* data, device.Allocate(bytes));
  DeviceBuffer buffer;
  buffer.device_ = &device;
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->Free(data_);
}

absl::StatusOr<MappedBuffer> MappedBuffer::Create(Device& device, size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(MappedPointers pointers, device.AllocateMapped(bytes));
  MappedBuffer buffer;
  buffer.device_ = &device;
  buffer.pointers_ = pointers;
  buffer.bytes_ = bytes;
  return buffer;
}

MappedBuffer::~MappedBuffer() {
  if (pointers_.host != nullptr) device_->FreeMapped(pointers_);
}

}  // namespace reprise::runtime
