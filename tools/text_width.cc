// SPDX-License-Identifier: Apache-2.0
#include "tools/text_width.h"

#include <algorithm>

namespace reprise::tools {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

size_t DisplayWidth(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

std::string_view CutToWidth(std::string_view text, size_t width) {
  size_t end = 0;
  for (size_t columns = 0; end < text.size(); ++end) {
    if (!IsContinuation(text[end]) && columns++ == width) break;
  }
  return text.substr(0, end);
}

std::vector<std::string> WrapWords(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  size_t columns = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t wide = DisplayWidth(word);
    if (columns > 0 && (wide > width || columns + 1 > width - wide)) {
      lines.emplace_back();
      columns = 0;
    }
    if (columns > 0) lines.back() += ' ';
    lines.back() += word;
    columns += wide + (columns > 0 ? 1 : 0);
  }
  return lines;
}

std::string Paragraph(std::string_view text, size_t width, size_t indent) {
  const size_t room = width == kNoWidth ? kNoWidth : width - std::min(width, indent);
  std::string out;
  for (const std::string& line : WrapWords(text, room)) {
    if (!out.empty()) out.append(indent, ' ');
    out += line + "\n";
  }
  return out;
}

}  // namespace reprise::tools
