// SPDX-License-Identifier: Apache-2.0
// What --json writes: figures, and enough about the run to repeat it.
#ifndef REPRISE_TOOLS_RECORD_H_
#define REPRISE_TOOLS_RECORD_H_

#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/cli.h"
#include "tools/console.h"

namespace reprise::tools {

// The file that means stdout.
inline constexpr char kStdoutFile[] = "-";

// What every file says of the run that writes it now: {"command", "version", "argv", "date" (UTC,
// ISO 8601), "host", "commit" (null where the program was not built from a git repository)}.
nlohmann::json RecordOf(const std::string& command, const Invocation& invocation);

// Before anything is printed and long before there is anything to write: finds out what WriteRecord
// would say of `path`, and with "-" keeps stdout free for the JSON. "" is no file. Leaves the file
// as it was, or none where there was none.
absl::Status PrepareRecord(const std::string& path, Console* console);
// Writes `json` with a final newline; nothing for "". Errors: Unavailable names the file and the
// reason.
absl::Status WriteRecord(const std::string& path, const nlohmann::json& json, Console* console);
// A file with a value in each line, which can be read while more are written.
class RecordLines {
 public:
  // "" and "-": as WriteRecord has it. `console` must outlive the lines. Errors: as above.
  static absl::StatusOr<RecordLines> Open(const std::string& path, Console* console);

  // What cannot be written is Close's to say.
  void Write(const nlohmann::json& json);
  // Errors: as above, of the first line that could not be written.
  absl::Status Close();

 private:
  RecordLines(std::string path, Console* console) : path_(std::move(path)), console_(console) {}
  std::string path_;
  Console* console_;
  std::ofstream file_;
  absl::Status status_;
};

// Writes `text` to a file, in place of what was there: whole or not at all, but where it may
// not be replaced (WriteAtomically). Errors: as above.
absl::Status WriteText(const std::string& path, const std::string& text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_RECORD_H_
