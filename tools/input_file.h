// SPDX-License-Identifier: Apache-2.0
// Opening files that a user names; pipes are files too.
#ifndef REPRISE_TOOLS_INPUT_FILE_H_
#define REPRISE_TOOLS_INPUT_FILE_H_

#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise::tools {

// `what` begins the messages ("config: "). Errors: NotFound for what cannot be read;
// InvalidArgument for a directory.
absl::StatusOr<std::ifstream> OpenInputFile(std::string_view what, const std::string& path);

// All of its bytes, once and in order, so that a pipe does. Errors: likewise; InvalidArgument
// beyond `max_bytes`, which a pipe that never ends would be; Unavailable where reading fails.
absl::StatusOr<std::string> ReadInputFile(std::string_view what, const std::string& path,
                                          size_t max_bytes);

// The same, and stdin for "-".
absl::StatusOr<std::string> ReadInputFileOrStdin(std::string_view what, const std::string& path,
                                                 size_t max_bytes);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_INPUT_FILE_H_
