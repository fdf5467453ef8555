// SPDX-License-Identifier: Apache-2.0
#include "tools/completion.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace reprise::tools {
namespace {

// What follows an option, or stands alone on the line.
struct Value {
  bool taken = false;  // there is one
  bool is_file = false;
  std::vector<std::string> words;  // the only ones there are, beside a file
};

struct OptionWords {
  std::vector<std::string> names;  // with their dashes
  std::string description;
  Value value;
};

struct Subcommand {
  std::string name;
  std::string description;
};

struct CommandWords {
  std::string name;  // "reprise bench attention"
  std::vector<Subcommand> subcommands;
  std::vector<OptionWords> options;
  Value operand;
};

Value ValueOf(const std::string& type) {
  Value value;
  value.taken = true;
  const std::vector<std::string> parts = absl::StrSplit(type, '|');
  constexpr std::array<std::string_view, 3> kFiles = {"FILE", "DIR", "PATH"};
  for (const std::string& part : parts) {
    if (std::find(kFiles.begin(), kFiles.end(), part) != kFiles.end()) value.is_file = true;
    const bool is_word =
        parts.size() > 1 && !part.empty() && std::none_of(part.begin(), part.end(), [](char c) {
          return (c >= 'A' && c <= 'Z') || c == ',' || c == '.';
        });
    if (is_word) value.words.push_back(part);
  }
  return value;
}

// An option that the line needs has no name but that of its place: a file where help names no type.
Value OperandOf(const CLI::Option& option) {
  Value value = ValueOf(option.get_type_name());
  if (option.get_type_name().empty()) value.is_file = true;
  return value;
}

void AddCommands(const CLI::App& app, const std::string& name, std::vector<CommandWords>* all) {
  CommandWords command;
  command.name = name;
  for (const CLI::App* sub : app.get_subcommands(nullptr))
    command.subcommands.push_back({sub->get_name(), sub->get_description()});
  // No command to CLI11: other words for --help.
  if (app.get_parent() == nullptr)
    command.subcommands.push_back({"help", "List a command's options"});
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.operand = OperandOf(*option);
      continue;
    }
    OptionWords words;
    words.description = option->get_description();
    for (const std::string& letter : option->get_snames()) words.names.push_back("-" + letter);
    for (const std::string& word : option->get_lnames()) words.names.push_back("--" + word);
    if (option->get_expected_min() > 0) words.value = ValueOf(option->get_type_name());
    command.options.push_back(std::move(words));
  }
  all->push_back(std::move(command));
  for (const CLI::App* sub : app.get_subcommands(nullptr))
    AddCommands(*sub, absl::StrCat(name, " ", sub->get_name()), all);
}

std::vector<CommandWords> CommandsOf(const CLI::App& root) {
  std::vector<CommandWords> commands;
  AddCommands(root, root.get_name(), &commands);
  return commands;
}

std::string NamesOf(const std::vector<Subcommand>& subcommands) {
  return absl::StrJoin(subcommands, " ", [](std::string* out, const Subcommand& subcommand) {
    out->append(subcommand.name);
  });
}

// The first sentence or part of one, for a list.
std::string Short(const std::string& text) {
  return text.substr(0, std::min(text.find(". "), text.find("; ")));
}

// A word that the shell takes as it stands.
std::string Quote(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Those but the program itself, quoted, which a line's words are compared with.
std::vector<std::string> QuotedNames(const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands)
    if (command.name.find(' ') != command.name.npos) names.push_back(Quote(command.name));
  return names;
}

// ---- bash ----

// What a line ends with is looked up by command, then by the option before it.
constexpr char kBashHead[] = R"(# Completion of reprise for bash, made by `reprise completion bash`.
_reprise() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command=reprise commands='' options='' words='' files='' i
  # --option=value is three words.
  if [[ $word == = ]]; then
    word=''
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${COMP_WORDS[i]}" in
      COMMANDS) command="$command ${COMP_WORDS[i]}" ;;
    esac
  done
  COMPREPLY=()
)";
constexpr char kBashTail[] = R"(  if [[ -n $files ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
  mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$commands $options $words" -- "$word")
}
complete -F _reprise reprise
)";

std::string BashValue(const Value& value) {
  return absl::StrCat("words=", Quote(absl::StrJoin(value.words, " ")),
                      " files=", value.is_file ? "yes" : "''");
}

std::string BashCommand(const CommandWords& command) {
  std::string text = absl::StrCat("    ", Quote(command.name), ")\n      case \"$before\" in\n");
  std::vector<std::string> options;
  for (const OptionWords& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (!option.value.taken) continue;
    absl::StrAppend(&text, "        ", absl::StrJoin(option.names, " | "), ") ",
                    BashValue(option.value), " ;;\n");
  }
  absl::StrAppend(&text, "        *)\n          commands=", Quote(NamesOf(command.subcommands)),
                  "\n");
  if (command.operand.taken)
    absl::StrAppend(&text, "          [[ $word == -* ]] || { ", BashValue(command.operand),
                    "; }\n");
  absl::StrAppend(&text, "          options=", Quote(absl::StrJoin(options, " ")),
                  "\n          ;;\n      esac\n      ;;\n");
  return text;
}

