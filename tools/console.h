// SPDX-License-Identifier: Apache-2.0
// Console: text on stdout and, where stderr is a terminal, one progress line on stderr that is
// redrawn in place. Where it is not, there is no progress line: logs get facts, not animation. One
// thread.
#ifndef REPRISE_TOOLS_CONSOLE_H_
#define REPRISE_TOOLS_CONSOLE_H_

#include <chrono>
#include <string>
#include <string_view>

namespace reprise::tools {

class Console {
 public:
  Console();
  // Clears the progress line.
  ~Console() { ClearProgress(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // To stdout at once, as it is. A progress line steps aside.
  void Print(std::string_view text);
  // To stderr, one line.
  void Note(std::string_view line);
  // Redraws the progress line, at most ten times a second unless `now`; longer lines are cut to the
  // terminal's width.
  void Progress(const std::string& line, bool now = false);
  void ClearProgress();
  bool has_progress() const { return stderr_is_terminal_; }

 private:
  bool stderr_is_terminal_;
  bool stdout_is_terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_draw_;
};

// "[########............]", `width` columns inside the brackets. done <= total; an empty bar when
// total is 0.
std::string ProgressBar(double done, double total, int width);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CONSOLE_H_
