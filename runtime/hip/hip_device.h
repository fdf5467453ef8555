// SPDX-License-Identifier: Apache-2.0
// The HIP device: GpuDevice (gpu_device.h) over the HIP runtime of ROCm. Compiled into every build,
// since it needs neither HIP's headers nor its library to be there: the library is opened when a
// device is asked for (hip_library.h).
#ifndef REPRISE_RUNTIME_HIP_HIP_DEVICE_H_
#define REPRISE_RUNTIME_HIP_HIP_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

// Uses `ordinal` and `hip_library` of the options. Errors: InvalidArgument (a negative ordinal),
// Unavailable (no library, a library that lacks a call, no driver, no such device), Internal (a
// device whose answers this build cannot make sense of).
absl::StatusOr<std::unique_ptr<Device>> CreateHipDevice(const DeviceOptions& options);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HIP_HIP_DEVICE_H_
