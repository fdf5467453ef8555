// SPDX-License-Identifier: Apache-2.0
// `reprise completion` and `reprise man`: what the program says of its own command line, for shells
// and for man.
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/cli.h"
#include "tools/completion.h"
#include "tools/man_page.h"

namespace reprise::tools {
namespace {

constexpr char kCompletionExamples[] =
    "Examples:\n"
    "  reprise completion bash > ~/.local/share/bash-completion/completions/reprise\n"
    "  reprise completion zsh > ~/.zfunc/_reprise\n"
    "  reprise completion fish > ~/.config/fish/completions/reprise.fish\n"
    "\n"
    "An installation brings these files, and bash, zsh and fish find them.";

constexpr char kManExamples[] =
    "Examples:\n"
    "  reprise man > reprise.1\n"
    "\n"
    "`man -l reprise.1` shows it; an installation brings it.";

absl::StatusOr<Shell> ParseShell(std::string_view text) {
  if (text == "bash") return Shell::kBash;
  if (text == "zsh") return Shell::kZsh;
  if (text == "fish") return Shell::kFish;
  return absl::InvalidArgumentError(
      absl::StrCat("shell: got \"", std::string(text), "\", allowed: bash, zsh, fish"));
}

}  // namespace

Command AddCompletionCommand(CLI::App* root) {
  auto shell = std::make_shared<Shell>();
  CLI::App* app = root->add_subcommand("completion", "Print a script that completes commands");
  app->footer(kCompletionExamples);
  AddOption(app, "SHELL", shell.get(), ParseShell, "bash|zsh|fish", "", "That it is for")
      ->required();
  return {app, [root, shell](const Invocation& invocation) {
            invocation.console->Print(CompletionScript(*root, *shell));
            return absl::OkStatus();
          }};
}

Command AddManCommand(CLI::App* root) {
  CLI::App* app = root->add_subcommand("man", "Print the manual page");
  app->footer(kManExamples);
  return {app, [root](const Invocation& invocation) {
            invocation.console->Print(ManPage(*root));
            return absl::OkStatus();
          }};
}

}  // namespace reprise::tools
