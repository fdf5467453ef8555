// SPDX-License-Identifier: Apache-2.0
// `reprise compare`: two files of `reprise profile` or `reprise bench`, what differs between them,
// and whether that is more than noise.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/compare/compare_report.h"
#include "tools/compare/comparison.h"
#include "tools/compare/measured_run.h"
#include "tools/console.h"
#include "tools/record.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kCompareExamples[] =
    "Examples:\n"
    "  reprise compare before.json after.json\n"
    "  reprise compare before.json after.json --threshold 1% --json difference.json\n"
    "\n"
    "Exit codes: 0 nothing is slower by more than the threshold, 1 the files cannot be compared, 2 "
    "wrong usage, 3 something is slower. docs/profile.md says how a verdict comes about; "
    "docs/compare.schema.json describes the JSON.";

struct CompareFlags {
  std::string file_a, file_b;
  CompareOptions compare;
  std::string json_file;
};

// As a share of 1.
absl::StatusOr<double> ParsePercent(std::string_view text) {
  const auto percent =
      ParseDecimal(text.substr(0, text.size() - (text.ends_with('%') ? 1 : 0)), 0, 1000);
  if (percent.ok() && text.ends_with('%')) return *percent / 100;
  return absl::InvalidArgumentError(absl::StrCat("percentage: got \"", std::string(text),
                                                 "\", allowed: 0% to 1000%, such as 2%"));
}

absl::Status Run(const CompareFlags& flags, const Invocation& invocation) {
  Console* console = invocation.console;
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, console));
  REPRISE_ASSIGN_OR_RETURN(const MeasuredRun a, ReadMeasuredRun(flags.file_a));
  REPRISE_ASSIGN_OR_RETURN(const MeasuredRun b, ReadMeasuredRun(flags.file_b));
  REPRISE_ASSIGN_OR_RETURN(const Comparison comparison, CompareRuns(a, b, flags.compare));
  console->Print(ComparisonText(a, b, comparison, flags.compare, console->width()));
  for (const std::string& warning : comparison.warnings)
    console->Note(absl::StrCat("reprise compare: warning: ", warning));
  nlohmann::json json = RecordOf("compare", invocation);
  json.update(ComparisonToJson(a, b, comparison, flags.compare));
  REPRISE_RETURN_IF_ERROR(WriteRecord(flags.json_file, json, console));
  if (comparison.regressions.empty()) return absl::OkStatus();
  return BeyondBoundError(absl::StrJoin(comparison.regressions, "; "));
}

}  // namespace

Command AddCompareCommand(CLI::App* root) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* app = root->add_subcommand(
      "compare", "Compare two files of `profile` or `bench`: faster, slower, or noise");
  app->footer(kCompareExamples);
  app->add_option("A", flags->file_a, "What was measured before: a file of --json")
      ->required()
      ->type_name("");
  app->add_option("B", flags->file_b, "What was measured after")->required()->type_name("");
  AddOption(app, "--threshold", &flags->compare.threshold, ParsePercent, "PERCENT", "2%",
            "A slower point beyond this is a regression, and the exit code is 3");
  AddOption(
      app, "--confidence", &flags->compare.confidence,
      [](std::string_view text) -> absl::StatusOr<double> {
        return ParseDecimal(text, 0.5, 0.999);
      },
      "SHARE", "0.95", "Of the intervals that verdicts come from");
  app->add_option("--json", flags->json_file,
                  "Write all figures to this file too; -: to stdout, and text to stderr")
      ->type_name("FILE");
  return {app, [flags](const Invocation& invocation) { return Run(*flags, invocation); }};
}

}  // namespace reprise::tools
