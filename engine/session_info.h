// SPDX-License-Identifier: Apache-2.0
// How a session is named: what OpenSession returns, and what every step of the session carries; and
// what a session may hold.
#ifndef REPRISE_ENGINE_SESSION_INFO_H_
#define REPRISE_ENGINE_SESSION_INFO_H_

#include <cstdint>

namespace reprise::engine {

using SessionId = uint64_t;

struct SessionInfo {
  SessionId id = 0;
  uint64_t epoch = 0;
};

// What one session may hold at a time, of what all share. 0: as much as there is.
struct SessionLimits {
  uint32_t max_rows = 0;    // resident rows
  uint32_t max_blocks = 0;  // KV blocks
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SESSION_INFO_H_
