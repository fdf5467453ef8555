// SPDX-License-Identifier: Apache-2.0
// Text in columns of a terminal: how wide it is, where to cut it, where to break it. Text in, text
// out.
#ifndef REPRISE_TOOLS_TEXT_WIDTH_H_
#define REPRISE_TOOLS_TEXT_WIDTH_H_

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::tools {

// The width of what is no terminal: lines are as long as they are.
inline constexpr size_t kNoWidth = std::numeric_limits<size_t>::max();

// Columns that `text` takes on a terminal: UTF-8 continuation bytes take none.
size_t DisplayWidth(std::string_view text);

// The longest beginning of `text` that takes at most `width` columns. Cuts at a character, not
// inside one.
std::string_view CutToWidth(std::string_view text, size_t width);

// `text` in lines of at most `width` columns, broken at spaces; a longer word is a line of its own.
// At least one line.
std::vector<std::string> WrapWords(std::string_view text, size_t width);

// The same as lines that end in newlines, those after the first behind `indent` spaces, which
// count.
std::string Paragraph(std::string_view text, size_t width, size_t indent = 0);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TEXT_WIDTH_H_
