// SPDX-License-Identifier: Apache-2.0
// The limits of a launch that hold on every device, checked before a driver sees it, so that a
// wrong shape is the same typed error everywhere and shows on the host already.
#ifndef REPRISE_RUNTIME_LAUNCH_CHECK_H_
#define REPRISE_RUNTIME_LAUNCH_CHECK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "runtime/device.h"

namespace reprise::runtime {

inline constexpr unsigned kMaxGridX = 0x7fffffffu;
inline constexpr unsigned kMaxGridY = 65535;
inline constexpr unsigned kMaxBlockThreads = 1024;
inline constexpr size_t kMaxArgsBytes = 4096;  // what every vendor's launch takes

// Errors: InvalidArgument names the kernel, what was wrong, and what is allowed. Allocates nothing
// when all is well.
absl::Status CheckLaunch(const DeviceProperties& device, const Kernel& kernel,
                         const LaunchShape& shape, const void* args, size_t args_bytes);

// Errors: InvalidArgument on a null pointer with bytes > 0; `what` names the call.
absl::Status CheckTransfer(std::string_view what, const void* dst, const void* src, size_t bytes);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_LAUNCH_CHECK_H_
