// SPDX-License-Identifier: Apache-2.0
// A command's options from a file: the part of TOML that options need, a key and its value in each
// line.
//
//   # The model, and who may ask for steps.
//   model = "/var/lib/reprise/model"
//   listen = ["unix:/run/reprise/steps.sock", "127.0.0.1:50051"]
//   max-rows = 64
//   allow-administration = true
#ifndef REPRISE_TOOLS_CONFIG_FILE_H_
#define REPRISE_TOOLS_CONFIG_FILE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli.h"

namespace reprise::tools {

// Sets options of `app`, which has been parsed, from the file at `path`; those that the command
// line gave stay, once the file's have been found right. An option's key is its name without
// dashes. Errors: NotFound where the file cannot be read, InvalidArgument where it is a directory;
// usage errors name file, line and key: one that is not known, or given twice; a value of another
// type, or that the option refuses; a line that is none of these.
absl::Status ApplyConfigFile(const std::string& path, CLI::App* app);
// The same of the text of such a file, which `path` names in errors.
absl::Status ApplyConfigText(const std::string& path, std::string_view text, CLI::App* app);

// The text of such a file with these keys set to these texts: in the line that a key has, whose
// comment stays, or in a line at the end. Everything else stays as it is. `path` begins the
// messages. Errors: usage errors name file and line: a key that is there twice, a line that is no
// setting. REQUIRES: no end of a line in a value.
absl::StatusOr<std::string> WithSettings(
    const std::string& path, std::string_view text,
    const std::vector<std::pair<std::string, std::string>>& settings);

// All options of `app`, as such a file: with the value that each was given or has by default, and
// as comments with what they take where they have none. REQUIRES: no end of a line in a value.
std::string ConfigText(const CLI::App& app);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CONFIG_FILE_H_
