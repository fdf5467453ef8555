// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/screen.h"

#include "absl/strings/escaping.h"

namespace reprise::testing {
namespace {

constexpr std::string_view kEraseToEnd = "\x1b[K";

std::string Joined(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += cell;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// Bytes of the character that `text` begins with.
size_t CharacterBytes(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) ++bytes;
  return bytes;
}

class Painter {
 public:
  explicit Painter(size_t columns) : columns_(columns) { NewLine(); }

  void Paint(std::string_view output) {
    while (!output.empty()) output.remove_prefix(Take(output));
  }

  Screen Finish() {
    for (const auto& cells : cells_) screen_.lines.push_back(Joined(cells));
    return std::move(screen_);
  }

 private:
  // Bytes taken.
  size_t Take(std::string_view output) {
    if (output.starts_with(kEraseToEnd)) {
      cells_.back().resize(std::min(cells_.back().size(), column_));
      return kEraseToEnd.size();
    }
    if (output[0] == '\r') {
      column_ = 0;
    } else if (output[0] == '\n') {
      const size_t column = column_;
      NewLine();
      column_ = column;  // a newline alone goes straight down
    } else if (static_cast<unsigned char>(output[0]) < 0x20 || output[0] == 0x7F) {
      screen_.unknown += absl::CHexEscape(std::string(1, output[0]));
    } else {
      const size_t bytes = CharacterBytes(output);
      Put(std::string(output.substr(0, bytes)));
      return bytes;
    }
    return 1;
  }

  // A character at the right edge leaves the cursor there; the next one goes to a new line.
  void Put(std::string character) {
    if (column_ == columns_) {
      ++screen_.num_overflows;
      screen_.continues.back() = true;
      NewLine();
    }
    std::vector<std::string>& line = cells_.back();
    if (line.size() <= column_) line.resize(column_ + 1, " ");
    line[column_++] = std::move(character);
  }

  void NewLine() {
    cells_.emplace_back();
    screen_.continues.push_back(false);
    column_ = 0;
  }

  const size_t columns_;
  std::vector<std::vector<std::string>> cells_;
  size_t column_ = 0;
  Screen screen_;
};

}  // namespace

std::string Screen::text() const {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string Screen::unbroken_text() const {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) text += lines[i] + (continues[i] ? "" : "\n");
  return text;
}

Screen ShownOn(size_t columns, std::string_view output) {
  Painter painter(columns);
  painter.Paint(output);
  return painter.Finish();
}

}  // namespace reprise::testing
