// SPDX-License-Identifier: Apache-2.0
// What was measured so far, in a file that a later run continues: a line of JSON that says what
// was measured on and with what, then a line per measurement. One process at a time.
#ifndef REPRISE_TOOLS_TUNE_JOURNAL_H_
#define REPRISE_TOOLS_TUNE_JOURNAL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace reprise::tools {

inline constexpr char kJournalSchema[] = "reprise-tune-journal/1";
// The largest journal that is read, in bytes.
inline constexpr size_t kMaxJournalBytes = 256 << 20;

// How long attention took in one cell by one choice.
struct JournalEntry {
  nlohmann::json cell;    // which cell
  nlohmann::json choice;  // which tree
  double ns = 0;          // of one call: the median
  uint32_t replays = 0;   // that this is the median of
  double spread = 0;      // of these replays: (p90 - p10) / median
  double seconds = 0;     // that measuring it took
};

class Journal {
 public:
  // "" is a journal without a file. A file that there is must begin with `header`; a last line that
  // was not written to its end is dropped. One that there is not is begun with the header. Errors:
  // FailedPrecondition names what differs in the header, or that another process has the journal
  // open; InvalidArgument with the line that is no entry; Unavailable where the file cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path,
                                                       const nlohmann::json& header);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const std::string& path() const { return path_; }
  size_t num_entries() const { return entries_.size(); }
  // nullptr where there is none. Of several, the last.
  const JournalEntry* Find(const nlohmann::json& cell, const nlohmann::json& choice) const;
  // Writes them all, or says why not. Errors: Unavailable names the file and the reason.
  absl::Status Append(std::span<const JournalEntry> entries);

 private:
  explicit Journal(std::string path) : path_(std::move(path)) {}
  absl::Status OpenFile(const nlohmann::json& header);
  absl::Status Read(const std::string& text, const nlohmann::json& header);
  absl::Status Write(const std::string& lines);
  void Keep(JournalEntry entry);

  const std::string path_;
  int descriptor_ = -1;
  std::map<std::pair<std::string, std::string>, JournalEntry> entries_;  // by cell and choice
};

// "device.name: \"a\", got \"b\"; options.seed: 1, got 2": where `got` differs from `journal`.
std::string Differences(const nlohmann::json& journal, const nlohmann::json& got);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_JOURNAL_H_
