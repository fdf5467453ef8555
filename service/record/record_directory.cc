// SPDX-License-Identifier: Apache-2.0
#include "service/record/record_directory.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "service/utc_time.h"

namespace reprise::service {
namespace {

constexpr char kSuffix[] = ".record";

}  // namespace

absl::Status RecordError(std::string_view doing, const std::string& path, int error) {
  const std::string what = absl::StrCat("cannot ", std::string(doing), " ", path, ": ",
                                        std::generic_category().message(error));
  if (error == EEXIST) return absl::AlreadyExistsError(what);
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(what);
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(what);
  return absl::UnavailableError(what);
}

absl::Status PrepareRecordDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return RecordError("make the directory", path, errno);
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return RecordError("look at", path, errno);
  if (!S_ISDIR(status.st_mode)) return RecordError("record to", path, ENOTDIR);
  if (::access(path.c_str(), W_OK | X_OK) != 0) return RecordError("write to", path, errno);
  return absl::OkStatus();
}

absl::StatusOr<RecordUse> MeasureRecords(const std::string& directory) {
  RecordUse use;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::error_code gone;  // a file may be removed meanwhile
    if (entries->path().extension() != kSuffix || !entries->is_regular_file(gone)) continue;
    const uintmax_t size = entries->file_size(gone);
    if (gone) continue;
    use.bytes += size;
    ++use.files;
  }
  if (error) return RecordError("list", directory, error.value());
  return use;
}

std::string NewRecordPath(const std::string& directory, uint64_t number) {
  std::string moment =
      UtcText(UtcNowNs()).substr(0, std::string_view("2026-11-23T09:15:02").size());
  std::erase_if(moment, [](char c) { return c == '-' || c == ':'; });
  return absl::StrCat(directory, "/session-", moment, "-", ::getpid(), "-", number, kSuffix);
}

}  // namespace reprise::service
