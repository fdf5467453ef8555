// SPDX-License-Identifier: Apache-2.0
#include "tools/input_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace reprise::tools {

absl::StatusOr<std::ifstream> OpenInputFile(std::string_view what, const std::string& path) {
  const std::string cannot = absl::StrCat(std::string(what), "cannot read \"", path, "\"");
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat(cannot, ": got a directory, allowed: a file"));
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(cannot);
  return file;
}

}  // namespace reprise::tools
