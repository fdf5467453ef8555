// SPDX-License-Identifier: Apache-2.0
// Aligned plain-text tables for a terminal. Text in, text out; prints nothing itself.
#ifndef REPRISE_TOOLS_TABLE_H_
#define REPRISE_TOOLS_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "tools/text_width.h"

namespace reprise::tools {

// The first column is left-aligned, all others right-aligned, two spaces between; no line ends in
// spaces.
//
//   Table table({"graph", "replays", "share"});
//   table.AddRow({"decode/8", "120", "93.0 %"});
//   std::fputs(table.ToString().c_str(), stdout);
//
// A table that is too wide for its terminal keeps every cell: it is cut into tables below each
// other, which repeat the key columns; where not even the keys and one more column fit, each row
// becomes a list. Free text is broken at its words.
class Table {
 public:
  // An empty header prints no header line (pairs of name and value).
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  // Fewer cells than columns are filled with empty ones.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Left-aligns every column (names and free text).
  void AlignLeft() { align_left_ = true; }
  // How many columns, from the left, say what a row is about. One, unless set.
  void SetKeys(size_t count) { num_keys_ = count; }
  bool empty() const { return rows_.empty(); }

  // Lines that end in newlines: header, a rule of dashes under it, rows. `width`: columns to fit
  // into.
  std::string ToString(size_t width = kNoWidth) const;

 private:
  using Cells = std::vector<std::string>;
  std::vector<size_t> Widths() const;
  std::string Aligned(const std::vector<size_t>& columns, const std::vector<size_t>& widths) const;
  std::string Folded(const std::vector<size_t>& widths, size_t width) const;
  std::string Stacked(const std::vector<size_t>& widths, size_t width) const;
  std::string Listed(size_t width) const;

  Cells header_;
  std::vector<Cells> rows_;
  bool align_left_ = false;
  size_t num_keys_ = 1;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TABLE_H_
