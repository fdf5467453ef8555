// SPDX-License-Identifier: Apache-2.0
#include "tools/help.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/text_width.h"

namespace reprise::tools {
namespace {

constexpr size_t kUsualWidth = 80;
constexpr size_t kMostWidth = 100;  // longer lines are hard to read
// Where descriptions begin; on a terminal with less room beside that, below the names.
constexpr size_t kDescriptionColumn = 34;
constexpr size_t kLeastDescription = 30;
constexpr size_t kNarrowIndent = 4;
constexpr std::string_view kContinued = " \\";

// Between quotes there is no break.
std::vector<std::string> ShellWords(std::string_view command) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : command) {
    if (c == '"') quoted = !quoted;
    if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string WrapCommand(std::string_view command, size_t width) {
  std::string out;
  std::string line = "  ";
  const std::vector<std::string> words = ShellWords(command);
  for (size_t i = 0; i < words.size(); ++i) {
    const bool first = line.find_first_not_of(' ') == std::string::npos;
    const size_t end = i + 1 < words.size() ? kContinued.size() : 0;
    if (!first && DisplayWidth(line) + 1 + DisplayWidth(words[i]) + end > width) {
      out += line + std::string(kContinued) + "\n";
      line = "      " + words[i];
      continue;
    }
    line += (first ? "" : " ") + words[i];
  }
  return out + line + "\n";
}

}  // namespace

HelpFormatter::HelpFormatter(size_t width)
    : width_(width == kNoWidth ? kUsualWidth : std::min(width, kMostWidth)) {}

// Groups of options come with two blank lines between them.
std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  return absl::StrReplaceAll(Formatter::make_help(app, std::move(name), mode),
                             {{"\n\n\n", "\n\n"}});
}

std::string HelpFormatter::Entry(const std::string& name, const std::string& description) const {
  if (width_ < kDescriptionColumn + kLeastDescription) {
    return "  " + Paragraph(name, width_ - 2, kNarrowIndent) + std::string(kNarrowIndent, ' ') +
           Paragraph(description, width_, kNarrowIndent);
  }
  const std::string head = "  " + name;
  const std::string text = Paragraph(description, width_, kDescriptionColumn);
  if (head.size() + 2 > kDescriptionColumn) {
    return head + "\n" + std::string(kDescriptionColumn, ' ') + text;
  }
  return head + std::string(kDescriptionColumn - head.size(), ' ') + text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return Entry(make_option_name(option, is_positional) + make_option_opts(option),
               make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* app) const {
  return Entry(app->get_display_name(true), app->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return Paragraph(app->get_description(), width_);
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = Formatter::make_usage(app, std::move(name));
  while (usage.ends_with('\n')) usage.pop_back();
  return Paragraph(usage, width_, kNarrowIndent);
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(app->get_footer(), '\n')) {
    const std::string_view text(line.data(), line.size());
    out += text.starts_with("  ") ? WrapCommand(text.substr(2), width_) : Paragraph(text, width_);
  }
  return out;
}

}  // namespace reprise::tools
