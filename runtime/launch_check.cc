// SPDX-License-Identifier: Apache-2.0
// Limits of a launch; see launch_check.h.
#include "runtime/launch_check.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace reprise::runtime {
namespace {

absl::string_view Abseil(std::string_view s) { return {s.data(), s.size()}; }

absl::Status Refuse(const DeviceProperties& device, const Kernel& kernel, std::string_view what,
                    uint64_t got, uint64_t lowest, uint64_t highest) {
  return absl::InvalidArgumentError(
      absl::StrCat("kernel '", Abseil(kernel.name), "' on ", Abseil(NameOf(device.kind)), ": ",
                   Abseil(what), " is ", got, "; allowed: ", lowest, " to ", highest));
}

}  // namespace

absl::Status CheckLaunch(const DeviceProperties& device, const Kernel& kernel,
                         const LaunchShape& shape, const void* args, size_t args_bytes) {
  if (kernel.handle == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel '", Abseil(kernel.name), "' has no handle; take kernels from KernelModule::Find"));
  }
  if (shape.grid_x < 1 || shape.grid_x > kMaxGridX) {
    return Refuse(device, kernel, "grid_x", shape.grid_x, 1, kMaxGridX);
  }
  if (shape.grid_y < 1 || shape.grid_y > kMaxGridY) {
    return Refuse(device, kernel, "grid_y", shape.grid_y, 1, kMaxGridY);
  }
  if (shape.block < 1 || shape.block > kMaxBlockThreads) {
    return Refuse(device, kernel, "block", shape.block, 1, kMaxBlockThreads);
  }
  if (shape.shared_bytes > device.max_shared_bytes) {
    return Refuse(device, kernel, "shared_bytes", shape.shared_bytes, 0, device.max_shared_bytes);
  }
  if (shape.cooperative && device.kind == DeviceKind::kHost) {
    const uint64_t blocks = uint64_t{shape.grid_x} * shape.grid_y;
    const auto at_once = static_cast<uint64_t>(device.num_multiprocessors);
    if (blocks > at_once)
      return Refuse(device, kernel, "the number of blocks that wait for each other", blocks, 1,
                    at_once);
  }
  if (args_bytes < 1 || args_bytes > kMaxArgsBytes) {
    return Refuse(device, kernel, "args_bytes", args_bytes, 1, kMaxArgsBytes);
  }
  if (args == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel '", Abseil(kernel.name), "': args is null"));
  }
  return absl::OkStatus();
}

absl::Status CheckTransfer(std::string_view what, const void* dst, const void* src, size_t bytes) {
  if (bytes == 0 || (dst != nullptr && src != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Abseil(what), ": ", dst == nullptr ? "dst" : "src",
                                                 " is null with ", bytes, " bytes"));
}

}  // namespace reprise::runtime
