// SPDX-License-Identifier: Apache-2.0
// A stream of the host device: a thread with a queue. Capture records what would have been queued;
// replay queues the whole recording as one item. Part of the host device's implementation, like
// host_executor.h.
#ifndef REPRISE_RUNTIME_HOST_HOST_STREAM_H_
#define REPRISE_RUNTIME_HOST_HOST_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/host/host_executor.h"

namespace reprise::runtime {

struct HostStreamOptions {
  int max_delay_us = 0;     // as DeviceOptions::host_max_delay_us
  uint64_t delay_seed = 1;  // of this stream alone
};

// `properties` and `executor` must outlive the stream. The stream's destructor waits for the work
// that was enqueued. Errors: ResourceExhausted when no thread can be had.
absl::StatusOr<std::unique_ptr<Stream>> CreateHostStream(const DeviceProperties& properties,
                                                         HostExecutor& executor,
                                                         const HostStreamOptions& options);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_HOST_STREAM_H_
