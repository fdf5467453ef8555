// SPDX-License-Identifier: Apache-2.0
// Streams and captured graphs of a GPU, written once over a GpuVendor. Part of gpu_device.cc's
// implementation.
#ifndef REPRISE_RUNTIME_GPU_GPU_STREAM_H_
#define REPRISE_RUNTIME_GPU_GPU_STREAM_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/gpu/gpu_vendor.h"

namespace reprise::runtime {

// What Kernel::handle of a GPU points at; owned by the device.
struct GpuKernel {
  GpuKernelHandle handle;
  size_t args_bytes = 0;                // of the one argument struct, as compiled; 0: unknown
  size_t max_dynamic_shared_bytes = 0;  // what the kernel's static shared memory leaves
  bool begins_early = false;            // KernelDef::waits_for_previous, and its code can
};

// The device that streams, graphs and guards act on. Owned by GpuDevice, which outlives them.
struct GpuContext {
  std::unique_ptr<const GpuVendor> vendor;
  DeviceProperties properties;
};

// Makes the device current for the calling thread while it lives, if another one is; see
// gpu_device.h.
class GpuDeviceGuard {
 public:
  explicit GpuDeviceGuard(const GpuContext& context);
  ~GpuDeviceGuard();
  GpuDeviceGuard(const GpuDeviceGuard&) = delete;
  GpuDeviceGuard& operator=(const GpuDeviceGuard&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const GpuContext& context_;
  absl::Status status_;
  int previous_ = -1;  // to be put back, or -1
};

// A destructor cannot fail: reports on standard error and goes on.
void LogIfError(std::string_view doing, const absl::Status& status);

// A stream of its own. Its destructor waits for the work that was enqueued.
absl::StatusOr<std::unique_ptr<Stream>> CreateGpuStream(const GpuContext& context);
// A view of an embedder's stream, which it neither waits for nor destroys.
absl::StatusOr<std::unique_ptr<Stream>> WrapGpuStream(const GpuContext& context, void* native);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_GPU_GPU_STREAM_H_
