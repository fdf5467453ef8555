// SPDX-License-Identifier: Apache-2.0
// LaunchList: a stream that writes down what would be launched and launches nothing, so that a
// sequence of ops can be looked at, and enqueued in another form. It takes launches alone.
#ifndef REPRISE_KERNELS_STEP_KERNEL_LAUNCH_LIST_H_
#define REPRISE_KERNELS_STEP_KERNEL_LAUNCH_LIST_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::kernels {

struct ListedLaunch {
  runtime::Kernel kernel;
  runtime::LaunchShape shape;
  std::vector<std::byte> args;
};

class LaunchList final : public runtime::Stream {
 public:
  const std::vector<ListedLaunch>& launches() const { return launches_; }

  absl::Status Launch(const runtime::Kernel& kernel, const runtime::LaunchShape& shape,
                      const void* args, size_t args_bytes) override;
  using Stream::Launch;

  // Errors: Unimplemented, all of them.
  absl::Status EnqueueHost(std::function<void()> work) override;
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override;
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override;
  absl::Status Synchronize() override;
  absl::Status Query() override;
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> EndCapture() override;
  void AbortCapture() override {}
  void* native_handle() const override { return nullptr; }

 private:
  std::vector<ListedLaunch> launches_;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_KERNEL_LAUNCH_LIST_H_
