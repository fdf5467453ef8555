// SPDX-License-Identifier: Apache-2.0
// ConnectionCounters: what has become of the connections that clients opened. The listener counts,
// metrics read. Threads: every member from any thread.
#ifndef REPRISE_SERVICE_TRANSPORT_CONNECTION_COUNTERS_H_
#define REPRISE_SERVICE_TRANSPORT_CONNECTION_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "service/metrics/counter.h"
#include "service/transport/frame_meter.h"

namespace reprise::service {

struct ConnectionCounters {
  std::atomic<uint64_t> open = 0;  // as far as the listener has noticed: it looks once a second
  Counter accepted;
  Counter refused_limit;                    // beyond a limit of the server or of the peer
  Counter refused_system;                   // the process or the system had no room
  std::array<Counter, kNumCutReasons> cut;  // in the order of CutReason
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_CONNECTION_COUNTERS_H_
