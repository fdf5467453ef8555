// SPDX-License-Identifier: Apache-2.0
// A stream in front of another one, for those who look at what is enqueued: everything but launches
// goes through as it is.
#ifndef REPRISE_GRAPHS_FORWARDING_STREAM_H_
#define REPRISE_GRAPHS_FORWARDING_STREAM_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::graphs {

class ForwardingStream : public runtime::Stream {
 public:
  explicit ForwardingStream(runtime::Stream& stream) : stream_(stream) {}
  absl::Status EnqueueHost(std::function<void()> work) override {
    return stream_.EnqueueHost(std::move(work));
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    return stream_.CopyToDevice(dst, src, bytes);
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    return stream_.CopyToHost(dst, src, bytes);
  }
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override {
    return stream_.Fill(dst, value, bytes);
  }
  absl::Status Synchronize() override { return stream_.Synchronize(); }
  absl::Status Query() override { return stream_.Query(); }
  bool WaitUntil(const std::function<bool()>& done,
                 std::chrono::steady_clock::time_point deadline) override {
    return stream_.WaitUntil(done, deadline);
  }
  absl::Status BeginCapture() override { return stream_.BeginCapture(); }
  absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> EndCapture() override {
    return stream_.EndCapture();
  }
  void AbortCapture() override { stream_.AbortCapture(); }
  void* native_handle() const override { return stream_.native_handle(); }

 protected:
  runtime::Stream& stream_;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_FORWARDING_STREAM_H_
