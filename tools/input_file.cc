// SPDX-License-Identifier: Apache-2.0
#include "tools/input_file.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

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

absl::StatusOr<std::string> ReadInputFile(std::string_view what, const std::string& path,
                                          size_t max_bytes) {
  constexpr size_t kPartBytes = size_t{1} << 16;
  REPRISE_ASSIGN_OR_RETURN(std::ifstream file, OpenInputFile(what, path));
  std::string bytes;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  const auto beyond = [&](const std::string& got) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), path, ": got ", got,
                                                   " bytes, allowed: at most ", max_bytes));
  };
  if (!error && size > max_bytes) return beyond(absl::StrCat(size));
  if (!error) bytes.reserve(size);
  std::vector<char> part(kPartBytes);
  while (file) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    bytes.append(part.data(), static_cast<size_t>(file.gcount()));
    if (bytes.size() > max_bytes) return beyond(absl::StrCat("more than ", max_bytes));
  }
  if (file.bad())
    return absl::UnavailableError(absl::StrCat(std::string(what), "cannot read \"", path, "\""));
  return bytes;
}

}  // namespace reprise::tools
