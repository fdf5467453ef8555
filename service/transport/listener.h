// SPDX-License-Identifier: Apache-2.0
// Listener: accepts connections and passes them on, within limits. gRPC's own listener knows none,
// and stops for good once the process is out of file descriptors (gRPC 1.51). A client beyond a
// limit is told so in HTTP/2's words (GOAWAY) and disconnected; nobody who is connected notices.
//
// Threads: Start, Stop and destruction by the owner; connections come on a thread of its own.
#ifndef REPRISE_SERVICE_TRANSPORT_LISTENER_H_
#define REPRISE_SERVICE_TRANSPORT_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/transport/connection_counters.h"
#include "service/transport/connection_limits.h"
#include "service/transport/file_descriptor.h"
#include "service/transport/listening_socket.h"

namespace reprise::service {

struct ListenerOptions {
  ConnectionLimits limits;
  uint32_t kept_descriptors = 0;  // see ResolveLimits
  // Takes over a new connection, accepted on that listening socket. What it sends is metered as
  // long as it is open (connection_table.h, decrypted_bytes.h).
  std::function<void(FileDescriptor connection, const ListeningSocket& listening)> accept;
  // Told what was refused and who was cut off, once in ten seconds at most; may be empty.
  std::function<void(const std::string&)> report;
  // Counts connections. Connections that are open share it, the listener gone or not.
  std::shared_ptr<ConnectionCounters> counters = std::make_shared<ConnectionCounters>();
};

class Listener {
 public:
  // Errors: FailedPrecondition when the process's limit of file descriptors leaves no connection,
  // or fewer than were asked for; Unavailable when the system has none left now.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(std::vector<ListeningSocket> sockets,
                                                         const ListenerOptions& options);
  // Stops, and removes the files of unix sockets.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Accepts nothing more; connections stay as they are. When it returns no connection is being
  // passed on.
  void Stop();
  // With no number 0: what was asked for, or found.
  const ConnectionLimits& limits() const;

 private:
  class Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_LISTENER_H_
