// SPDX-License-Identifier: Apache-2.0
#include "tests/service/http2_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace reprise::service {
namespace {

using std::chrono::steady_clock;

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

bool IsUnix(const std::string& address) { return address.starts_with("unix:"); }

// HPACK (RFC 7541, 6.2.2): a literal header field without indexing, name and value as they are.
std::string Literal(std::string_view name, std::string_view value) {
  std::string bytes(1, '\0');
  for (const std::string_view text : {name, value}) {
    bytes += static_cast<char>(text.size());  // below 127
    bytes += text;
  }
  return bytes;
}

}  // namespace

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string bytes = BigEndian(static_cast<uint32_t>(payload.size())).substr(1);
  bytes += static_cast<char>(type);
  bytes += static_cast<char>(flags);
  bytes += BigEndian(stream);
  bytes += payload;
  return bytes;
}

std::string Http2Opening() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(FrameType::kSettings, 0, 0, "") +
         Frame(FrameType::kSettings, 1, 0, "");
}

std::string CallHeaders(uint32_t stream, std::string_view path) {
  constexpr uint8_t kEndHeaders = 4;
  const std::string block = Literal(":method", "POST") + Literal(":scheme", "http") +
                            Literal(":path", path) + Literal(":authority", "test") +
                            Literal("content-type", "application/grpc") + Literal("te", "trailers");
  return Frame(FrameType::kHeaders, kEndHeaders, stream, block);
}

std::string LongHeader() { return std::string("\0\1a\x7f\xff\xff\xff\x07", 8); }

std::string Reset(uint32_t stream) {
  constexpr uint32_t kCancel = 8;
  return Frame(FrameType::kRstStream, 0, stream, BigEndian(kCancel));
}

Http2Client::Http2Client(const std::string& address) {
  MakeSocket(address);
  Connect(address);
}

void Http2Client::MakeSocket(const std::string& address) {
  fd_.Reset(::socket(IsUnix(address) ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

bool Http2Client::Connect(const std::string& address) {
  sockaddr_storage remote{};
  socklen_t size = 0;
  if (IsUnix(address)) {
    auto& local = reinterpret_cast<sockaddr_un&>(remote);
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path, address.data() + 5, address.size() - 5);
    size = sizeof(local);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(remote);
    const size_t colon = address.rfind(':');
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(v4);
  }
  connected_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&remote), size) == 0;
  return connected_;
}

bool Http2Client::Send(std::string_view bytes) {
  const steady_clock::time_point give_up = steady_clock::now() + std::chrono::seconds(60);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno != EAGAIN || steady_clock::now() > give_up) return false;
    // The server waits for us, perhaps, to read its answers.
    if (!Drain()) return false;
    pollfd ready = {.fd = fd_.get(), .events = POLLIN | POLLOUT, .revents = 0};
    ::poll(&ready, 1, 100);
  }
  return true;
}

bool Http2Client::Drain() {
  char bytes[4096];
  while (true) {
    const ssize_t count = ::recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN;
  }
}

bool Http2Client::AwaitEnd() {
  const steady_clock::time_point give_up = steady_clock::now() + std::chrono::seconds(60);
  char bytes[4096];
  while (steady_clock::now() < give_up) {
    pollfd ready = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 100);
    const ssize_t count = ::recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count > 0) received_.append(bytes, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

}  // namespace reprise::service
