// SPDX-License-Identifier: Apache-2.0
#include "tools/man_page.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/text_width.h"

namespace reprise::tools {
namespace {

constexpr char kIntroduction[] =
    R"(.SH NAME
reprise \- graph\-replay runtime for LLM decode serving
.SH SYNOPSIS
.B reprise
.I COMMAND
.RI [ OPTION " ...]"
.br
.B reprise help
.RI [ COMMAND ]
)";

constexpr char kEnd[] = R"(.SH FILES
.TP
.I /etc/reprise/serve.toml
Configuration of the service
.BR reprise.service .
.TP
.I /usr/share/doc/reprise
Documents: how to deploy it, the wire contract, formats of files.
)";

// Text as it is: nothing in it is a request or an escape.
std::string Escape(std::string_view text) {
  std::string out = absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                                        {{"\\", "\\e"}, {"-", "\\-"}});
  if (out.starts_with('.') || out.starts_with('\'')) out = "\\&" + out;
  return out;
}

std::string Bold(std::string_view text) { return absl::StrCat("\\fB", Escape(text), "\\fR"); }

// A paragraph's text, in lines of a usual length.
std::string Text(const std::string& text) {
  constexpr size_t kLineWidth = 72;
  std::string out;
  for (const absl::string_view line :
       absl::StrSplit(Paragraph(text, kLineWidth), '\n', absl::SkipEmpty()))
    absl::StrAppend(&out, Escape(std::string_view(line.data(), line.size())), "\n");
  return out;
}

// "Examples:", lines of shell commands, paragraphs; HelpFormatter shows the same.
std::string Footer(const std::string& footer) {
  std::string out;
  bool in_commands = false;
  for (const absl::string_view line : absl::StrSplit(footer, '\n', absl::SkipEmpty())) {
    const std::string_view text(line.data(), line.size());
    const bool is_command = text.starts_with("  ");
    if (is_command && !in_commands) out += ".PP\n.nf\n.RS\n";
    if (!is_command && in_commands) out += ".RE\n.fi\n";
    if (!is_command) out += ".PP\n";
    out += is_command ? Escape(text.substr(2)) + "\n" : Text(std::string(text));
    in_commands = is_command;
  }
  return in_commands ? out + ".RE\n.fi\n" : out;
}

// The formatter that --help has knows what stands behind an option's name.
class Entries : public CLI::Formatter {
 public:
  std::string Of(const CLI::Option& option) const {
    const bool positional = option.get_positional();
    return absl::StrCat(".TP\n", Bold(make_option_name(&option, positional)),
                        Escape(make_option_opts(&option)), "\n", Text(option.get_description()));
  }
};

// Options by the headings that --help has.
std::string Options(const CLI::App& app) {
  std::string out;
  const Entries entries;
  std::vector<std::string> groups = {"Positionals"};
  for (const std::string& group : app.get_groups()) groups.push_back(group);
  for (const std::string& group : groups) {
    std::string listed;
    for (const CLI::Option* option : app.get_options()) {
      const std::string& at = option->get_positional() ? groups.front() : option->get_group();
      if (at == group) listed += entries.Of(*option);
    }
    if (!listed.empty()) absl::StrAppend(&out, ".SS ", Escape(group), "\n", listed);
  }
  return out;
}

std::string CommandList(const CLI::App& app) {
  std::string out;
  for (const CLI::App* sub : app.get_subcommands(nullptr))
    absl::StrAppend(&out, ".TP\n", Bold(sub->get_name()), "\n", Text(sub->get_description()));
  return out;
}

// A section for every command.
std::string Sections(const CLI::App& app, const std::string& name) {
  std::string out;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    const std::string full = absl::StrCat(name, " ", sub->get_name());
    absl::StrAppend(&out, ".SH ", Escape(absl::AsciiStrToUpper(full)), "\n",
                    Text(sub->get_description() + "."), CommandList(*sub), Options(*sub),
                    Footer(sub->get_footer()), Sections(*sub, full));
  }
  return out;
}

}  // namespace

std::string ManPage(const CLI::App& root) {
  return absl::StrCat(
      ".\\\" SPDX-License-Identifier: Apache-2.0\n", ".\\\" Made by `reprise man`.\n",
      ".TH REPRISE 1 \"\" \"reprise ", REPRISE_VERSION, "\" \"User Commands\"\n", kIntroduction,
      ".SH DESCRIPTION\n", Text(root.get_description()), ".SH COMMANDS\n", CommandList(root),
      Footer(root.get_footer()), Options(root), Sections(root, root.get_name()), kEnd);
}

}  // namespace reprise::tools
