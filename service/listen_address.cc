// SPDX-License-Identifier: Apache-2.0
#include "service/listen_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::service {
namespace {

// Besides letters and digits, what a path in a URI may hold unescaped.
constexpr std::string_view kPathMarks = "-._~!$&'()*+,;=:@/";
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un{}.sun_path) - 1;

absl::Status Malformed(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "listen address: got \"", absl::string_view(text.data(), text.size()), "\" (",
      absl::string_view(why.data(), why.size()), "), allowed \"unix:/path\" or \"host:port\""));
}

// Closes on destruction.
class Socket {
 public:
  Socket(int family, int flags) : fd_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status FromErrno(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == EADDRINUSE) return absl::AlreadyExistsError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

absl::StatusOr<ListenAddress> ParseUnix(std::string_view text) {
  const std::string_view path = text.substr(5);
  if (path.empty()) return Malformed(text, "no path");
  if (path.size() > kMaxUnixPath) {
    return Malformed(
        text, absl::StrCat("path of ", path.size(), " bytes, the system allows ", kMaxUnixPath));
  }
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || kPathMarks.find(c) != kPathMarks.npos)
      continue;
    return Malformed(text, absl::StrCat("\"", absl::CHexEscape(std::string(1, c)),
                                        "\" in the path; it would need escapes in a gRPC address"));
  }
  ListenAddress address;
  address.text = text;
  address.unix_path = path;
  return address;
}

absl::StatusOr<ListenAddress> ParseTcp(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text, "no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  uint32_t port = 0;
  if (!absl::SimpleAtoi(absl::string_view(port_text.data(), port_text.size()), &port) ||
      port > 65535) {
    return Malformed(text, "the port is not a number from 0 to 65535");
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Malformed(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return Malformed(text, "no host");
  ListenAddress address;
  address.text = text;
  address.host = host;
  address.port = static_cast<uint16_t>(port);
  return address;
}

sockaddr_un SocketAddress(const ListenAddress& address) {
  sockaddr_un socket{};
  socket.sun_family = AF_UNIX;
  std::memcpy(socket.sun_path, address.unix_path.data(), address.unix_path.size());
  return socket;
}

// OK when nobody answers on the socket file.
absl::Status CheckNobodyListens(const ListenAddress& address) {
  const sockaddr_un remote = SocketAddress(address);
  // Non-blocking: a server whose queue of connections is full listens all the same.
  const Socket probe(AF_UNIX, SOCK_NONBLOCK);
  const int connected =
      ::connect(probe.fd(), reinterpret_cast<const sockaddr*>(&remote), sizeof(remote));
  const int error = connected == 0 ? 0 : errno;
  if (error == ECONNREFUSED || error == ENOENT) return absl::OkStatus();
  if (error == 0 || error == EAGAIN || error == EINPROGRESS) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address.text, ": in use, another process listens there"));
  }
  return FromErrno(absl::StrCat("cannot listen on ", address.text), error);
}

// Binds where no file is, and removes what that made: gRPC would not say why it cannot.
absl::Status TryBindUnix(const ListenAddress& address, const std::string& what) {
  const Socket probe(AF_UNIX, 0);
  if (probe.fd() < 0) return FromErrno(what, errno);
  const sockaddr_un local = SocketAddress(address);
  if (::bind(probe.fd(), reinterpret_cast<const sockaddr*>(&local), sizeof(local)) != 0) {
    return FromErrno(what, errno);
  }
  // Another server that starts here at the same time may have put its own file in its place.
  REPRISE_ASSIGN_OR_RETURN(const SocketFile made, StatSocketFile(address.unix_path));
  RemoveSocketFile(made);
  return absl::OkStatus();
}

absl::Status ClaimUnix(const ListenAddress& address) {
  const std::string what = absl::StrCat("cannot listen on ", address.text);
  struct stat info;
  if (::lstat(address.unix_path.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return FromErrno(what, errno);
    const std::filesystem::path parent = std::filesystem::path(address.unix_path).parent_path();
    std::error_code ignored;
    if (!parent.empty() && !std::filesystem::is_directory(parent, ignored)) {
      return absl::NotFoundError(absl::StrCat(what, ": no directory ", parent.string()));
    }
    return TryBindUnix(address, what);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the path exists and is not a socket; it is left alone"));
  }
  REPRISE_RETURN_IF_ERROR(CheckNobodyListens(address));
  if (::unlink(address.unix_path.c_str()) != 0 && errno != ENOENT) return FromErrno(what, errno);
  return TryBindUnix(address, what);
}

// Binds and lets go. SO_REUSEADDR lets a port pass that only old connections linger on, as gRPC's
// own socket does.
absl::Status TryBind(const addrinfo& info, const std::string& what) {
  const Socket probe(info.ai_family, 0);
  if (probe.fd() < 0) return FromErrno(what, errno);
  const int on = 1;
  ::setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (info.ai_family == AF_INET6) {
    ::setsockopt(probe.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  if (::bind(probe.fd(), info.ai_addr, info.ai_addrlen) != 0) return FromErrno(what, errno);
  // With SO_REUSEADDR alone Linux may let a bind pass and refuse to listen.
  if (::listen(probe.fd(), 1) != 0) return FromErrno(what, errno);
  return absl::OkStatus();
}

absl::Status ClaimTcp(const ListenAddress& address) {
  const std::string what = absl::StrCat("cannot listen on ", address.text);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": host: ", ::gai_strerror(error)));
  }
  // One address that works is enough ("localhost" without IPv6); one that is taken is too much.
  absl::Status first;
  bool any = false;
  absl::Status in_use;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const absl::Status status = TryBind(*info, what);
    any = any || status.ok();
    if (absl::IsAlreadyExists(status)) in_use = status;
    if (!status.ok() && first.ok()) first = status;
  }
  ::freeaddrinfo(found);
  if (!in_use.ok()) return in_use;
  return any ? absl::OkStatus() : first;
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  if (text.starts_with("unix:")) return ParseUnix(text);
  return ParseTcp(text);
}

absl::Status ClaimListenAddress(const ListenAddress& address) {
  return address.is_unix() ? ClaimUnix(address) : ClaimTcp(address);
}

absl::StatusOr<SocketFile> StatSocketFile(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat("no socket file ", path));
  }
  return SocketFile{.path = path, .device = info.st_dev, .inode = info.st_ino};
}

void RemoveSocketFile(const SocketFile& file) {
  const absl::StatusOr<SocketFile> now = StatSocketFile(file.path);
  if (!now.ok() || now->device != file.device || now->inode != file.inode) return;
  ::unlink(file.path.c_str());
}

}  // namespace reprise::service
