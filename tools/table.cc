// SPDX-License-Identifier: Apache-2.0
#include "tools/table.h"

#include <algorithm>

namespace reprise::tools {
namespace {

void AppendLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                bool align_left, std::string* out) {
  std::string line;
  for (size_t column = 0; column < widths.size(); ++column) {
    const std::string cell = column < cells.size() ? cells[column] : std::string();
    const std::string padding(widths[column] - DisplayWidth(cell), ' ');
    if (column > 0) line += "  ";
    line += (column == 0 || align_left) ? cell + padding : padding + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  *out += line + "\n";
}

}  // namespace

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  const auto widen = [&widths](const std::vector<std::string>& cells) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i)
      widths[i] = std::max(widths[i], DisplayWidth(cells[i]));
  };
  widen(header_);
  for (const auto& row : rows_) widen(row);

  std::string out;
  if (!header_.empty()) {
    AppendLine(header_, widths, align_left_, &out);
    std::vector<std::string> rule;
    for (size_t width : widths) rule.emplace_back(width, '-');
    AppendLine(rule, widths, align_left_, &out);
  }
  for (const auto& row : rows_) AppendLine(row, widths, align_left_, &out);
  return out;
}

}  // namespace reprise::tools
