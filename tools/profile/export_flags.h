// SPDX-License-Identifier: Apache-2.0
// Options of commands that write a profile in other forms (`profile`, `report`).
#ifndef REPRISE_TOOLS_PROFILE_EXPORT_FLAGS_H_
#define REPRISE_TOOLS_PROFILE_EXPORT_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tools/cli.h"
#include "tools/console.h"

namespace reprise::tools {

// Files, "": none; "-": stdout.
struct ExportFlags {
  std::string html_file, trace_file, csv_file, markdown_file;
};

// `flags` must outlive `app`.
void AddExportOptions(CLI::App* app, ExportFlags* flags);
// Before anything is measured: PrepareRecord of all.
absl::Status PrepareExports(const ExportFlags& flags, Console* console);
bool HasExports(const ExportFlags& flags);
// `profile`: as profile_file.h wants it. Errors: Unavailable names the file and the reason.
absl::Status WriteExports(const ExportFlags& flags, const nlohmann::json& profile,
                          Console* console);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_EXPORT_FLAGS_H_
