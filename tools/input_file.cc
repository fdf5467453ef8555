// SPDX-License-Identifier: Apache-2.0
#include "tools/input_file.h"

#include <filesystem>
#include <iostream>
#include <istream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

constexpr char kStdin[] = "-";

absl::Status TooLarge(std::string_view what, const std::string& name, const std::string& got,
                      size_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), name, ": got ", got, " bytes, allowed: at most ", max_bytes));
}

// `size`: how many bytes it has, as far as that is known.
absl::StatusOr<std::string> ReadAll(std::istream& stream, std::string_view what,
                                    const std::string& name, size_t size, size_t max_bytes) {
  constexpr size_t kPartBytes = size_t{1} << 16;
  std::string bytes;
  bytes.reserve(size);
  std::vector<char> part(kPartBytes);
  while (stream) {
    stream.read(part.data(), static_cast<std::streamsize>(part.size()));
    bytes.append(part.data(), static_cast<size_t>(stream.gcount()));
    if (bytes.size() > max_bytes)
      return TooLarge(what, name, absl::StrCat("more than ", max_bytes), max_bytes);
  }
  if (stream.bad())
    return absl::UnavailableError(absl::StrCat(std::string(what), "cannot read \"", name, "\""));
  return bytes;
}

}  // namespace

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
  REPRISE_ASSIGN_OR_RETURN(std::ifstream file, OpenInputFile(what, path));
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return ReadAll(file, what, path, 0, max_bytes);
  if (size > max_bytes) return TooLarge(what, path, absl::StrCat(size), max_bytes);
  return ReadAll(file, what, path, size, max_bytes);
}

absl::StatusOr<std::string> ReadInputFileOrStdin(std::string_view what, const std::string& path,
                                                 size_t max_bytes) {
  if (path == kStdin) return ReadAll(std::cin, what, "stdin", 0, max_bytes);
  return ReadInputFile(what, path, max_bytes);
}

}  // namespace reprise::tools
