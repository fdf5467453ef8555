// SPDX-License-Identifier: Apache-2.0
// `reprise tune`: finds out what a device should choose. What can be tuned has a file of its own,
// cli_tune_<name>.cc.
#include "tools/cli.h"

namespace reprise::tools {
namespace {

constexpr char kTuneExamples[] =
    "Examples:\n"
    "  reprise tune attention --device cuda --out tree.json --journal tune.jsonl\n"
    "  reprise tune linear --device cuda --preset llama-3.1-8b --out table.json\n"
    "\n"
    "`reprise tune attention --help` says what it measures, and so does the other.";

}  // namespace

Command AddTuneCommand(CLI::App* root) {
  CLI::App* app = root->add_subcommand("tune", "Find out what a device should choose");
  app->footer(kTuneExamples);
  return CommandOf(app, {AddTuneAttentionCommand(app), AddTuneLinearCommand(app)});
}

}  // namespace reprise::tools
