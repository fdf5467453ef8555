// SPDX-License-Identifier: Apache-2.0
#include "tools/cli.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/device.h"
#include "tools/command_line.h"
#include "tools/help.h"
#include "tools/outputs.h"
#include "tools/signals.h"
#include "tools/suggestion.h"

namespace reprise::tools {
namespace {

constexpr char kDescription[] =
    "Reprise: a graph-replay runtime for LLM decode serving. Every step is one replay of a graph "
    "recorded once.";

constexpr char kProgramExamples[] =
    "Examples:\n"
    "  reprise serve --model examples/byte-llama\n"
    "  reprise sched --demo\n"
    "  reprise run --model examples/byte-llama --prompt \"You may copy and distribute\"\n"
    "  reprise check examples/byte-llama\n"
    "  reprise health --wait 60s\n"
    "  reprise top\n"
    "  reprise sessions list\n"
    "  reprise tree show\n"
    "  reprise replay recordings/*.record\n"
    "  reprise profile --preset llama-3.1-8b --rows 1,8,64 --contexts 128,8k\n"
    "  reprise compare before.json after.json\n"
    "  reprise graph list --model examples/byte-llama\n"
    "  reprise bench attention --rows 1,8 --contexts 128,1k\n"
    "  reprise tune attention --device cuda --out tree.json --journal tune.jsonl\n"
    "  reprise tune linear --device cuda --preset llama-3.1-8b --out table.json\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done, and what was measured is beyond a bound "
    "(`profile --assert`, `compare`, `check --reference`), 128 + n ended by signal n. `reprise "
    "help COMMAND` or "
    "`reprise COMMAND --help` says more.";

constexpr std::string_view kSignalPayload = "reprise/signal";

std::string Version(const std::string& commit) {
  std::vector<std::string> devices;
  for (runtime::DeviceKind kind : runtime::CompiledDeviceKinds()) {
    devices.emplace_back(runtime::NameOf(kind));
  }
  return absl::StrCat("reprise ", REPRISE_VERSION,
                      " (api reprise.v1; devices: ", absl::StrJoin(devices, ", "),
                      commit.empty() ? "" : "; commit ", commit, ")");
}

// CLI11 words some errors over several lines; ours are one.
std::string OneLine(std::string_view text) {
  std::string line;
  for (char c : text) line += c == '\n' ? ' ' : c;
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

// "reprise bench attention".
std::string NameOfApp(const CLI::App* app) {
  const CLI::App* parent = app->get_parent();
  return parent == nullptr ? "reprise" : absl::StrCat(NameOfApp(parent), " ", app->get_name());
}

// The subcommand that was chosen: of a command with subcommands of its own, the innermost.
const CLI::App* ChosenApp(const CLI::App* app) {
  const std::vector<CLI::App*> parsed = app->get_subcommands();
  return parsed.empty() ? app : ChosenApp(parsed.back());
}

std::string NameOfCommand(const Command* command) {
  return command == nullptr ? "reprise" : NameOfApp(ChosenApp(command->app));
}

std::vector<std::string> NamesOf(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.app->get_name());
  return names;
}

std::vector<std::string> OptionsOf(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The app itself, and all its subcommands'.
std::vector<const CLI::App*> AppsOf(const CLI::App* app) {
  std::vector<const CLI::App*> apps = {app};
  for (const CLI::App* sub : app->get_subcommands(nullptr)) {
    const std::vector<const CLI::App*> more = AppsOf(sub);
    apps.insert(apps.end(), more.begin(), more.end());
  }
  return apps;
}

const Command* Chosen(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->parsed()) return &command;
  }
  return nullptr;
}

int ReportError(const Command* command, std::string_view message, Console* console) {
  console->Note(absl::StrCat(NameOfCommand(command), ": ", OneLine(message)));
  return kExitFailure;
}

int ReportUsage(const Command* command, std::string_view message, Console* console) {
  const std::string name = NameOfCommand(command);
  console->Note(absl::StrCat(name, ": ", OneLine(message), " (see ", name, " --help)"));
  return kExitUsage;
}

// `names`: of the commands that there are in its place.
int ReportUnknownName(const Command* command, const std::string& typed,
                      const std::vector<std::string>& names, Console* console) {
  const std::string near = Suggestion(typed, names);
  return ReportUsage(
      command,
      absl::StrCat("unknown command \"", typed, "\"",
                   near.empty() ? "" : absl::StrCat("; did you mean \"", near, "\"?"),
                   near.empty() ? ", " : " ", "allowed: ", absl::StrJoin(names, ", ")),
      console);
}

int ReportUnknownCommand(const std::string& typed, const std::vector<Command>& commands,
                         Console* console) {
  std::vector<std::string> names = NamesOf(commands);
  names.emplace_back("help");
  return ReportUnknownName(nullptr, typed, names, console);
}

// What to try instead of an option that `command` has not.
std::string OptionHint(const std::string& typed, const Command& command,
                       const std::vector<Command>& commands) {
  const std::string name = typed.substr(0, typed.find('='));
  if (!name.starts_with("-")) return "";
  const std::string near = Suggestion(name, OptionsOf(ChosenApp(command.app)));
  if (!near.empty()) return absl::StrCat("; did you mean \"", near, "\"?");
  for (const Command& other : commands) {
    for (const CLI::App* app : AppsOf(other.app)) {
      for (const std::string& option : OptionsOf(app)) {
        if (option == name) return absl::StrCat("; ", NameOfApp(app), " has it");
      }
    }
  }
  return "";
}

// Arguments that nothing takes: CLI11 lists them backwards and mixes values with names.
int ReportUnknown(const CLI::App& root, const std::vector<Command>& commands, Console* console) {
  const Command* command = Chosen(commands);
  if (command == nullptr) return ReportUnknownCommand(root.remaining().front(), commands, console);
  const std::vector<std::string> rest = root.remaining(/*recurse=*/true);
  std::string unknown = rest.front();
  for (const std::string& argument : rest) {
    if (argument.starts_with("-") && !unknown.starts_with("-")) unknown = argument;
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : ChosenApp(command->app)->get_subcommands(nullptr))
    names.push_back(sub->get_name());
  if (!names.empty() && !unknown.starts_with("-"))
    return ReportUnknownName(command, unknown, names, console);
  return ReportUsage(
      command,
      absl::StrCat("unknown argument \"", unknown, "\"", OptionHint(unknown, *command, commands)),
      console);
}

int Run(const Command& command, const Invocation& invocation) {
  absl::Status status = CheckOutputsOf(*ChosenApp(command.app));
  if (status.ok()) status = command.run(invocation);
  // Text that nobody could read is not what was asked for.
  if (status.ok() || IsBeyondBoundError(status)) {
    const absl::Status written = invocation.console->status();
    if (!written.ok()) status = written;
  }
  if (status.ok()) return kExitOk;
  invocation.console->EndLine();
  const std::string message(status.message());
  if (IsUsageError(status)) return ReportUsage(&command, message, invocation.console);
  ReportError(&command, message, invocation.console);
  const auto signal = status.GetPayload(std::string(kSignalPayload));
  int number = 0;
  if (signal && absl::SimpleAtoi(std::string(*signal), &number)) return ExitCodeOfSignal(number);
  return IsBeyondBoundError(status) ? kExitBeyondBound : kExitFailure;
}

int ParseAndRun(CLI::App* root, const std::vector<Command>& commands,
                const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.argv;
  if (arguments.size() > 1 && arguments[1] == "help") {
    // Other words for --help, which CLI11 grants before it looks for the command.
    const std::vector<std::string> names = NamesOf(commands);
    if (arguments.size() > 2 && !arguments[2].starts_with("-") &&
        std::count(names.begin(), names.end(), arguments[2]) == 0) {
      return ReportUnknownCommand(arguments[2], commands, invocation.console);
    }
    arguments.erase(arguments.begin() + 1);
    arguments.emplace_back("--help");
  }
  try {
    std::reverse(arguments.begin(), arguments.end());
    arguments.pop_back();  // the program
    root->parse(std::move(arguments));
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    root->exit(help_or_version, text, text);
    invocation.console->Print(text.str());
    const absl::Status& printed = invocation.console->status();
    return printed.ok() ? kExitOk
                        : ReportError(nullptr, std::string(printed.message()), invocation.console);
  } catch (const CLI::ParseError& error) {
    if (!root->remaining(/*recurse=*/true).empty()) {
      return ReportUnknown(*root, commands, invocation.console);
    }
    return ReportUsage(Chosen(commands), error.what(), invocation.console);
  }
  return Run(*Chosen(commands), invocation);
}

}  // namespace

