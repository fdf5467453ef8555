// SPDX-License-Identifier: Apache-2.0
// Linear tables in files, for commands that are given one.
#ifndef REPRISE_TOOLS_BENCH_TABLE_FILE_H_
#define REPRISE_TOOLS_BENCH_TABLE_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace reprise::tools {

// The text in the file at `path`, which is a table's. Whether it fits a device the engine says.
// Errors: those of models::ReadFile, with at most engine::kMaxLinearTableBytes; those of
// engine::ParseLinearTable, with the path in front.
absl::StatusOr<std::string> ReadLinearTableFile(const std::string& path);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_TABLE_FILE_H_
