// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/host_shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/byte_count.h"

namespace reprise::runtime {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status CannotOpen(std::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("shared memory of another process: ", absl::string_view(why.data(), why.size()),
                   "; allowed: a handle of a process of this user that still runs"));
}

// "memfd <process> <descriptor>".
absl::StatusOr<std::string> PathOf(std::string_view handle) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(handle.data(), handle.size()), ' ');
  uint32_t process = 0, file = 0;
  if (words.size() != 3 || words[0] != "memfd" || !absl::SimpleAtoi(words[1], &process) ||
      !absl::SimpleAtoi(words[2], &file))
    return CannotOpen("the handle is none of the host device");
  return absl::StrCat("/proc/", process, "/fd/", file);
}

}  // namespace

HostSharedMemory::~HostSharedMemory() {
  for (const auto& [data, mapping] : mappings_) Unmap(data, mapping);
}

void HostSharedMemory::Unmap(void* data, const Mapping& mapping) {
  munmap(data, mapping.bytes);
  if (mapping.file >= 0) close(mapping.file);
}

absl::StatusOr<SharedAllocation> HostSharedMemory::Allocate(size_t bytes) {
  const auto fails = [bytes](const char* call) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "host: ", ByteCount(bytes), " of shared memory asked: ", call, ": ", std::strerror(errno)));
  };
  const int file = memfd_create("reprise", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return fails("memfd_create");
  absl::Cleanup closes = [file] { close(file); };
  // Taken now: a page that is not there later would end the process.
  errno = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (errno != 0) return fails("posix_fallocate");
  if (fcntl(file, F_ADD_SEALS, kSeals) != 0) return fails("fcntl");
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return fails("mmap");
  std::move(closes).Cancel();
  const std::lock_guard lock(mutex_);
  mappings_[data] = {.bytes = bytes, .file = file};
  return SharedAllocation{.data = data, .handle = absl::StrCat("memfd ", getpid(), " ", file)};
}

absl::StatusOr<void*> HostSharedMemory::Open(std::string_view handle, size_t bytes) {
  const absl::StatusOr<std::string> path = PathOf(handle);
  if (!path.ok()) return path.status();
  const int file = open(path->c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return CannotOpen(absl::StrCat(*path, ": ", std::strerror(errno)));
  const absl::Cleanup closes = [file] { close(file); };
  struct stat info = {};
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, &info) != 0)
    return CannotOpen(absl::StrCat(*path, " is not memory that is shared"));
  if (static_cast<size_t>(info.st_size) < bytes) {
    return CannotOpen(absl::StrCat(*path, " has ", ByteCount(static_cast<size_t>(info.st_size)),
                                   " of the ", ByteCount(bytes), " asked"));
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return CannotOpen(absl::StrCat(*path, ": ", std::strerror(errno)));
  const std::lock_guard lock(mutex_);
  mappings_[data] = {.bytes = bytes};
  return data;
}

void HostSharedMemory::Release(void* data) {
  Mapping mapping;
  {
    const std::lock_guard lock(mutex_);
    const auto found = mappings_.find(data);
    if (found == mappings_.end()) return;
    mapping = found->second;
    mappings_.erase(found);
  }
  Unmap(data, mapping);
}

}  // namespace reprise::runtime
