// SPDX-License-Identifier: Apache-2.0
#include "tools/cli.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/device.h"

namespace reprise::tools {
namespace {

constexpr char kDescription[] =
    "Reprise: a graph-replay runtime for LLM decode serving. Every step is one replay of a graph "
    "recorded once.";

constexpr char kExamples[] =
    R"(Examples:
  reprise serve --model examples/byte-llama
  reprise sched --demo
  reprise run --model examples/byte-llama --prompt "You may copy and distribute"
  reprise health --wait 60s
  reprise profile --preset llama-3.1-8b --rows 1,8,64 --contexts 128,8k

Exit codes: 0 done, 1 failed, 2 wrong usage. `reprise COMMAND --help` says more.)";

std::string Version() {
  std::vector<std::string> devices;
  for (runtime::DeviceKind kind : runtime::CompiledDeviceKinds()) {
    devices.emplace_back(runtime::NameOf(kind));
  }
  return absl::StrCat("reprise ", REPRISE_VERSION,
                      " (api reprise.v1; devices: ", absl::StrJoin(devices, ", "), ")");
}

// CLI11 words some errors over several lines; ours are one.
std::string OneLine(std::string_view text) {
  std::string line;
  for (char c : text) line += c == '\n' ? ' ' : c;
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

void PrintError(const std::string& where, std::string_view message) {
  std::fprintf(stderr, "%s: %s\n", where.c_str(), OneLine(message).c_str());
}

std::string NameOfCommand(const Command* command) {
  return command == nullptr ? "reprise" : absl::StrCat("reprise ", command->app->get_name());
}

const Command* Chosen(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->parsed()) return &command;
  }
  return nullptr;
}

int ReportUsage(const Command* command, std::string_view message) {
  const std::string name = NameOfCommand(command);
  PrintError(name, absl::StrCat(OneLine(message), " (see ", name, " --help)"));
  return kExitUsage;
}

// Arguments that nothing takes: CLI11 lists them backwards and mixes values with names.
int ReportUnknown(const CLI::App& root, const std::vector<Command>& commands) {
  const Command* command = Chosen(commands);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& known : commands) names.push_back(known.app->get_name());
    return ReportUsage(nullptr, absl::StrCat("unknown command \"", root.remaining().front(),
                                             "\", allowed: ", absl::StrJoin(names, ", ")));
  }
  const std::vector<std::string> rest = root.remaining(/*recurse=*/true);
  std::string unknown = rest.front();
  for (const std::string& argument : rest) {
    if (argument.starts_with("-") && !unknown.starts_with("-")) unknown = argument;
  }
  return ReportUsage(command, absl::StrCat("unknown argument \"", unknown, "\""));
}

int Run(const Command& command) {
  const absl::Status status = command.run();
  if (status.ok()) return kExitOk;
  const std::string message(status.message());
  if (IsUsageError(status)) return ReportUsage(&command, message);
  PrintError(NameOfCommand(&command), message);
  return kExitFailure;
}

}  // namespace

void NameOptionGroup(CLI::App* app, const std::string& heading) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_group() == "Options" && option != app->get_help_ptr()) option->group(heading);
  }
}

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App root(kDescription, "reprise");
  root.footer(kExamples);
  root.require_subcommand(1);
  root.get_formatter()->column_width(36);
  root.set_version_flag("--version", Version(),
                        "Print the version and the devices that this build knows");
  const std::vector<Command> commands = {AddServeCommand(&root), AddSchedCommand(&root),
                                         AddRunCommand(&root), AddHealthCommand(&root),
                                         AddProfileCommand(&root)};
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return root.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    if (!root.remaining(/*recurse=*/true).empty()) return ReportUnknown(root, commands);
    return ReportUsage(Chosen(commands), error.what());
  }
  return Run(*Chosen(commands));
}

}  // namespace reprise::tools
