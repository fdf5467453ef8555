// SPDX-License-Identifier: Apache-2.0
#include "service/access_log/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::service {
namespace {

constexpr char kStderr[] = "-";
// For a pipe's reader, once for each line.
constexpr int kPatienceMs = 100;

absl::Status FromErrno(const std::string& path, int error) {
  const std::string what =
      absl::StrCat("cannot open ", path, ": ", std::generic_category().message(error));
  if (error == ENOENT) return absl::NotFoundError(what);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(what);
  return absl::UnavailableError(what);
}

}  // namespace

absl::StatusOr<LogFile> LogFile::Open(const std::string& path) {
  if (path == kStderr) {
    LogFile file("");
    file.fd_ = STDERR_FILENO;
    return file;
  }
  LogFile file(path);
  REPRISE_RETURN_IF_ERROR(file.OpenPath());
  return file;
}

// Non-blocking, for the sake of pipes: one without a reader is an error.
absl::Status LogFile::OpenPath() {
  FileDescriptor file(::open(
      path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640));
  if (!file.valid()) return FromErrno(path_, errno);
  if (::fstat(file.get(), &opened_) != 0) return FromErrno(path_, errno);
  file_ = std::move(file);
  fd_ = file_.get();
  broken_line_ = false;
  return absl::OkStatus();
}

// A pipe that is ready takes 4 KiB without blocking, and a line is shorter.
bool LogFile::IsReady() const {
  pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
  return ::poll(&ready, 1, kPatienceMs) == 1 && (ready.revents & POLLOUT) != 0;
}

bool LogFile::Write(std::string_view line) {
  if (!IsReady()) return false;
  const std::string bytes = absl::StrCat(broken_line_ ? "\n" : "", std::string(line), "\n");
  const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
  if (written <= 0) return false;
  broken_line_ = static_cast<size_t>(written) < bytes.size();
  return !broken_line_;
}

void LogFile::FollowPath() {
  if (path_.empty()) return;
  struct stat now = {};
  const bool same = ::stat(path_.c_str(), &now) == 0 && now.st_dev == opened_.st_dev &&
                    now.st_ino == opened_.st_ino;
  if (!same) OpenPath().IgnoreError();
}

}  // namespace reprise::service
