// SPDX-License-Identifier: Apache-2.0
// `reprise bench`: times one part of decoding alone. What can be timed has a file of its own,
// cli_bench_<name>.cc.
#include "tools/cli.h"

namespace reprise::tools {
namespace {

constexpr char kBenchExamples[] =
    "Examples:\n"
    "  reprise bench attention --rows 1,8 --contexts 128,1k\n"
    "  reprise bench linear --model examples/byte-llama --rows 1,8\n"
    "  reprise bench step --model examples/byte-llama --cells 1@512,8@512\n"
    "\n"
    "`reprise bench attention --help` says what it measures, and so do the others.";

}  // namespace

Command AddBenchCommand(CLI::App* root) {
  CLI::App* app = root->add_subcommand("bench", "Time one part of decoding alone");
  app->footer(kBenchExamples);
  return CommandOf(
      app, {AddBenchAttentionCommand(app), AddBenchLinearCommand(app), AddBenchStepCommand(app)});
}

}  // namespace reprise::tools
