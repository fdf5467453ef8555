// SPDX-License-Identifier: Apache-2.0
#include "tools/top/http_get.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/transport/file_descriptor.h"

namespace reprise::tools {
namespace {

using service::FileDescriptor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Metrics of a server are a hundred kilobytes.
constexpr size_t kMaxAnswerBytes = 64 << 20;

std::string ReasonOf(int error) { return std::generic_category().message(error); }

class HttpClient {
 public:
  HttpClient(const std::string& address, milliseconds time)
      : address_(address), deadline_(steady_clock::now() + time), time_(time) {}

  absl::Status Connect() { return address_.starts_with("unix:") ? ConnectUnix() : ConnectTcp(); }

  absl::Status Send(std::string_view bytes) {
    while (!bytes.empty()) {
      REPRISE_RETURN_IF_ERROR(Await(POLLOUT));
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return Lost(errno);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return absl::OkStatus();
  }

  // All that comes until the server ends the connection.
  absl::StatusOr<std::string> Receive() {
    std::string received;
    std::array<char, 16384> bytes;
    while (received.size() < kMaxAnswerBytes) {
      REPRISE_RETURN_IF_ERROR(Await(POLLIN));
      const ssize_t count = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
      if (count == 0) return received;
      if (count < 0 && errno != EAGAIN && errno != EINTR) return Lost(errno);
      if (count > 0) received.append(bytes.data(), static_cast<size_t>(count));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(address_, " answers with more than ", kMaxAnswerBytes, " bytes"));
  }

 private:
  absl::Status Refused(const std::string& why) const {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address_, ": ", why));
  }
  absl::Status Lost(int error) const {
    return absl::UnavailableError(
        absl::StrCat("lost the connection to ", address_, ": ", ReasonOf(error)));
  }

  absl::Status Await(short events) {
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - steady_clock::now());
      pollfd ready = {.fd = fd_.get(), .events = events, .revents = 0};
      if (left.count() > 0 && ::poll(&ready, 1, static_cast<int>(left.count())) > 0)
        return absl::OkStatus();
      if (steady_clock::now() >= deadline_)
        return absl::DeadlineExceededError(
            absl::StrCat("no answer from ", address_, " within ", time_.count(), " ms"));
    }
  }

  absl::Status ConnectTo(const sockaddr* remote, socklen_t size) {
    fd_.Reset(::socket(remote->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd_.valid()) return Refused(ReasonOf(errno));
    if (::connect(fd_.get(), remote, size) == 0) return absl::OkStatus();
    if (errno != EINPROGRESS) return Refused(ReasonOf(errno));
    REPRISE_RETURN_IF_ERROR(Await(POLLOUT));
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0 ? absl::OkStatus() : Refused(ReasonOf(error));
  }

  absl::Status ConnectUnix() {
    sockaddr_un remote = {.sun_family = AF_UNIX, .sun_path = {}};
    const std::string path = address_.substr(5);
    std::memcpy(remote.sun_path, path.data(), std::min(path.size(), sizeof(remote.sun_path) - 1));
    return ConnectTo(reinterpret_cast<const sockaddr*>(&remote), sizeof(remote));
  }

  absl::Status ConnectTcp() {
    const size_t colon = address_.rfind(':');
    std::string host = address_.substr(0, colon);
    if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error =
        ::getaddrinfo(host.c_str(), address_.substr(colon + 1).c_str(), &hints, &found);
    if (error != 0) return Refused(::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
    absl::Status last = Refused("the host has no address");
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
      last = ConnectTo(info->ai_addr, info->ai_addrlen);
      if (last.ok()) return last;
    }
    return last;
  }

  const std::string& address_;
  const steady_clock::time_point deadline_;
  const milliseconds time_;
  FileDescriptor fd_;
};

// The number of bytes that the headers promise; `size` where they do not say.
size_t PromisedBytes(std::string_view headers, size_t size) {
  constexpr std::string_view kLength = "content-length:";
  const std::string lower = absl::AsciiStrToLower({headers.data(), headers.size()});
  const size_t at = lower.find(absl::StrCat("\r\n", std::string(kLength)));
  if (at == std::string::npos) return size;
  const size_t begin = at + 2 + kLength.size();
  uint64_t bytes = 0;
  const std::string number = lower.substr(begin, lower.find("\r\n", begin) - begin);
  return absl::SimpleAtoi(number, &bytes) ? bytes : size;
}

absl::StatusOr<std::string> BodyOf(const std::string& answer, const std::string& what) {
  const size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || end == std::string::npos)
    return absl::FailedPreconditionError(absl::StrCat(what, ": got an answer that is no HTTP"));
  const std::string status = answer.substr(9, answer.find("\r\n") - 9);
  if (!status.starts_with("200")) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": got \"", status, "\", allowed \"200 OK\""));
  }
  std::string body = answer.substr(end + 4);
  const size_t promised = PromisedBytes(std::string_view(answer).substr(0, end + 2), body.size());
  if (body.size() < promised) {
    return absl::UnavailableError(
        absl::StrCat(what, ": got ", body.size(), " bytes of ", promised));
  }
  return body;
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path,
                                    milliseconds time) {
  HttpClient client(address, time);
  REPRISE_RETURN_IF_ERROR(client.Connect());
  // 1.0: an answer in one piece, and the connection ends with it.
  REPRISE_RETURN_IF_ERROR(
      client.Send(absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: reprise\r\n\r\n")));
  REPRISE_ASSIGN_OR_RETURN(const std::string answer, client.Receive());
  return BodyOf(answer, absl::StrCat("GET ", path, " from ", address));
}

}  // namespace reprise::tools
