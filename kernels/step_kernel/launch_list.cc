// SPDX-License-Identifier: Apache-2.0
#include "kernels/step_kernel/launch_list.h"

#include "absl/strings/str_cat.h"

namespace reprise::kernels {
namespace {

absl::Status Refuse(const char* call) {
  return absl::UnimplementedError(
      absl::StrCat(call, " on a list of launches; allowed: Launch alone"));
}

}  // namespace

absl::Status LaunchList::Launch(const runtime::Kernel& kernel, const runtime::LaunchShape& shape,
                                const void* args, size_t args_bytes) {
  const auto* const begin = static_cast<const std::byte*>(args);
  launches_.push_back({.kernel = kernel, .shape = shape, .args = {begin, begin + args_bytes}});
  return absl::OkStatus();
}

absl::Status LaunchList::EnqueueHost(std::function<void()> /*work*/) {
  return Refuse("EnqueueHost");
}
absl::Status LaunchList::CopyToDevice(void* /*dst*/, const void* /*src*/, size_t /*bytes*/) {
  return Refuse("CopyToDevice");
}
absl::Status LaunchList::CopyToHost(void* /*dst*/, const void* /*src*/, size_t /*bytes*/) {
  return Refuse("CopyToHost");
}
absl::Status LaunchList::Fill(void* /*dst*/, unsigned char /*value*/, size_t /*bytes*/) {
  return Refuse("Fill");
}
absl::Status LaunchList::Synchronize() { return Refuse("Synchronize"); }
absl::Status LaunchList::Query() { return Refuse("Query"); }
absl::Status LaunchList::BeginCapture() { return Refuse("BeginCapture"); }
absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> LaunchList::EndCapture() {
  return Refuse("EndCapture");
}

}  // namespace reprise::kernels
