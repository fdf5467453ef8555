// SPDX-License-Identifier: Apache-2.0
#include "tools/address.h"

#include <sys/un.h>

#include "absl/strings/str_cat.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// One byte of sockaddr_un is the terminating zero.
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Refuse(std::string_view got, std::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("address: got \"", std::string(got), "\", allowed: ", std::string(allowed)));
}

}  // namespace

absl::StatusOr<std::string> ParseAddress(std::string_view text) {
  constexpr std::string_view kAllowed = "HOST:PORT, [IPV6]:PORT or unix:PATH";
  if (text.starts_with("unix:")) {
    const size_t length = text.size() - 5;
    if (length == 0) return Refuse(text, kAllowed);
    if (length > kMaxUnixPath) {
      return Refuse(text, absl::StrCat("a socket path of at most ", kMaxUnixPath, " bytes"));
    }
    return std::string(text);
  }
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return Refuse(text, kAllowed);
  const std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (!bracketed && host.find_first_of(":[]/ ") != host.npos) return Refuse(text, kAllowed);
  if (!ParseUnsigned(text.substr(colon + 1), 1, 65535).ok()) {
    return Refuse(text, "a port from 1 to 65535");
  }
  return std::string(text);
}

}  // namespace reprise::tools
