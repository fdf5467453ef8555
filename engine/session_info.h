// SPDX-License-Identifier: Apache-2.0
// How a session is named: what OpenSession returns, and what every step of the session carries.
#ifndef REPRISE_ENGINE_SESSION_INFO_H_
#define REPRISE_ENGINE_SESSION_INFO_H_

#include <cstdint>

namespace reprise::engine {

using SessionId = uint64_t;

struct SessionInfo {
  SessionId id = 0;
  uint64_t epoch = 0;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SESSION_INFO_H_
