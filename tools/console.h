// SPDX-License-Identifier: Apache-2.0
// Console: text on stdout and, where stderr is a terminal, one progress line on stderr that is
// redrawn in place. Where it is not, there is no progress line: logs get facts, not animation. One
// thread.
#ifndef REPRISE_TOOLS_CONSOLE_H_
#define REPRISE_TOOLS_CONSOLE_H_

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tools/text_width.h"

namespace reprise::tools {

class Console {
 public:
  Console();
  // Clears the progress line.
  ~Console() { ClearProgress(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Text to stdout at once, as it is. A progress line steps aside. Text that ends inside a line
  // keeps that line for itself: no progress is drawn until it is complete.
  void Print(std::string_view text);
  // Completes a line that Print left unfinished.
  void EndLine();
  // To stderr, one line; on a terminal, broken at words where it is too long.
  void Note(std::string_view line);
  // From here on notes are lines of JSON: JsonNote.
  void WriteNotesAsJson() { json_notes_ = true; }
  bool writes_json() const { return json_notes_; }
  // Redraws the progress line, at most ten times a second unless `now`; longer lines are cut to the
  // terminal's width.
  void Progress(const std::string& line, bool now = false);
  void ClearProgress();
  bool has_progress() const { return stderr_is_terminal_; }

  // Leaves stdout to PrintData, for another program to read: from here on text goes to stderr.
  void ReserveStdout();
  // To stdout, after ReserveStdout.
  void PrintData(std::string_view data);

  // Columns that text should fit into: of the terminal that it goes to, kNoWidth where that is
  // none.
  size_t width() const;
  // Columns of the progress line.
  size_t progress_width() const;

  // OK while everything has reached stdout. Errors: Unavailable with the system's reason.
  const absl::Status& status() const { return status_; }

 private:
  void Write(std::string_view bytes, std::FILE* file);

  bool stderr_is_terminal_;
  bool stdout_is_terminal_;
  std::FILE* text_ = stdout;
  bool json_notes_ = false;
  bool line_open_ = false;  // the last text ended inside a line
  absl::Status status_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_draw_;
};

// {"time":"2026-11-23T09:15:02.000123Z","event":"note","message":"..."} and a newline.
std::string JsonNote(std::string_view message);

// "[########............]", `width` columns inside the brackets. done <= total; an empty bar when
// total is 0.
std::string ProgressBar(double done, double total, size_t width);
// Of `widest` columns where the progress line has room for it, of a quarter of that line at most.
std::string ProgressBar(double done, double total, size_t widest, const Console& console);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CONSOLE_H_
