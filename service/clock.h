// SPDX-License-Identifier: Apache-2.0
// The clock of the latency ledger: monotonic nanoseconds, comparable only within this process.
#ifndef REPRISE_SERVICE_CLOCK_H_
#define REPRISE_SERVICE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace reprise::service {

inline uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_CLOCK_H_
