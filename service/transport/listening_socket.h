// SPDX-License-Identifier: Apache-2.0
// ListeningSocket: a socket that listens on an address. gRPC itself would say only that it could
// not listen, and would take over a unix socket that another server uses.
#ifndef REPRISE_SERVICE_TRANSPORT_LISTENING_SOCKET_H_
#define REPRISE_SERVICE_TRANSPORT_LISTENING_SOCKET_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "service/transport/file_descriptor.h"
#include "service/transport/listen_address.h"

namespace reprise::service {

// Removes the file in the end, if it is still the same one; none: nothing.
class OwnedSocketFile {
 public:
  OwnedSocketFile() = default;
  explicit OwnedSocketFile(SocketFile file) : file_(std::move(file)) {}
  OwnedSocketFile(OwnedSocketFile&& other) noexcept
      : file_(std::exchange(other.file_, std::nullopt)) {}
  OwnedSocketFile& operator=(OwnedSocketFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~OwnedSocketFile() {
    if (file_.has_value()) RemoveSocketFile(*file_);
  }

 private:
  std::optional<SocketFile> file_;
};

struct ListeningSocket {
  std::string address;   // as given, with port 0 replaced by the port taken
  FileDescriptor fd;     // non-blocking
  OwnedSocketFile file;  // of a unix socket
  bool is_unix = false;
  bool is_open = false;       // others than this host may reach it
  bool is_encrypted = false;  // what comes in is TLS; whoever listens says so
};

// Listens on `address`: on each address that its host has, all on one port. Of a unix socket, a
// file is removed first on which nobody listens. Errors: see Server::Start.
absl::StatusOr<std::vector<ListeningSocket>> Listen(const ListenAddress& address);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_LISTENING_SOCKET_H_
