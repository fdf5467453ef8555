// SPDX-License-Identifier: Apache-2.0
// MetricsEndpoint: serves GET /metrics over HTTP, plain and open to whoever can connect, and
// nothing else. What its clients can take of the process is bounded: connections, how fast they may
// come, how long each may last, and the size of a request. One request for each connection.
//
// Threads: a thread of its own answers; Start and destruction by the owner.
#ifndef REPRISE_SERVICE_METRICS_METRICS_ENDPOINT_H_
#define REPRISE_SERVICE_METRICS_METRICS_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/transport/listening_socket.h"

namespace reprise::service {

struct MetricsEndpointOptions {
  // As ServerOptions::listen has them.
  std::string listen;
  // The text, on the endpoint's thread.
  std::function<std::string()> render;
  // Open at a time; one more ends the oldest.
  size_t max_connections = 32;
  // Accepted in a tenth of a second; those beyond wait.
  uint32_t max_accepts = 10;
  // From a connection's first moment to its last.
  uint64_t max_connection_ms = 10'000;
};

class MetricsEndpoint {
 public:
  // Errors: as Server::Start has for an address; Unavailable when the system has no thread or no
  // file descriptors.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const MetricsEndpointOptions& options);
  // On sockets that listen already, in place of options.listen. REQUIRES: one or more.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const MetricsEndpointOptions& options, std::vector<ListeningSocket> sockets);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  // As given, with port 0 replaced by the port taken.
  const std::string& address() const;

 private:
  class Impl;
  explicit MetricsEndpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_METRICS_METRICS_ENDPOINT_H_
