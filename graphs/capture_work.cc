// SPDX-License-Identifier: Apache-2.0
#include "graphs/capture_work.h"

#include "runtime/status_macros.h"

namespace reprise::graphs {

absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> CaptureWork(
    runtime::Stream& stream, const std::function<absl::Status()>& enqueue) {
  REPRISE_RETURN_IF_ERROR(stream.BeginCapture());
  if (absl::Status enqueued = enqueue(); !enqueued.ok()) {
    stream.AbortCapture();
    return enqueued;
  }
  return stream.EndCapture();
}

}  // namespace reprise::graphs
