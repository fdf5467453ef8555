// SPDX-License-Identifier: Apache-2.0
// ExportWindow: the file by which servers of one machine hand each other KV blocks. The server that
// exports writes it, and says in a table which copies are there; those that import map it. The
// contents of blocks are not in it: it has the handle of the memory where they lie.
//
// An entry of the table is written and taken back while others read it: what a reader finds holds
// as long as the entry still has the reader's key. The server that made the file keeps it locked as
// long as it lives, so that one that was left behind shows.
// Threads: entries by any; the rest is written before others know the file.
#ifndef REPRISE_SERVICE_KV_EXPORT_WINDOW_H_
#define REPRISE_SERVICE_KV_EXPORT_WINDOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise::service {

class ExportWindow {
 public:
  static constexpr size_t kIdBytes = 16;
  static constexpr size_t kKeyBytes = 16;

  struct Description {
    std::string id = {};      // kIdBytes
    uint32_t num_places = 0;  // entries of the table
    std::string handle = {};  // ExportSpace::handle
    std::string arrangement = {};
    std::string layout = {};  // v1.KvLayout, serialised
  };

  // A new file in `directory`, which nobody but this process has. Errors name the path.
  static absl::StatusOr<std::unique_ptr<ExportWindow>> Make(const std::string& directory,
                                                            const Description& description);
  // Another server's. Errors: NotFound (no such file, or its server has ended), FailedPrecondition
  // (not such a file, or one that others could have written).
  static absl::StatusOr<std::unique_ptr<ExportWindow>> Open(const std::string& directory,
                                                            std::string_view id);
  // Removes files of servers that have ended. Errors: the directory's.
  static absl::Status RemoveLeftBehind(const std::string& directory);
  // Unmaps it; removes it if it was made here.
  ~ExportWindow();
  ExportWindow(const ExportWindow&) = delete;
  ExportWindow& operator=(const ExportWindow&) = delete;

  const Description& description() const { return description_; }
  // Of a window that was opened: whether its server still runs.
  bool IsAlive() const;

  // The copy at `place` is there from now on. REQUIRES: it was made here, and the entry is empty.
  void Publish(uint32_t place, std::string_view key, std::string_view identity,
               uint32_t num_tokens);
  // It is not there any more. Whoever reads it meanwhile sees that at the end.
  void Revoke(uint32_t place);
  // How many tokens the copy has; nullopt where there is none of that key for that identity.
  std::optional<uint32_t> Find(uint32_t place, std::string_view key,
                               std::string_view identity) const;

 private:
  struct Entry;
  ExportWindow() = default;
  Entry& entry(uint32_t place) const;
  absl::Status Map(size_t bytes);

  Description description_;
  std::string path_;
  int file_ = -1;
  bool is_own_ = false;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t table_ = 0;  // where it begins
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_EXPORT_WINDOW_H_
