// SPDX-License-Identifier: Apache-2.0
#include "tools/console.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "service/utc_time.h"

namespace reprise::tools {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval(100);

size_t TerminalWidth(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Console::Console()
    : stderr_is_terminal_(isatty(STDERR_FILENO) != 0),
      stdout_is_terminal_(isatty(STDOUT_FILENO) != 0) {}

void Console::Print(std::string_view text) {
  if (text.empty()) return;
  if (text_ == stderr ? stderr_is_terminal_ : stdout_is_terminal_) ClearProgress();
  Write(text, text_);
  line_open_ = !text.ends_with('\n');
}

void Console::EndLine() {
  if (line_open_) Print("\n");
}

void Console::PrintData(std::string_view data) { Write(data, stdout); }

// The first failure is kept: what follows it is its consequence.
void Console::Write(std::string_view bytes, std::FILE* file) {
  errno = 0;
  const size_t written = std::fwrite(bytes.data(), 1, bytes.size(), file);
  if (std::fflush(file) == 0 && written == bytes.size()) return;
  if (file != stdout || !status_.ok()) return;
  status_ = absl::UnavailableError(
      absl::StrCat("cannot write to stdout: ", std::generic_category().message(errno)));
}

void Console::Note(std::string_view line) {
  ClearProgress();
  if (json_notes_) return Write(JsonNote(line), stderr);
  if (stderr_is_terminal_ && (text_ == stderr || stdout_is_terminal_)) EndLine();
  Write(Paragraph(line, stderr_is_terminal_ ? TerminalWidth(STDERR_FILENO) : kNoWidth), stderr);
}

void Console::Progress(const std::string& line, bool now) {
  if (!stderr_is_terminal_) return;
  // A line of text that is still being written is not drawn over.
  if (line_open_ && (text_ == stderr || stdout_is_terminal_)) return;
  const auto time = std::chrono::steady_clock::now();
  if (!now && drawn_ && time - last_draw_ < kRedrawInterval) return;
  last_draw_ = time;
  drawn_ = true;
  const std::string cut(CutToWidth(line, progress_width()));
  std::fprintf(stderr, "\r\x1b[K%s", cut.c_str());
  std::fflush(stderr);
}

void Console::ClearProgress() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Console::ReserveStdout() { text_ = stderr; }

size_t Console::width() const {
  if (text_ == stderr) return stderr_is_terminal_ ? TerminalWidth(STDERR_FILENO) : kNoWidth;
  return stdout_is_terminal_ ? TerminalWidth(STDOUT_FILENO) : kNoWidth;
}

// One column is left for the cursor.
size_t Console::progress_width() const { return TerminalWidth(STDERR_FILENO) - 1; }

std::string JsonNote(std::string_view message) {
  const nlohmann::ordered_json note = {
      {"time", service::UtcText(service::UtcNowNs())}, {"event", "note"}, {"message", message}};
  return note.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ProgressBar(double done, double total, size_t width) {
  const double share = total <= 0 ? 0.0 : std::clamp(done / total, 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  return absl::StrCat("[", std::string(filled, '#'), std::string(width - filled, '.'), "]");
}

std::string ProgressBar(double done, double total, size_t widest, const Console& console) {
  return ProgressBar(done, total, std::min(widest, console.progress_width() / 4));
}

}  // namespace reprise::tools
