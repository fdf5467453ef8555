// SPDX-License-Identifier: Apache-2.0
// Moments as logs write them: UTC, RFC 3339, microseconds. Threads: free functions without state.
#ifndef REPRISE_SERVICE_UTC_TIME_H_
#define REPRISE_SERVICE_UTC_TIME_H_

#include <cstdint>
#include <string>

namespace reprise::service {

// Nanoseconds since 1970, by the system's clock.
int64_t UtcNowNs();
// "2026-11-23T09:15:02.000123Z".
std::string UtcText(int64_t ns);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_UTC_TIME_H_
