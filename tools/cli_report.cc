// SPDX-License-Identifier: Apache-2.0
// `reprise report`: a file of `reprise profile` in other forms, without measuring again.
#include <memory>
#include <string>

#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/profile/export_flags.h"
#include "tools/profile/profile_file.h"

namespace reprise::tools {
namespace {

constexpr char kReportExamples[] =
    "Examples:\n"
    "  reprise report profile.json --html profile.html\n"
    "  reprise report profile.json --trace profile.trace.json --csv profile.csv\n"
    "  reprise report profile.json --markdown -\n"
    "\n"
    "docs/profile.md says what each form holds.";

struct ReportFlags {
  std::string file;
  ExportFlags exports;
};

absl::Status Run(const ReportFlags& flags, const Invocation& invocation) {
  if (!HasExports(flags.exports))
    return UsageError("got no form, allowed: --html, --trace, --csv or --markdown with a FILE");
  REPRISE_RETURN_IF_ERROR(PrepareExports(flags.exports, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const nlohmann::json profile, ReadProfile(flags.file));
  return WriteExports(flags.exports, profile, invocation.console);
}

}  // namespace

Command AddReportCommand(CLI::App* root) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* app = root->add_subcommand(
      "report", "Show a file of `profile` as a page, a trace, CSV or Markdown");
  app->footer(kReportExamples);
  app->add_option("PROFILE", flags->file, "What `reprise profile --json` wrote")
      ->required()
      ->type_name("");
  AddExportOptions(app, &flags->exports);
  return {app, [flags](const Invocation& invocation) { return Run(*flags, invocation); }};
}

}  // namespace reprise::tools
