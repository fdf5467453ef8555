// SPDX-License-Identifier: Apache-2.0
// LogFile: a file that lines are appended to, or stderr. It never waits long: a full disk or a pipe
// that nobody reads costs lines, not time. A file that was renamed or removed, as log rotation
// does, is opened anew under its path. Threads: one at a time, with SIGPIPE blocked.
#ifndef REPRISE_SERVICE_ACCESS_LOG_LOG_FILE_H_
#define REPRISE_SERVICE_ACCESS_LOG_LOG_FILE_H_

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/transport/file_descriptor.h"

namespace reprise::service {

class LogFile {
 public:
  // "-" is stderr. Errors: NotFound, PermissionDenied, Unavailable: the path and the system's
  // reason.
  static absl::StatusOr<LogFile> Open(const std::string& path);

  // Appends the line and its end. False where it was not written, or not whole; what stands of it
  // then is ended before the next one.
  bool Write(std::string_view line);
  // Opens the path anew where it is another file by now, or none. Where that fails, the old one is
  // kept.
  void FollowPath();

 private:
  explicit LogFile(std::string path) : path_(std::move(path)) {}
  absl::Status OpenPath();
  bool IsReady() const;

  std::string path_;  // "" for stderr
  FileDescriptor file_;
  struct stat opened_ = {};
  int fd_ = -1;  // file_'s, or stderr
  bool broken_line_ = false;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ACCESS_LOG_LOG_FILE_H_
