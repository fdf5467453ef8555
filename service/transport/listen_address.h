// SPDX-License-Identifier: Apache-2.0
// ListenAddress: where a server listens, as text and taken apart; and the file that a unix socket
// makes there.
#ifndef REPRISE_SERVICE_TRANSPORT_LISTEN_ADDRESS_H_
#define REPRISE_SERVICE_TRANSPORT_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::service {

struct ListenAddress {
  std::string text;       // as given
  std::string unix_path;  // of "unix:/path"; empty for TCP
  std::string host;       // of "host:port", without brackets
  uint16_t port = 0;      // 0: any free one

  bool is_unix() const { return !unix_path.empty(); }
};

// Errors: InvalidArgument (what, got, allowed).
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// Identity of a socket file, so that only one's own is removed later.
struct SocketFile {
  std::string path;
  uint64_t device = 0;
  uint64_t inode = 0;
};
// NotFound when there is none.
absl::StatusOr<SocketFile> StatSocketFile(const std::string& path);
// Removes the file if it is still the same one.
void RemoveSocketFile(const SocketFile& file);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_LISTEN_ADDRESS_H_
