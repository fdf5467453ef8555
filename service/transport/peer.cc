// SPDX-License-Identifier: Apache-2.0
#include "service/transport/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace reprise::service {

std::string PeerOfAddress(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)) != nullptr ? text : "";
  }
  if (address.ss_family != AF_INET6) return "";
  in6_addr v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    return ::inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof(text)) != nullptr ? text : "";
  }
  std::fill(std::begin(v6.s6_addr) + 8, std::end(v6.s6_addr), uint8_t{0});
  if (::inet_ntop(AF_INET6, &v6, text, sizeof(text)) == nullptr) return "";
  return absl::StrCat(text, "/64");
}

std::optional<uint32_t> UserOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ucred peer{};
  socklen_t peer_size = sizeof(peer);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.ss_family != AF_UNIX ||
      ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0) {
    return std::nullopt;
  }
  return peer.uid;
}

std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family != AF_UNIX) return PeerOfAddress(address);
  ucred peer{};
  socklen_t peer_size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0) return "";
  return absl::StrCat("process ", peer.pid, " of user ", peer.uid);
}

}  // namespace reprise::service
