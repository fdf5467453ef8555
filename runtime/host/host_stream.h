// SPDX-License-Identifier: Apache-2.0
// A stream of the host device: a thread with a queue. Capture records what would have been queued;
// replay queues the whole recording as one item. Part of the host device's implementation, like
// host_executor.h.
#ifndef REPRISE_RUNTIME_HOST_HOST_STREAM_H_
#define REPRISE_RUNTIME_HOST_HOST_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/host/host_executor.h"
#include "runtime/host/test_delays.h"

namespace reprise::runtime {

// `properties` and `executor` must outlive the stream. The stream's destructor waits for the work
// that was enqueued. The seed of `delays` is this stream's alone. Errors: ResourceExhausted when no
// thread can be had.
absl::StatusOr<std::unique_ptr<Stream>> CreateHostStream(const DeviceProperties& properties,
                                                         HostExecutor& executor,
                                                         const TestDelays& delays);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_HOST_STREAM_H_
