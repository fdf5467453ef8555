// SPDX-License-Identifier: Apache-2.0
#include "tools/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  const bool refused = error == EACCES || error == EPERM || error == EROFS || error == EBUSY;
  return {refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
          absl::StrCat("cannot write \"", path, "\": ", std::generic_category().message(error))};
}

// Returns errno, 0 for none.
int WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Whether a path names what a process has open, whose reader would go on with what was replaced.
bool IsDescriptor(std::string_view path) {
  return path == "/dev/stdout" || path == "/dev/stderr" || path.starts_with("/dev/fd/") ||
         path.starts_with("/proc/");
}

// Where a file is to be written, and what is there.
struct Place {
  std::string path;  // behind links
  bool is_descriptor = false;
  bool exists = false;
  struct stat there = {};

  bool is_replaced() const { return !is_descriptor && (!exists || S_ISREG(there.st_mode)); }
};
absl::StatusOr<Place> PlaceOf(const std::string& path) {
  Place place{.path = path, .is_descriptor = IsDescriptor(path)};
  place.exists = stat(path.c_str(), &place.there) == 0;
  if (place.exists && S_ISDIR(place.there.st_mode))
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write \"", path, "\": got a directory, allowed: a file"));
  if (!place.is_replaced()) return place;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  if (!error) place.path = real.string();
  return place;
}

// Writes a file beside the place, whose name it returns in `temporary`; errors name `path`.
absl::Status WriteBeside(const std::string& path, const Place& place, std::string_view text,
                         std::string* temporary) {
  *temporary = absl::StrCat(place.path, ".", getpid(), ".tmp");
  unlink(temporary->c_str());  // what an earlier process of this number left
  const int descriptor = open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return CannotWrite(path, errno);
  int failed = WriteAll(descriptor, text);
  if (failed == 0 && fsync(descriptor) != 0) failed = errno;
  if (failed == 0 && place.exists) {
    // Without the owner his special bits would be another's.
    const bool owned = fchown(descriptor, place.there.st_uid, place.there.st_gid) == 0;
    if (fchmod(descriptor, place.there.st_mode & (owned ? 07777 : 0777)) != 0) failed = errno;
  }
  if (close(descriptor) != 0 && failed == 0) failed = errno;
  if (failed == 0) return absl::OkStatus();
  unlink(temporary->c_str());
  return CannotWrite(path, failed);
}

absl::Status WriteInto(const std::string& path, std::string_view text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) return CannotWrite(path, errno);
  int failed = WriteAll(descriptor, text);
  if (close(descriptor) != 0 && failed == 0) failed = errno;
  return failed == 0 ? absl::OkStatus() : CannotWrite(path, failed);
}

}  // namespace

absl::Status CheckWritable(const std::string& path, size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceOf(path));
  if (!place.is_replaced())
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : CannotWrite(path, errno);
  std::string temporary;
  REPRISE_RETURN_IF_ERROR(WriteBeside(path, place, std::string(bytes, '\n'), &temporary));
  unlink(temporary.c_str());
  return absl::OkStatus();
}

absl::Status WriteAtomically(const std::string& path, std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceOf(path));
  if (!place.is_replaced()) return WriteInto(path, text);
  std::string temporary;
  REPRISE_RETURN_IF_ERROR(WriteBeside(path, place, text, &temporary));
  if (std::rename(temporary.c_str(), place.path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(temporary.c_str());
  return CannotWrite(path, error);
}

}  // namespace reprise::tools
