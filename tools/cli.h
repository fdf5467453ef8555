// SPDX-License-Identifier: Apache-2.0
// The command line of the `reprise` program: one subcommand per file cli_<name>.cc, and what they
// have in common. main() does no more than call RunCommandLine.
//
// Exit codes: 0 the command did what was asked; 1 it could not (missing file, busy socket, lost
// server, device fault, interrupted); 2 the command line itself is wrong.
#ifndef REPRISE_TOOLS_CLI_H_
#define REPRISE_TOOLS_CLI_H_

#include <functional>
#include <string>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/status/status.h"

namespace reprise::tools {

enum ExitCode : int { kExitOk = 0, kExitFailure = 1, kExitUsage = 2 };

// Options that are each right but wrong together. Reported like any other usage error.
inline absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload("reprise/usage", absl::Cord("1"));
  return status;
}
inline bool IsUsageError(const absl::Status& status) {
  return status.GetPayload("reprise/usage").has_value();
}

// A subcommand: its options, and what runs once they are parsed.
struct Command {
  CLI::App* app = nullptr;
  std::function<absl::Status()> run;
};

// Each adds its subcommand to `root`.
Command AddServeCommand(CLI::App* root);
Command AddRunCommand(CLI::App* root);
Command AddSchedCommand(CLI::App* root);
Command AddHealthCommand(CLI::App* root);
Command AddProfileCommand(CLI::App* root);

// Adds an option whose text goes through `parse` (string_view to StatusOr of something that
// converts to T). A refusal becomes a usage error that names the option. `type` is what help calls
// the value, `shown_default` what it says is the default ("" for none).
template <typename T, typename Parse>
CLI::Option* AddOption(CLI::App* app, const std::string& name, T* value, Parse parse,
                       const std::string& type, const std::string& shown_default,
                       const std::string& description) {
  CLI::Option* option = app->add_option_function<std::string>(
      name,
      [name, value, parse](const std::string& text) {
        auto parsed = parse(text);
        if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.status().message()));
        *value = static_cast<T>(*std::move(parsed));
      },
      description);
  option->type_name(type);
  if (!shown_default.empty()) option->default_str(shown_default);
  return option;
}

// Puts the options that have no heading in `app`'s help yet under `heading`.
void NameOptionGroup(CLI::App* app, const std::string& heading);

// Parses, runs, reports: one line on stderr for whatever goes wrong. Returns the exit code.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CLI_H_
