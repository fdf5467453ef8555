// SPDX-License-Identifier: Apache-2.0
// Opening and reading regular files; see file_input.h.
#include "models/weights/file_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

absl::Status PathError(int error, const std::string& path) {
  // A file where a folder should be: to the reader, the path does not exist.
  return absl::ErrnoToStatus(error == ENOTDIR ? ENOENT : error, path);
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return PathError(errno, path);
  InputFile file(descriptor, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return PathError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": got ", S_ISDIR(info.st_mode) ? "a directory" : "a special file",
                     ", allowed a regular file"));
  }
  file.bytes_ = static_cast<size_t>(info.st_size);
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  REPRISE_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.bytes() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": got ", file.bytes(), " bytes, allowed at most ", max_bytes));
  }
  std::string text(file.bytes(), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(file.descriptor(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return PathError(errno, path);
    if (got == 0) break;  // truncated since it was opened: what is there is judged by its parser
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace reprise::models
