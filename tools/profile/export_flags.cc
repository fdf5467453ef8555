// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/export_flags.h"

#include "runtime/status_macros.h"
#include "tools/profile/profile_file.h"
#include "tools/record.h"

namespace reprise::tools {
namespace {

struct ExportDef {
  const char* option;
  const char* description;
  std::string ExportFlags::*file;
  std::string (*form)(const nlohmann::json&);
};
constexpr ExportDef kExports[] = {
    {"--html", "Write a page with charts and a timeline, for a browser", &ExportFlags::html_file,
     ProfilePage},
    {"--trace", "Write trace events for chrome://tracing and Perfetto", &ExportFlags::trace_file,
     ProfileTrace},
    {"--csv", "Write every quantity and kernel as a line of CSV; -: to stdout",
     &ExportFlags::csv_file, ProfileCsv},
    {"--markdown", "Write tables of Markdown; -: to stdout", &ExportFlags::markdown_file,
     ProfileMarkdown}};

}  // namespace

void AddExportOptions(CLI::App* app, ExportFlags* flags) {
  for (const ExportDef& def : kExports)
    app->add_option(def.option, flags->*def.file, def.description)->type_name("FILE");
}

absl::Status PrepareExports(const ExportFlags& flags, Console* console) {
  for (const ExportDef& def : kExports)
    REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.*def.file, console));
  return absl::OkStatus();
}

bool HasExports(const ExportFlags& flags) {
  for (const ExportDef& def : kExports) {
    if (!(flags.*def.file).empty()) return true;
  }
  return false;
}

absl::Status WriteExports(const ExportFlags& flags, const nlohmann::json& profile,
                          Console* console) {
  for (const ExportDef& def : kExports) {
    const std::string& file = flags.*def.file;
    if (file.empty()) continue;
    const std::string text = def.form(profile);
    if (file == kStdoutFile) {
      console->PrintData(text);
      continue;
    }
    REPRISE_RETURN_IF_ERROR(WriteText(file, text));
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
