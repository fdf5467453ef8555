// SPDX-License-Identifier: Apache-2.0
// The command line of the `reprise` program: one subcommand per file cli_<name>.cc, and what they
// have in common. main() does no more than call RunCommandLine (command_line.h).
//
// Exit codes: 0 the command did what was asked; 1 it could not (missing file, busy socket, lost
// server, device fault, a stdout that takes nothing); 2 the command line itself is wrong; 3 it did,
// and what it measured is beyond a bound that it was given; 128 + n: signal n stopped it.
#ifndef REPRISE_TOOLS_CLI_H_
#define REPRISE_TOOLS_CLI_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/status/status.h"
#include "tools/console.h"

namespace reprise::tools {

enum ExitCode : int { kExitOk = 0, kExitFailure = 1, kExitUsage = 2, kExitBeyondBound = 3 };

// Options that are each right but wrong together. Reported like any other usage error.
inline absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload("reprise/usage", absl::Cord("1"));
  return status;
}
inline bool IsUsageError(const absl::Status& status) {
  return status.GetPayload("reprise/usage").has_value();
}

// What a command returns that has measured all that was asked, and found it beyond a bound: not a
// failure of the run, so that a pipeline can tell a regression from a run that says nothing.
inline absl::Status BeyondBoundError(const std::string& message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload("reprise/bound", absl::Cord("1"));
  return status;
}
inline bool IsBeyondBoundError(const absl::Status& status) {
  return status.GetPayload("reprise/bound").has_value();
}

// What a command returns that a signal stopped.
absl::Status InterruptedError(int signal);
inline int ExitCodeOfSignal(int signal) { return 128 + signal; }

// How the program was started.
struct Invocation {
  Console* console = nullptr;
  std::vector<std::string> argv;
  std::string commit;  // that the program was built from; "" where that is not known
};

// A subcommand: its options, and what runs once they are parsed. It may have subcommands of its
// own, whose options are then asked for by their names together ("bench attention").
struct Command {
  CLI::App* app = nullptr;
  std::function<absl::Status(const Invocation&)> run;
};

// A command that has subcommands alone: runs the one that was named, else shows its help.
Command CommandOf(CLI::App* app, std::vector<Command> subcommands);

// The usage error of an option whose value was refused: `status` says got and allowed. What it says
// it is about, the option's name says already.
CLI::ValidationError OptionError(const std::string& option, const absl::Status& status);

// Each adds its subcommand to `root`.
Command AddServeCommand(CLI::App* root);
Command AddRunCommand(CLI::App* root);
Command AddSchedCommand(CLI::App* root);
Command AddHealthCommand(CLI::App* root);
Command AddTopCommand(CLI::App* root);
Command AddSessionsCommand(CLI::App* root);
Command AddReloadCommand(CLI::App* root);
Command AddTreeCommand(CLI::App* root);
Command AddReplayCommand(CLI::App* root);
Command AddProfileCommand(CLI::App* root);
Command AddReportCommand(CLI::App* root);
Command AddCompareCommand(CLI::App* root);
Command AddAdviseCommand(CLI::App* root);
Command AddCheckCommand(CLI::App* root);
Command AddGraphCommand(CLI::App* root);
Command AddBenchCommand(CLI::App* root);
Command AddTuneCommand(CLI::App* root);
// These two tell of `root` itself.
Command AddCompletionCommand(CLI::App* root);
Command AddManCommand(CLI::App* root);

// What can be timed: each adds its subcommand to `bench`.
Command AddBenchAttentionCommand(CLI::App* bench);
Command AddBenchLinearCommand(CLI::App* bench);
Command AddBenchStepCommand(CLI::App* bench);
// What can be tuned: each adds its subcommand to `tune`.
Command AddTuneAttentionCommand(CLI::App* tune);
Command AddTuneLinearCommand(CLI::App* tune);

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
        if (!parsed.ok()) throw OptionError(name, parsed.status());
        *value = static_cast<T>(*std::move(parsed));
      },
      description);
  option->type_name(type);
  if (!shown_default.empty()) option->default_str(shown_default);
  return option;
}

// Puts the options that have no heading in `app`'s help yet under `heading`.
void NameOptionGroup(CLI::App* app, const std::string& heading);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CLI_H_
