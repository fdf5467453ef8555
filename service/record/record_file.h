// SPDX-License-Identifier: Apache-2.0
// RecordFile: a file that is appended to in whole pieces: a piece that cannot be written leaves
// nothing of itself behind. Threads: one at a time, with SIGXFSZ blocked.
#ifndef REPRISE_SERVICE_RECORD_RECORD_FILE_H_
#define REPRISE_SERVICE_RECORD_RECORD_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/transport/file_descriptor.h"

namespace reprise::service {

class RecordFile {
 public:
  RecordFile() = default;
  // A new file that its owner alone may read and write. Errors name the path: AlreadyExists,
  // NotFound, PermissionDenied, Unavailable.
  static absl::StatusOr<RecordFile> Create(const std::string& path);

  // Errors: Unavailable with the system's reason; the file is as it was.
  absl::Status Append(std::string_view bytes);
  void Close() { file_.Reset(); }
  // Closes it, and takes it out of its directory. One that stays there all the same holds what was
  // appended to it.
  void Remove();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor file_;
  uint64_t bytes_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RECORD_FILE_H_
