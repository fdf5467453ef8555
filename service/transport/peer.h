// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection. Threads: free functions without state.
#ifndef REPRISE_SERVICE_TRANSPORT_PEER_H_
#define REPRISE_SERVICE_TRANSPORT_PEER_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace reprise::service {

// What the connections of one client have in common: "192.0.2.7", "2001:db8:0:1::/64" (what one
// host or household has of IPv6), "process 77 of user 1000" on a unix socket. "" when it cannot be
// told, as where the connection is gone already.
std::string PeerOf(int fd);
// The user who connected to a unix socket, as the kernel knows it; nullopt on any other.
std::optional<uint32_t> UserOf(int fd);
// What PeerOf says of an address of IPv4 or IPv6; "" of any other.
std::string PeerOfAddress(const sockaddr_storage& address);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_PEER_H_
