// SPDX-License-Identifier: Apache-2.0
#include "tools/table.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"

namespace reprise::tools {
namespace {

constexpr size_t kGap = 2;  // spaces between columns
// Free text that is left less room than this starts on a line of its own.
constexpr size_t kLeastText = 16;

size_t TotalWidth(std::span<const size_t> widths) {
  if (widths.empty()) return 0;
  return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
}

const std::string& CellAt(const std::vector<std::string>& cells, size_t column) {
  static const std::string kEmpty;
  return column < cells.size() ? cells[column] : kEmpty;
}

void AppendLine(const std::vector<std::string>& cells, const std::vector<size_t>& columns,
                const std::vector<size_t>& widths, bool align_left, std::string* out) {
  std::string line;
  for (const size_t column : columns) {
    const std::string& cell = CellAt(cells, column);
    const std::string padding(widths[column] - DisplayWidth(cell), ' ');
    if (!line.empty()) line.append(kGap, ' ');
    line += (column == 0 || align_left) ? cell + padding : padding + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  *out += line + "\n";
}

}  // namespace

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths;
  const auto widen = [&widths](const Cells& cells) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i)
      widths[i] = std::max(widths[i], DisplayWidth(cells[i]));
  };
  widen(header_);
  for (const Cells& row : rows_) widen(row);
  return widths;
}

std::string Table::ToString(size_t width) const {
  const std::vector<size_t> widths = Widths();
  if (TotalWidth(widths) > width) {
    if (align_left_ && header_.empty()) return Folded(widths, width);
    const auto keys = std::span(widths).first(std::min(num_keys_, widths.size()));
    const auto others = std::span(widths).subspan(keys.size());
    const size_t widest = others.empty() ? 0 : *std::max_element(others.begin(), others.end());
    const size_t least = keys.empty() ? widest : TotalWidth(keys) + kGap + widest;
    return least <= width ? Stacked(widths, width) : Listed(width);
  }
  std::vector<size_t> all(widths.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return Aligned(all, widths);
}

std::string Table::Aligned(const std::vector<size_t>& columns,
                           const std::vector<size_t>& widths) const {
  std::string out;
  if (!header_.empty()) {
    AppendLine(header_, columns, widths, align_left_, &out);
    Cells rule;
    for (const size_t width : widths) rule.emplace_back(width, '-');
    AppendLine(rule, columns, widths, align_left_, &out);
  }
  for (const Cells& row : rows_) AppendLine(row, columns, widths, align_left_, &out);
  return out;
}

// The last column is broken at its words.
std::string Table::Folded(const std::vector<size_t>& widths, size_t width) const {
  const size_t last = widths.size() - 1;
  const size_t indent = TotalWidth(std::span(widths).first(last)) + kGap;
  std::string out;
  for (const Cells& row : rows_) {
    std::string head;
    for (size_t column = 0; column < last; ++column) {
      const std::string& cell = CellAt(row, column);
      head += cell + std::string(widths[column] - DisplayWidth(cell) + kGap, ' ');
    }
    if (indent + kLeastText <= width) {
      out += head + Paragraph(CellAt(row, last), width, indent);
    } else {
      head.erase(head.find_last_not_of(' ') + 1);
      out += absl::StrCat(head, "\n", std::string(kGap, ' '),
                          Paragraph(CellAt(row, last), width, kGap));
    }
  }
  return out;
}

// As many columns side by side as fit, and the rest below them.
std::string Table::Stacked(const std::vector<size_t>& widths, size_t width) const {
  std::string out;
  const size_t num_keys = std::min(num_keys_, widths.size());
  for (size_t next = num_keys; next < widths.size();) {
    std::vector<size_t> columns(num_keys);
    std::iota(columns.begin(), columns.end(), size_t{0});
    size_t taken = TotalWidth(std::span(widths).first(num_keys));
    while (next < widths.size()) {
      const size_t wider = taken + widths[next] + (columns.empty() ? 0 : kGap);
      if (wider > width) break;
      taken = wider;
      columns.push_back(next++);
    }
    if (!out.empty()) out += "\n";
    out += Aligned(columns, widths);
  }
  return out;
}

// Every row as its keys and a list of pairs.
std::string Table::Listed(size_t width) const {
  std::string out;
  if (!header_.empty() && num_keys_ == 1) out += Paragraph(absl::StrCat(header_[0], ":"), width);
  for (const Cells& row : rows_) {
    std::string title;
    for (size_t key = 0; key < std::min(num_keys_, row.size()); ++key) {
      if (num_keys_ > 1) absl::StrAppend(&title, key > 0 ? ", " : "", CellAt(header_, key), " ");
      title += row[key];
    }
    if (!title.empty()) out += Paragraph(title, width);
    const auto pairs = [&](std::string_view indent) {
      Table list({});
      for (size_t column = num_keys_; column < row.size(); ++column) {
        list.AddRow({absl::StrCat(std::string(indent), CellAt(header_, column)), row[column]});
      }
      return list;
    };
    const Table indented = pairs("  ");
    out += TotalWidth(indented.Widths()) <= width ? indented.ToString() : pairs("").ToString();
  }
  return out;
}

}  // namespace reprise::tools
