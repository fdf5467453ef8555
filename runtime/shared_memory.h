// SPDX-License-Identifier: Apache-2.0
// SharedMemory: device memory of which a handle may be given to other processes of the same
// machine, which map it. Not every device has it. Owners are in runtime/memory/shared_buffer.h.
//
// Whoever has a handle reads and writes all of the memory: it is an allocation of its own, never a
// part of one. Nobody orders what two processes do there but themselves: work on it is visible to
// others once the host that enqueued it has seen its end.
// Threads: any.
#ifndef REPRISE_RUNTIME_SHARED_MEMORY_H_
#define REPRISE_RUNTIME_SHARED_MEMORY_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

struct SharedAllocation {
  void* data = nullptr;
  std::string handle;  // bytes that OpenShared of another process takes, while `data` is not freed
};

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // Aligned as Device::Allocate, contents undefined. Errors: Device::Allocate's; Unimplemented
  // where the driver has no such memory here.
  virtual absl::StatusOr<SharedAllocation> AllocateShared(size_t bytes) = 0;
  virtual void FreeShared(void* data) = 0;
  // Maps another process's memory of at least `bytes`, which the host device checks and a GPU's
  // driver does not tell. Errors: FailedPrecondition or the driver's (the handle is none of this
  // machine's, of another device, or its memory is gone).
  virtual absl::StatusOr<void*> OpenShared(std::string_view handle, size_t bytes) = 0;
  // REQUIRES: no work on it is in flight.
  virtual void CloseShared(void* data) = 0;
};

// The device's own. Errors: Unimplemented names the device that has none.
absl::StatusOr<SharedMemory*> SharedMemoryOf(Device& device);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_SHARED_MEMORY_H_
