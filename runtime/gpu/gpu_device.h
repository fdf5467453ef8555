// SPDX-License-Identifier: Apache-2.0
// GpuDevice: the Device of every GPU, written once over a GpuVendor.
//
// Contexts. A call that acts on the device makes it current for the calling thread only when the
// thread's current context belongs to another device, and puts that one back before it returns. A
// thread that has this device current already, through the vendor's runtime or through a context of
// the embedder's own, is left as it is: memory, streams and graphs are then made in that context.
// An embedder with a context of its own makes it current, creates the Device, and keeps it current
// wherever it uses it.
#ifndef REPRISE_RUNTIME_GPU_GPU_DEVICE_H_
#define REPRISE_RUNTIME_GPU_GPU_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/gpu/gpu_vendor.h"

namespace reprise::runtime {

// The device `ordinal` of `vendor`. Errors: InvalidArgument (a negative ordinal), Unavailable (no
// driver, no such device).
absl::StatusOr<std::unique_ptr<Device>> CreateGpuDevice(std::unique_ptr<const GpuVendor> vendor,
                                                        int ordinal);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_GPU_GPU_DEVICE_H_
