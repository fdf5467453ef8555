// SPDX-License-Identifier: Apache-2.0
// The CUDA device: GpuDevice (gpu_device.h) over the CUDA runtime. Compiled only where there is a
// CUDA toolkit (REPRISE_WITH_CUDA). The runtime library is linked statically and libcuda never, so
// that a program starts on a machine without a driver.
#ifndef REPRISE_RUNTIME_CUDA_CUDA_DEVICE_H_
#define REPRISE_RUNTIME_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

// Uses `ordinal` of the options. Errors: InvalidArgument (a negative ordinal), Unavailable (no
// driver, no such device).
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const DeviceOptions& options);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_CUDA_CUDA_DEVICE_H_
