// SPDX-License-Identifier: Apache-2.0
// Captures what a function enqueues. Part of no public header.
#ifndef REPRISE_GRAPHS_CAPTURE_WORK_H_
#define REPRISE_GRAPHS_CAPTURE_WORK_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::graphs {

// What `enqueue` enqueues on `stream`, captured; none of it runs. After an error the stream is
// usable again. Errors: those of `enqueue`, and of the capture.
absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> CaptureWork(
    runtime::Stream& stream, const std::function<absl::Status()>& enqueue);

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_CAPTURE_WORK_H_
