// SPDX-License-Identifier: Apache-2.0
// Memory of the host device that processes share: sealed memory files (memfd), which are gone with
// the last process that has them. A handle names the process and its descriptor, which another one
// of the same user opens in /proc. Threads: any.
#ifndef REPRISE_RUNTIME_HOST_HOST_SHARED_MEMORY_H_
#define REPRISE_RUNTIME_HOST_HOST_SHARED_MEMORY_H_

#include <cstddef>
#include <mutex>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/shared_memory.h"

namespace reprise::runtime {

class HostSharedMemory {
 public:
  HostSharedMemory() = default;
  // Unmaps what is left.
  ~HostSharedMemory();
  HostSharedMemory(const HostSharedMemory&) = delete;
  HostSharedMemory& operator=(const HostSharedMemory&) = delete;

  // As SharedMemory's.
  absl::StatusOr<SharedAllocation> Allocate(size_t bytes);
  absl::StatusOr<void*> Open(std::string_view handle, size_t bytes);
  void Release(void* data);

 private:
  struct Mapping {
    size_t bytes = 0;
    int file = -1;  // kept open by who made it
  };
  static void Unmap(void* data, const Mapping& mapping);

  std::mutex mutex_;
  absl::flat_hash_map<void*, Mapping> mappings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_HOST_SHARED_MEMORY_H_
