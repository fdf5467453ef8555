// SPDX-License-Identifier: Apache-2.0
// HelpFormatter: help text that fits the terminal.
#ifndef REPRISE_TOOLS_HELP_H_
#define REPRISE_TOOLS_HELP_H_

#include <cstddef>
#include <string>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"

namespace reprise::tools {

// Descriptions are broken at words, beside the names where there is room for both. Of a footer,
// lines that begin with two spaces are shell commands, which are broken between words and end in
// " \" there; other lines are paragraphs.
class HelpFormatter : public CLI::Formatter {
 public:
  // kNoWidth: for 80 columns, as most terminals have.
  explicit HelpFormatter(size_t width);

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* app) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string Entry(const std::string& name, const std::string& description) const;
  const size_t width_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_HELP_H_
