// SPDX-License-Identifier: Apache-2.0
// What clients may do with connections, before any call is made on them.
#ifndef REPRISE_SERVICE_TRANSPORT_CONNECTION_LIMITS_H_
#define REPRISE_SERVICE_TRANSPORT_CONNECTION_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "service/transport/frame_meter.h"
#include "service/transport/token_bucket.h"

namespace reprise::service {

// A peer is the address of a client's host (of IPv6 the first 64 bits), or a process on a unix
// socket.
struct ConnectionLimits {
  // Open at a time. 0: as many as the process's limit of file descriptors leaves, 1024 at most.
  uint32_t max_connections = 0;
  // Of them one peer's. 0: half.
  uint32_t max_connections_per_peer = 0;
  // New connections of one peer.
  Rate accepts_per_peer = {.per_second = 100, .burst = 1000};
  // What a peer pays of that for a connection that is cut off because of its frames.
  double accepts_per_cut = 100;
  // Calls that a peer opens and resets, all its connections together.
  Rate calls_per_peer = {.per_second = 10000, .burst = 10000};
  Rate resets_per_peer = {.per_second = 300, .burst = 500};
  // Of one connection.
  FrameLimits frames = {};
};

// `asked` with what is 0 filled in, by the file descriptors that this process may still open.
// `kept_descriptors`: how many of them are for files of recorded sessions. Errors:
// FailedPrecondition when these leave no connection, or fewer than were asked for.
absl::StatusOr<ConnectionLimits> ResolveLimits(const ConnectionLimits& asked,
                                               uint32_t kept_descriptors);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_CONNECTION_LIMITS_H_
