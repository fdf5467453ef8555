// SPDX-License-Identifier: Apache-2.0
#include "service/kv/export_window.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "service/identity/identity.h"
#include "service/session_token.h"

namespace reprise::service {
namespace {

constexpr char kSuffix[] = ".export";
constexpr std::array<char, 8> kMagic = {'R', 'P', 'E', 'X', 'P', 'O', 'R', '1'};

// The begin of the file; the texts follow, one behind the other, and then the table.
struct Head {
  std::array<char, 8> magic;
  std::array<char, ExportWindow::kIdBytes> id;
  uint32_t num_places;
  uint32_t handle_bytes;
  uint32_t arrangement_bytes;
  uint32_t layout_bytes;
};

absl::Status FileError(const std::string& path, int error) {
  const std::string what = absl::StrCat("export window ", path, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(what);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(what);
  return absl::UnavailableError(what);
}

std::string PathOf(const std::string& directory, std::string_view id) {
  return absl::StrCat(directory, "/",
                      absl::BytesToHexString(absl::string_view(id.data(), id.size())), kSuffix);
}

// Nobody holds the lock of a server that has ended.
bool IsLockedByOthers(int file) {
  if (flock(file, LOCK_SH | LOCK_NB) == 0) {
    flock(file, LOCK_UN);
    return false;
  }
  return errno == EWOULDBLOCK;
}

uint64_t Half(std::string_view key, size_t half) {
  uint64_t value = 0;
  std::memcpy(&value, key.data() + half * sizeof(value), sizeof(value));
  return value;
}

}  // namespace

// Of the file. A key that is all zero is none.
struct ExportWindow::Entry {
  std::array<std::atomic<uint64_t>, 2> key;
  uint32_t num_tokens;
  uint32_t identity_bytes;
  std::array<char, kMaxIdentityNameBytes> identity;
};

ExportWindow::Entry& ExportWindow::entry(uint32_t place) const {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  REPRISE_CHECK(place < description_.num_places);
  return reinterpret_cast<Entry*>(data_ + table_)[place];
}

absl::Status ExportWindow::Map(size_t bytes) {
  void* data =
      mmap(nullptr, bytes, is_own_ ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) return FileError(path_, errno);
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExportWindow>> ExportWindow::Make(const std::string& directory,
                                                                 const Description& description) {
  std::unique_ptr<ExportWindow> window(new ExportWindow());
  window->is_own_ = true;
  window->description_ = description;
  const std::string path = PathOf(directory, description.id);
  // Others look at the file once it has its name, and it is complete and locked then.
  window->path_ = absl::StrCat(path, ".new");
  window->file_ = open(window->path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (window->file_ < 0) return FileError(window->path_, errno);
  Head head = {.magic = kMagic,
               .id = {},
               .num_places = description.num_places,
               .handle_bytes = static_cast<uint32_t>(description.handle.size()),
               .arrangement_bytes = static_cast<uint32_t>(description.arrangement.size()),
               .layout_bytes = static_cast<uint32_t>(description.layout.size())};
  std::memcpy(head.id.data(), description.id.data(), kIdBytes);
  const std::string texts =
      absl::StrCat(description.handle, description.arrangement, description.layout);
  window->table_ = (sizeof(Head) + texts.size() + 63) / 64 * 64;
  const size_t bytes = window->table_ + description.num_places * sizeof(Entry);
  // A full disk shows now, not as a signal later.
  if (const int error = posix_fallocate(window->file_, 0, static_cast<off_t>(bytes)); error != 0)
    return FileError(window->path_, error);
  if (flock(window->file_, LOCK_EX | LOCK_NB) != 0) return FileError(window->path_, errno);
  REPRISE_RETURN_IF_ERROR(window->Map(bytes));
  std::memcpy(window->data_, &head, sizeof(head));
  std::memcpy(window->data_ + sizeof(head), texts.data(), texts.size());
  if (rename(window->path_.c_str(), path.c_str()) != 0) return FileError(path, errno);
  window->path_ = path;
  return window;
}

absl::StatusOr<std::unique_ptr<ExportWindow>> ExportWindow::Open(const std::string& directory,
                                                                 std::string_view id) {
  std::unique_ptr<ExportWindow> window(new ExportWindow());
  window->path_ = PathOf(directory, id);
  const std::string& path = window->path_;
  window->file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (window->file_ < 0) return FileError(path, errno);
  struct stat info = {};
  if (fstat(window->file_, &info) != 0) return FileError(path, errno);
  if (info.st_uid != geteuid() || !S_ISREG(info.st_mode) || (info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("export window ", path,
                     ": got one that others may write or read; allowed: a file of this "
                     "user's alone"));
  }
  if (!window->IsAlive())
    return absl::NotFoundError(absl::StrCat("export window ", path, ": its server has ended"));
  const auto size = static_cast<size_t>(info.st_size);
  const absl::Status broken = absl::FailedPreconditionError(
      absl::StrCat("export window ", path, ": got other contents; allowed: this version's"));
  if (size < sizeof(Head)) return broken;
  REPRISE_RETURN_IF_ERROR(window->Map(size));
  Head head;
  std::memcpy(&head, window->data_, sizeof(head));
  const uint64_t texts = uint64_t{head.handle_bytes} + head.arrangement_bytes + head.layout_bytes;
  const uint64_t table = (sizeof(Head) + texts + 63) / 64 * 64;
  if (head.magic != kMagic || std::string_view(head.id.data(), kIdBytes) != id ||
      size != table + uint64_t{head.num_places} * sizeof(Entry))
    return broken;
  window->table_ = table;
  const char* text = reinterpret_cast<const char*>(window->data_) + sizeof(head);
  window->description_ = {
      .id = std::string(id),
      .num_places = head.num_places,
      .handle = std::string(text, head.handle_bytes),
      .arrangement = std::string(text + head.handle_bytes, head.arrangement_bytes),
      .layout = std::string(text + head.handle_bytes + head.arrangement_bytes, head.layout_bytes)};
  return window;
}

absl::Status ExportWindow::RemoveLeftBehind(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string path = entries->path().string();
    if (entries->path().extension() != kSuffix) continue;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    if (!IsLockedByOthers(file)) unlink(path.c_str());
    close(file);
  }
  if (error) return FileError(directory, error.value());
  return absl::OkStatus();
}

ExportWindow::~ExportWindow() {
  if (is_own_ && file_ >= 0) unlink(path_.c_str());
  if (data_ != nullptr) munmap(data_, bytes_);
  if (file_ >= 0) close(file_);
}

bool ExportWindow::IsAlive() const { return IsLockedByOthers(file_); }

void ExportWindow::Publish(uint32_t place, std::string_view key, std::string_view identity,
                           uint32_t num_tokens) {
  REPRISE_CHECK(key.size() == kKeyBytes && identity.size() <= kMaxIdentityNameBytes);
  Entry& entry = this->entry(place);
  entry.num_tokens = num_tokens;
  entry.identity_bytes = static_cast<uint32_t>(identity.size());
  std::copy(identity.begin(), identity.end(), entry.identity.begin());
  for (size_t half = 0; half < 2; ++half)
    entry.key[half].store(Half(key, half), std::memory_order_release);
}

void ExportWindow::Revoke(uint32_t place) {
  for (std::atomic<uint64_t>& half : entry(place).key) half.store(0, std::memory_order_seq_cst);
}

std::optional<uint32_t> ExportWindow::Find(uint32_t place, std::string_view key,
                                           std::string_view identity) const {
  if (place >= description_.num_places || key.size() != kKeyBytes) return std::nullopt;
  const Entry& entry = this->entry(place);
  const auto has_key = [&] {
    const uint64_t differs = (entry.key[0].load(std::memory_order_acquire) ^ Half(key, 0)) |
                             (entry.key[1].load(std::memory_order_acquire) ^ Half(key, 1));
    return differs == 0 && (Half(key, 0) | Half(key, 1)) != 0;
  };
  if (!has_key()) return std::nullopt;
  const uint32_t num_tokens = entry.num_tokens;
  const bool is_theirs = entry.identity_bytes == identity.size() &&
                         std::string_view(entry.identity.data(), identity.size()) == identity;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!is_theirs || !has_key()) return std::nullopt;
  return num_tokens;
}

}  // namespace reprise::service
