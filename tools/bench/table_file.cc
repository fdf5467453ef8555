// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/table_file.h"

#include "absl/strings/str_cat.h"
#include "engine/linear_table_text.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

absl::StatusOr<std::string> ReadLinearTableFile(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(std::string text, models::ReadFile(path, engine::kMaxLinearTableBytes));
  const absl::Status status = engine::ParseLinearTable(text).status();
  if (status.ok()) return text;
  return absl::Status(status.code(), absl::StrCat(path, ": ", std::string(status.message())));
}

}  // namespace reprise::tools
