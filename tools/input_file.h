// SPDX-License-Identifier: Apache-2.0
// Opening files that a user names; pipes are files too.
#ifndef REPRISE_TOOLS_INPUT_FILE_H_
#define REPRISE_TOOLS_INPUT_FILE_H_

#include <fstream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise::tools {

// `what` begins the messages ("config: "). Errors: NotFound for what cannot be read;
// InvalidArgument for a directory.
absl::StatusOr<std::ifstream> OpenInputFile(std::string_view what, const std::string& path);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_INPUT_FILE_H_
