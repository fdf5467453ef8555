// SPDX-License-Identifier: Apache-2.0
// Http2Client: a connection on which a test sends frames of HTTP/2 as no gRPC library would, byte
// by byte. Reads what comes back, and understands GOAWAY.
#ifndef REPRISE_TESTS_SERVICE_HTTP2_CLIENT_H_
#define REPRISE_TESTS_SERVICE_HTTP2_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "service/transport/file_descriptor.h"

namespace reprise::service {

// Frame types of RFC 9113, section 6.
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8
};

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload);
// What opens a connection: the preface, empty SETTINGS, and an acknowledgement of the server's.
std::string Http2Opening();
// HEADERS that start a call of `path` ("/reprise.v1.StepService/Describe"), not its end.
std::string CallHeaders(uint32_t stream, std::string_view path);
// How a header begins whose value is gigabytes long (HPACK).
std::string LongHeader();
// RST_STREAM with CANCEL.
std::string Reset(uint32_t stream);

class Http2Client {
 public:
  // Connects to "unix:/path" or "127.0.0.1:port"; sends nothing. A failure leaves `connected`
  // false.
  explicit Http2Client(const std::string& address);
  // A socket made earlier, while there were file descriptors; Connect does the rest.
  Http2Client() = default;
  virtual ~Http2Client() = default;
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;
  void MakeSocket(const std::string& address);
  bool Connect(const std::string& address);

  bool connected() const { return connected_; }
  // False when the connection is gone, or the server takes nothing for a minute.
  virtual bool Send(std::string_view bytes);
  // Reads what is there and throws it away. False at the connection's end.
  virtual bool Drain();
  // Reads for up to a minute; true when the server ends the connection in that time.
  bool AwaitEnd();
  // All that AwaitEnd read, as it came.
  const std::string& received() const { return received_; }
  void Close() { fd_.Reset(); }

 protected:
  int fd() const { return fd_.get(); }
  void set_connected(bool connected) { connected_ = connected; }

 private:
  FileDescriptor fd_;
  bool connected_ = false;
  std::string received_;
};

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_HTTP2_CLIENT_H_
