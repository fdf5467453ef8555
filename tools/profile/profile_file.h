// SPDX-License-Identifier: Apache-2.0
// A profile in other forms, made from its JSON: an HTML page, a trace, CSV, Markdown. Text in, text
// out; docs/profile.md says what each holds.
#ifndef REPRISE_TOOLS_PROFILE_PROFILE_FILE_H_
#define REPRISE_TOOLS_PROFILE_PROFILE_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace reprise::tools {

// `text`: what `reprise profile --json` wrote; `file` begins the messages. Errors: InvalidArgument
// names the field that is missing or of another type, of those that the forms below need.
absl::StatusOr<nlohmann::json> ParseProfile(const std::string& file, std::string_view text);
// Errors: as above; those of reading the file.
absl::StatusOr<nlohmann::json> ReadProfile(const std::string& file);

// Whether a point is a decode step of rows of one context: what the rule that simulated devices
// have for decode steps is of (docs/sim.md). Looks at nothing else of it.
bool IsUniformDecode(const nlohmann::json& point);

// Each takes what ParseProfile gives, or what a run is about to write.

// One page that loads nothing, for a browser: charts, a timeline, tables.
std::string ProfilePage(const nlohmann::json& profile);
// Trace events for chrome://tracing and Perfetto: a process for each point, whose steps show every
// launch in time.
std::string ProfileTrace(const nlohmann::json& profile);
// A line for every quantity and every kernel of every point; times in microseconds.
std::string ProfileCsv(const nlohmann::json& profile);
// Tables as GitHub shows them: points, then the kernels of each.
std::string ProfileMarkdown(const nlohmann::json& profile);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_PROFILE_FILE_H_
