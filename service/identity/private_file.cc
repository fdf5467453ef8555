// SPDX-License-Identifier: Apache-2.0
#include "service/identity/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"
#include "service/transport/file_descriptor.h"

namespace reprise::service {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

absl::Status FromErrno(const std::string& where, int error) {
  const std::string message = absl::StrCat(where, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  if (error == EISDIR) return absl::InvalidArgumentError(message);
  return absl::UnavailableError(message);
}

// Of the open file, so that it is the one that is read.
absl::Status CheckAccess(const std::string& where, const struct stat& info, FileKind kind) {
  const uid_t user = ::geteuid();
  if (info.st_uid != 0 && info.st_uid != user) {
    return absl::PermissionDeniedError(absl::StrCat(where, ": got a file of user ", info.st_uid,
                                                    ", allowed: of root or of user ", user));
  }
  const mode_t refused =
      kind == FileKind::kSecret ? S_IWGRP | S_IWOTH | S_IROTH : S_IWGRP | S_IWOTH;
  if ((info.st_mode & refused) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s: got mode %04o, allowed: none that lets others %s (chmod %s)", where,
      info.st_mode & 07777, kind == FileKind::kSecret ? "write or read it" : "write it",
      kind == FileKind::kSecret ? "600" : "644"));
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no file";
}

}  // namespace

absl::StatusOr<std::string> ReadPrivateFile(const std::string& what, const std::string& path,
                                            FileKind kind) {
  const std::string where = absl::StrCat(what, " file ", path);
  // A pipe that nobody writes to would be waited for, before it is known to be one.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid()) return FromErrno(where, errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return FromErrno(where, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got ", KindOf(info.st_mode), ", allowed: a regular file"));
  }
  REPRISE_RETURN_IF_ERROR(CheckAccess(where, info, kind));
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FromErrno(where, errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got more than ", kMaxBytes, " bytes, allowed up to that"));
  }
  text.resize(size);
  return text;
}

}  // namespace reprise::service
