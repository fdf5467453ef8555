// SPDX-License-Identifier: Apache-2.0
// ConnectionAdmission: which peer may open one more connection. Counts; knows no sockets.
// Threads: one at a time.
#ifndef REPRISE_SERVICE_TRANSPORT_CONNECTION_ADMISSION_H_
#define REPRISE_SERVICE_TRANSPORT_CONNECTION_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "service/transport/connection_limits.h"
#include "service/transport/frame_meter.h"
#include "service/transport/token_bucket.h"

namespace reprise::service {

class ConnectionAdmission {
 public:
  // REQUIRES: no number of connections in `limits` is 0.
  explicit ConnectionAdmission(const ConnectionLimits& limits) : limits_(limits) {}

  // Counts one more connection of `peer`, open until Leave, and returns what all of its connections
  // share. Errors: ResourceExhausted (what, got, allowed), and nothing counted.
  absl::StatusOr<std::shared_ptr<PeerMeter>> Admit(const std::string& peer, uint64_t now_ns);
  void Leave(const std::string& peer);
  // A connection of `peer` was cut off.
  void Punish(const std::string& peer, uint64_t now_ns);
  // Forgets peers of whom there is nothing to know any more.
  void ForgetQuiet(uint64_t now_ns);

  uint32_t num_connections() const { return num_connections_; }
  size_t num_peers() const { return peers_.size(); }

 private:
  struct Peer {
    uint32_t connections = 0;
    TokenBucket accepts;
    std::shared_ptr<PeerMeter> meter;
  };
  Peer& PeerOf(const std::string& peer, uint64_t now_ns);

  const ConnectionLimits limits_;
  uint32_t num_connections_ = 0;
  absl::flat_hash_map<std::string, Peer> peers_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_CONNECTION_ADMISSION_H_
