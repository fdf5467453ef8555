// SPDX-License-Identifier: Apache-2.0
// Aligned plain-text tables for a terminal. Text in, text out; prints nothing itself.
#ifndef REPRISE_TOOLS_TABLE_H_
#define REPRISE_TOOLS_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::tools {

// The first column is left-aligned, all others right-aligned, two spaces between; no line ends in
// spaces.
//
//   Table table({"graph", "replays", "share"});
//   table.AddRow({"decode/8", "120", "93.0 %"});
//   std::fputs(table.ToString().c_str(), stdout);
class Table {
 public:
  // An empty header prints no header line (pairs of name and value).
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  // Fewer cells than columns are filled with empty ones.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Left-aligns every column (names and free text).
  void AlignLeft() { align_left_ = true; }
  bool empty() const { return rows_.empty(); }

  // Lines that end in newlines: header, a rule of dashes under it, rows.
  std::string ToString() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  bool align_left_ = false;
};

// Columns that `text` takes on a terminal: UTF-8 continuation bytes take none.
size_t DisplayWidth(std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TABLE_H_
