// SPDX-License-Identifier: Apache-2.0
#include "tools/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace reprise::tools {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval(100);

size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Console::Console()
    : stderr_is_terminal_(isatty(STDERR_FILENO) != 0),
      stdout_is_terminal_(isatty(STDOUT_FILENO) != 0) {}

void Console::Print(std::string_view text) {
  if (text.empty()) return;
  if (stdout_is_terminal_) ClearProgress();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Console::Note(std::string_view line) {
  ClearProgress();
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void Console::Progress(const std::string& line, bool now) {
  if (!stderr_is_terminal_) return;
  const auto time = std::chrono::steady_clock::now();
  if (!now && drawn_ && time - last_draw_ < kRedrawInterval) return;
  last_draw_ = time;
  drawn_ = true;
  const std::string cut = line.substr(0, TerminalWidth() - 1);
  std::fprintf(stderr, "\r\x1b[K%s", cut.c_str());
  std::fflush(stderr);
}

void Console::ClearProgress() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

std::string ProgressBar(double done, double total, int width) {
  const double share = total <= 0 ? 0.0 : std::clamp(done / total, 0.0, 1.0);
  const int filled = static_cast<int>(share * width);
  return absl::StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                      std::string(static_cast<size_t>(width - filled), '.'), "]");
}

}  // namespace reprise::tools
