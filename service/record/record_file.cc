// SPDX-License-Identifier: Apache-2.0
#include "service/record/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "service/record/record_directory.h"

namespace reprise::service {

absl::StatusOr<RecordFile> RecordFile::Create(const std::string& path) {
  RecordFile file;
  file.path_ = path;
  file.file_.Reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                          S_IRUSR | S_IWUSR));
  if (!file.file_.valid()) return RecordError("create", path, errno);
  return file;
}

absl::Status RecordFile::Append(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
      continue;
    }
    const int error = written == 0 ? ENOSPC : errno;
    if (error == EINTR) continue;
    // Where even this fails, what stands there is a record that was cut off.
    const bool undone = ::ftruncate(file_.get(), static_cast<off_t>(bytes_)) == 0 &&
                        ::lseek(file_.get(), static_cast<off_t>(bytes_), SEEK_SET) >= 0;
    if (!undone) Close();
    return absl::UnavailableError(RecordError("write to", path_, error).message());
  }
  bytes_ += bytes.size();
  return absl::OkStatus();
}

void RecordFile::Remove() {
  ::unlink(path_.c_str());
  Close();
}

}  // namespace reprise::service
