// SPDX-License-Identifier: Apache-2.0
#include "service/transport/connection_limits.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

// File descriptors kept for everything else: gRPC's threads, a device's driver, a model's files.
constexpr uint64_t kKeptDescriptors = 64;
// Unless more are asked for.
constexpr uint64_t kMostConnections = 1024;

uint64_t OpenDescriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  uint64_t count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  // Not ".", "..", nor the one that read them.
  return count - std::min<uint64_t>(count, 3);
}

}  // namespace

absl::StatusOr<ConnectionLimits> ResolveLimits(const ConnectionLimits& asked,
                                               uint32_t kept_descriptors) {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  const uint64_t open = OpenDescriptors();
  const uint64_t taken = open + kKeptDescriptors + kept_descriptors;
  const uint64_t room = descriptors.rlim_cur > taken ? descriptors.rlim_cur - taken : 0;
  if (room < std::max(asked.max_connections, 1u)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "connections: got ", std::max(asked.max_connections, 1u), ", allowed up to ", room,
        ": the process may have ", descriptors.rlim_cur, " file descriptors (ulimit -n), ", open,
        " are open and ", kKeptDescriptors, " are kept for other uses",
        kept_descriptors == 0 ? ""
                              : absl::StrCat(", and ", kept_descriptors,
                                             " for files of recorded sessions (max_sessions)")));
  }
  ConnectionLimits limits = asked;
  if (limits.max_connections == 0) {
    limits.max_connections = static_cast<uint32_t>(std::min(room, kMostConnections));
  }
  if (limits.max_connections_per_peer == 0) {
    limits.max_connections_per_peer = std::max(1u, limits.max_connections / 2);
  }
  return limits;
}

}  // namespace reprise::service