std::string BashScript(const std::vector<CommandWords>& commands) {
  std::string text =
      absl::StrReplaceAll(kBashHead, {{"COMMANDS", absl::StrJoin(QuotedNames(commands), " | ")}});
  text += "  case \"$command\" in\n";
  for (const CommandWords& command : commands) text += BashCommand(command);
  return absl::StrCat(text, "  esac\n", kBashTail);
}

// ---- zsh ----

constexpr char kZshHead[] = R"(#compdef reprise
# Completion of reprise for zsh, made by `reprise completion zsh`.
_reprise() {
  local command=reprise before=${words[CURRENT-1]} i
  local -a commands options choices
  local files=''
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command ${words[i]}" in
      (COMMANDS) command="$command ${words[i]}" ;;
    esac
  done
)";
constexpr char kZshTail[] = R"(  (( $#commands )) && _describe -t commands command commands
  (( $#choices )) && _describe -t values value choices
  [[ -n $files ]] && _files
  (( $#options )) && _describe -o -t options option options
}
_reprise "$@"
)";

// "name:description", where a colon of the name is behind a backslash.
std::string ZshEntry(const std::string& name, const std::string& description) {
  return Quote(absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", Short(description)));
}

std::string ZshValue(const Value& value) {
  return absl::StrCat("choices=(", absl::StrJoin(value.words, " "), ")",
                      value.is_file ? " files=yes" : "");
}

std::string ZshCommand(const CommandWords& command) {
  std::string text = absl::StrCat("    (", Quote(command.name), ")\n      case $before in\n");
  for (const OptionWords& option : command.options) {
    if (!option.value.taken) continue;
    absl::StrAppend(&text, "        (", absl::StrJoin(option.names, "|"), ") ",
                    ZshValue(option.value), " ;;\n");
  }
  text += "        (*)\n          commands=(";
  for (const Subcommand& sub : command.subcommands)
    absl::StrAppend(&text, "\n            ", ZshEntry(sub.name, sub.description));
  text += ")\n";
  if (command.operand.taken) absl::StrAppend(&text, "          ", ZshValue(command.operand), "\n");
  text += "          options=(";
  for (const OptionWords& option : command.options)
    for (const std::string& name : option.names)
      absl::StrAppend(&text, "\n            ", ZshEntry(name, option.description));
  return text + ") ;;\n      esac ;;\n";
}

std::string ZshScript(const std::vector<CommandWords>& commands) {
  std::string text =
      absl::StrReplaceAll(kZshHead, {{"COMMANDS", absl::StrJoin(QuotedNames(commands), "|")}});
  text += "  case $command in\n";
  for (const CommandWords& command : commands) text += ZshCommand(command);
  return absl::StrCat(text, "  esac\n", kZshTail);
}

// ---- fish ----

constexpr char kFishHead[] =
    R"(# Completion of reprise for fish, made by `reprise completion fish`.
function __reprise_command
    set -l command reprise
    for word in (commandline -opc)[2..-1]
        if contains -- "$command $word" COMMANDS
            set command "$command $word"
        end
    end
    test "$command" = "$argv[1]"
end
complete -c reprise -f
)";

std::string FishCommand(const CommandWords& command) {
  const std::string head =
      absl::StrCat("complete -c reprise -n ", Quote("__reprise_command " + Quote(command.name)));
  std::string text;
  for (const Subcommand& sub : command.subcommands) {
    absl::StrAppend(&text, head, " -a ", Quote(sub.name), " -d ", Quote(Short(sub.description)),
                    "\n");
  }
  if (command.operand.is_file) absl::StrAppend(&text, head, " -F\n");
  if (!command.operand.words.empty())
    absl::StrAppend(&text, head, " -a ", Quote(absl::StrJoin(command.operand.words, " ")), "\n");
  for (const OptionWords& option : command.options) {
    text += head;
    for (const std::string& name : option.names)
      absl::StrAppend(&text,
                      name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
    if (option.value.taken) text += option.value.is_file ? " -r -F" : " -x";
    if (!option.value.words.empty())
      absl::StrAppend(&text, " -a ", Quote(absl::StrJoin(option.value.words, " ")));
    absl::StrAppend(&text, " -d ", Quote(Short(option.description)), "\n");
  }
  return text;
}

std::string FishScript(const std::vector<CommandWords>& commands) {
  std::string text =
      absl::StrReplaceAll(kFishHead, {{"COMMANDS", absl::StrJoin(QuotedNames(commands), " ")}});
  for (const CommandWords& command : commands) text += FishCommand(command);
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& root, Shell shell) {
  const std::vector<CommandWords> commands = CommandsOf(root);
  switch (shell) {
    case Shell::kBash:
      return BashScript(commands);
    case Shell::kZsh:
      return ZshScript(commands);
    case Shell::kFish:
      return FishScript(commands);
  }
  return "";
}

}  // namespace reprise::tools
