// SPDX-License-Identifier: Apache-2.0
#include "service/utc_time.h"

#include <chrono>

#include "absl/time/time.h"

namespace reprise::service {

int64_t UtcNowNs() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count();
}

std::string UtcText(int64_t ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixNanos(ns), absl::UTCTimeZone());
}

}  // namespace reprise::service
