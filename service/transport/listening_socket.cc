// SPDX-License-Identifier: Apache-2.0
#include "service/transport/listening_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::service {
namespace {

FileDescriptor NewSocket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

absl::Status FromErrno(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == EADDRINUSE) return absl::AlreadyExistsError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

// Binds `fd` and listens on it.
absl::Status BindAndListen(const FileDescriptor& fd, const sockaddr* address, socklen_t size,
                           const std::string& what) {
  if (::bind(fd.get(), address, size) != 0) return FromErrno(what, errno);
  // With SO_REUSEADDR Linux may let a bind pass and refuse to listen.
  if (::listen(fd.get(), SOMAXCONN) != 0) return FromErrno(what, errno);
  return absl::OkStatus();
}

sockaddr_un UnixSocketAddress(const ListenAddress& address) {
  sockaddr_un socket{};
  socket.sun_family = AF_UNIX;
  std::memcpy(socket.sun_path, address.unix_path.data(), address.unix_path.size());
  return socket;
}

// Removes `file`, which is where a socket has to go, if it is a socket on which nobody listens.
absl::Status RemoveStale(const ListenAddress& address, const std::string& what) {
  const absl::StatusOr<SocketFile> file = StatSocketFile(address.unix_path);
  if (!file.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the path exists and is not a socket; it is left alone"));
  }
  const sockaddr_un remote = UnixSocketAddress(address);
  // Non-blocking: a server whose queue of connections is full listens all the same.
  const FileDescriptor probe = NewSocket(AF_UNIX);
  if (!probe.valid()) return FromErrno(what, errno);
  const int connected =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&remote), sizeof(remote));
  const int error = connected == 0 ? 0 : errno;
  if (error == 0 || error == EAGAIN || error == EINPROGRESS) {
    return absl::AlreadyExistsError(absl::StrCat(what, ": in use, another process listens there"));
  }
  if (error != ECONNREFUSED && error != ENOENT) return FromErrno(what, error);
  RemoveSocketFile(*file);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ListeningSocket>> ListenUnix(const ListenAddress& address) {
  const std::string what = absl::StrCat("cannot listen on ", address.text);
  const std::filesystem::path parent = std::filesystem::path(address.unix_path).parent_path();
  std::error_code ignored;
  if (!parent.empty() && !std::filesystem::is_directory(parent, ignored)) {
    return absl::NotFoundError(absl::StrCat(what, ": no directory ", parent.string()));
  }
  struct stat info;
  if (::lstat(address.unix_path.c_str(), &info) == 0) {
    REPRISE_RETURN_IF_ERROR(RemoveStale(address, what));
  }
  ListeningSocket socket{
      .address = address.text, .fd = NewSocket(AF_UNIX), .file = {}, .is_unix = true};
  if (!socket.fd.valid()) return FromErrno(what, errno);
  const sockaddr_un local = UnixSocketAddress(address);
  REPRISE_RETURN_IF_ERROR(
      BindAndListen(socket.fd, reinterpret_cast<const sockaddr*>(&local), sizeof(local), what));
  REPRISE_ASSIGN_OR_RETURN(SocketFile file, StatSocketFile(address.unix_path));
  socket.file = OwnedSocketFile(std::move(file));
  std::vector<ListeningSocket> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

// ::ffff:127.0.0.1 is one too, and is taken for open: nothing is lost by that.
bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  }
  constexpr uint32_t kLoopbackNetwork = 127;
  const in_addr v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  return address.sa_family == AF_INET && ntohl(v4.s_addr) >> 24 == kLoopbackNetwork;
}

in_port_t& PortOf(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// Listens on one of a host's addresses. `port` 0: on any that is free, which it becomes.
absl::StatusOr<FileDescriptor> ListenOn(const addrinfo& info, const std::string& what,
                                        uint16_t* port) {
  FileDescriptor fd = NewSocket(info.ai_family);
  if (!fd.valid()) return FromErrno(what, errno);
  const int on = 1;
  // A port that only old connections linger on is free.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // What is accepted has it too.
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (info.ai_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  sockaddr_storage local{};
  std::memcpy(&local, info.ai_addr, info.ai_addrlen);
  PortOf(local) = htons(*port);
  REPRISE_RETURN_IF_ERROR(
      BindAndListen(fd, reinterpret_cast<const sockaddr*>(&local), info.ai_addrlen, what));
  socklen_t size = sizeof(local);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return FromErrno(what, errno);
  }
  *port = ntohs(PortOf(local));
  return fd;
}

// One address that works is enough ("localhost" without IPv6); one that is taken is too much.
absl::StatusOr<std::vector<ListeningSocket>> ListenOnAll(const addrinfo* found,
                                                         const ListenAddress& address,
                                                         const std::string& what) {
  std::vector<ListeningSocket> sockets;
  absl::Status first;
  uint16_t port = address.port;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    absl::StatusOr<FileDescriptor> fd = ListenOn(*info, what, &port);
    if (absl::IsAlreadyExists(fd.status())) return fd.status();
    if (!fd.ok()) {
      first.Update(fd.status());
      continue;
    }
    const std::string host = address.text.substr(0, address.text.rfind(':'));
    sockets.push_back({.address = absl::StrCat(host, ":", port),
                       .fd = *std::move(fd),
                       .file = {},
                       .is_open = !IsLoopback(*info->ai_addr)});
  }
  if (sockets.empty()) return first;
  return sockets;
}

// How often a free port is asked for: one that is free on the first of a host's addresses may be
// taken on the next.
constexpr int kPortTries = 16;

absl::StatusOr<std::vector<ListeningSocket>> ListenTcp(const ListenAddress& address) {
  const std::string what = absl::StrCat("cannot listen on ", address.text);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": host: ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  auto sockets = ListenOnAll(found, address, what);
  for (int i = 1; i < kPortTries && address.port == 0 && absl::IsAlreadyExists(sockets.status());
       ++i) {
    sockets = ListenOnAll(found, address, what);
  }
  return sockets;
}

}  // namespace

absl::StatusOr<std::vector<ListeningSocket>> Listen(const ListenAddress& address) {
  return address.is_unix() ? ListenUnix(address) : ListenTcp(address);
}

}  // namespace reprise::service
