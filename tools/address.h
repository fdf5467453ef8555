// SPDX-License-Identifier: Apache-2.0
// Addresses of servers to connect to, as command lines write them. Where a server may listen is for
// service/listen_address.h to say.
#ifndef REPRISE_TOOLS_ADDRESS_H_
#define REPRISE_TOOLS_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise::tools {

// Where `serve` listens and the others connect when nothing else is said.
inline constexpr std::string_view kDefaultAddress = "127.0.0.1:50061";
// Where `top` looks for metrics when nothing else is said; `serve` has them where it is told to.
inline constexpr std::string_view kDefaultMetricsAddress = "127.0.0.1:50062";

// "unix:/path" (at most 107 bytes of path), "host:port" or "[v6]:port"; returns it unchanged.
// Errors: InvalidArgument with what, got, allowed.
absl::StatusOr<std::string> ParseAddress(std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADDRESS_H_
