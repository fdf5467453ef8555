// SPDX-License-Identifier: Apache-2.0
// The host device: threads of this process. A stream is a thread (host_stream.h), a kernel's blocks
// run on a fixed set of workers (host_executor.h), device memory is plain memory. What differs from
// a GPU: Free does not wait for work in flight.
#ifndef REPRISE_RUNTIME_HOST_HOST_DEVICE_H_
#define REPRISE_RUNTIME_HOST_HOST_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/host/test_delays.h"

namespace reprise::runtime {

// Uses `host_threads` of the options. Blocks of a kernel run on the stream's thread and
// host_threads - 1 workers. Device::Create passes no delays. Errors: InvalidArgument on an option
// or a delay out of range; ResourceExhausted when threads cannot be had.
absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const DeviceOptions& options,
                                                         const TestDelays& delays = {});

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_HOST_DEVICE_H_
