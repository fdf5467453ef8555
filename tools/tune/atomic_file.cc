// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot write \"", path, "\": ", std::generic_category().message(error)));
}

// Returns errno, 0 for none.
int WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(descriptor) == 0 ? 0 : errno;
}

// Writes a file beside `path`, whose name it returns in `temporary`; errors name `path`.
absl::Status WriteBeside(const std::string& path, std::string_view text, std::string* temporary) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write \"", path, "\": got a directory, allowed: a file"));
  *temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int descriptor = open(temporary->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return CannotWrite(path, errno);
  int failed = WriteAll(descriptor, text);
  if (close(descriptor) != 0 && failed == 0) failed = errno;
  if (failed == 0) return absl::OkStatus();
  unlink(temporary->c_str());
  return CannotWrite(path, failed);
}

}  // namespace

absl::Status CheckWritable(const std::string& path, size_t bytes) {
  std::string temporary;
  REPRISE_RETURN_IF_ERROR(WriteBeside(path, std::string(bytes, '\n'), &temporary));
  unlink(temporary.c_str());
  return absl::OkStatus();
}

absl::Status WriteAtomically(const std::string& path, std::string_view text) {
  std::string temporary;
  REPRISE_RETURN_IF_ERROR(WriteBeside(path, text, &temporary));
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(temporary.c_str());
  return CannotWrite(path, error);
}

}  // namespace reprise::tools
