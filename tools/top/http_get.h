// SPDX-License-Identifier: Apache-2.0
// HttpGet: one GET over plain HTTP to an address, as much of HTTP as reading metrics needs. Blocks.
#ifndef REPRISE_TOOLS_TOP_HTTP_GET_H_
#define REPRISE_TOOLS_TOP_HTTP_GET_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace reprise::tools {

// The body of the answer to GET `path` from `address` (address.h). `time`: for all of it. Errors:
// Unavailable (nobody answers, or the answer is cut off), DeadlineExceeded, FailedPrecondition (an
// answer other than 200, or that is no HTTP).
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path,
                                    std::chrono::milliseconds time);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TOP_HTTP_GET_H_