void NameOptionGroup(CLI::App* app, const std::string& heading) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_group() == "Options" && option != app->get_help_ptr()) option->group(heading);
  }
}

Command CommandOf(CLI::App* app, std::vector<Command> subcommands) {
  return {app, [app, subcommands = std::move(subcommands)](const Invocation& invocation) {
            for (const Command& command : subcommands)
              if (command.app->parsed()) return command.run(invocation);
            invocation.console->Print(app->help("reprise"));
            return absl::OkStatus();
          }};
}

absl::Status InterruptedError(int signal) {
  absl::Status status =
      absl::CancelledError(absl::StrCat("stopped by ", std::string(NameOfSignal(signal))));
  const std::string number = absl::StrCat(signal);
  // Of a view: clang 19 and g++ 12 have different names for what takes a string.
  status.SetPayload(std::string(kSignalPayload), absl::Cord(absl::string_view(number)));
  return status;
}

CLI::ValidationError OptionError(const std::string& option, const absl::Status& status) {
  std::string message(status.message());
  const size_t got = message.find(": got \"");
  if (got != std::string::npos && message.find('"') > got) message.erase(0, got + 2);
  return CLI::ValidationError(option, message);
}

int RunCommandLine(int argc, const char* const* argv, const std::string& commit) {
  Console console;
  CLI::App root(kDescription, "reprise");
  root.formatter(std::make_shared<HelpFormatter>(console.width()));
  root.footer(kProgramExamples);
  root.require_subcommand(1);
  root.set_version_flag("--version", Version(commit),
                        "Print the version and the kinds of devices that this build can use here");
  const std::vector<Command> commands = {
      AddServeCommand(&root),   AddSchedCommand(&root),  AddRunCommand(&root),
      AddHealthCommand(&root),  AddTopCommand(&root),    AddSessionsCommand(&root),
      AddReloadCommand(&root),  AddTreeCommand(&root),   AddReplayCommand(&root),
      AddProfileCommand(&root), AddReportCommand(&root), AddCompareCommand(&root),
      AddGraphCommand(&root),   AddAdviseCommand(&root), AddBenchCommand(&root),
      AddTuneCommand(&root),    AddCheckCommand(&root),  AddCompletionCommand(&root),
      AddManCommand(&root)};
  return ParseAndRun(&root, commands,
                     {.console = &console, .argv = {argv, argv + argc}, .commit = commit});
}

}  // namespace reprise::tools
