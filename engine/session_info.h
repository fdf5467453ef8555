// SPDX-License-Identifier: Apache-2.0
// How a session is named: what OpenSession returns, and what every step of the session carries;
// what a session may hold, and several of one account together.
#ifndef REPRISE_ENGINE_SESSION_INFO_H_
#define REPRISE_ENGINE_SESSION_INFO_H_

#include <cstdint>

namespace reprise::engine {

using SessionId = uint64_t;

struct SessionInfo {
  SessionId id = 0;
  uint64_t epoch = 0;
};

// What a session holds and has done.
struct SessionUse {
  uint32_t num_rows = 0;       // resident
  uint32_t num_blocks = 0;     // KV blocks that are its own
  uint32_t num_shared = 0;     // KV blocks that it uses with others
  uint32_t num_swapped = 0;    // that wait in swap space, and states of rows
  uint64_t last_sequence = 0;  // of the request that was submitted last; 0: none was
};

// Names sessions that are limited together. 0: those that are not.
using AccountId = uint32_t;

// What one session, or all of an account together, may hold at a time of what all share. 0: as much
// as there is.
struct SessionLimits {
  uint32_t max_rows = 0;      // resident rows
  uint32_t max_blocks = 0;    // KV blocks; a shared one counts once for an account
  uint32_t max_swapped = 0;   // KV blocks and states in swap space; of a session alone
  uint32_t max_exported = 0;  // likewise in export space
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SESSION_INFO_H_
