// SPDX-License-Identifier: Apache-2.0
// Which devices there are and how one is made; see device.h. The devices themselves are in
// host_device.cc, cuda_device.cc and hip_device.cc.
#include "runtime/device.h"

#include <array>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/hip/hip_device.h"
#include "runtime/host/host_device.h"
#if REPRISE_WITH_CUDA
#include "runtime/cuda/cuda_device.h"
#endif

namespace reprise::runtime {

std::string_view NameOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kHost:
      return "host";
    case DeviceKind::kCuda:
      return "cuda";
    case DeviceKind::kHip:
      return "hip";
  }
  return "unknown";
}

bool Stream::WaitUntil(const std::function<bool()>& done,
                       std::chrono::steady_clock::time_point deadline) {
  using std::chrono::steady_clock;
  // A result is often there at once; yielding costs more than it brings until then.
  const steady_clock::time_point spin_end = steady_clock::now() + std::chrono::microseconds(50);
  while (!done()) {
    const steady_clock::time_point now = steady_clock::now();
    if (now >= deadline) return false;
    if (now >= spin_end) std::this_thread::yield();
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Device>> Device::Create(const DeviceOptions& options) {
  switch (options.kind) {
    case DeviceKind::kHost:
      return CreateHostDevice(options);
    case DeviceKind::kCuda:
#if REPRISE_WITH_CUDA
      return CreateCudaDevice(options);
#else
      return absl::UnavailableError("device 'cuda': this build carries no CUDA code");
#endif
    case DeviceKind::kHip:
      return CreateHipDevice(options);
  }
  return absl::InvalidArgumentError(absl::StrCat("device kind is ", static_cast<int>(options.kind),
                                                 "; allowed: 0 (host), 1 (cuda), 2 (hip)"));
}

std::span<const DeviceKind> CompiledDeviceKinds() {
  static constexpr std::array<DeviceKind, 3> kBestFirst = {DeviceKind::kCuda, DeviceKind::kHip,
                                                           DeviceKind::kHost};
  static constexpr std::array<DeviceKind, 2> kWithoutHip = {DeviceKind::kCuda, DeviceKind::kHost};
  const bool cuda = CountCudaDevices(nullptr) > 0;
  const bool hip = CountHipDevices(nullptr) > 0;
  if (cuda && !hip) return kWithoutHip;
  return std::span<const DeviceKind>(kBestFirst).subspan(cuda ? 0 : hip ? 1 : 2);
}

#if !REPRISE_WITH_CUDA
int CountCudaDevices(std::string* why) {
  if (why != nullptr) *why = "this build carries no CUDA code";
  return 0;
}
#endif

}  // namespace reprise::runtime
