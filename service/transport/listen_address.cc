// SPDX-License-Identifier: Apache-2.0
#include "service/transport/listen_address.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  if (text.starts_with("unix:")) return ParseUnix(text);
  return ParseTcp(text);
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
