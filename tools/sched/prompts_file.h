// SPDX-License-Identifier: Apache-2.0
// Files of prompts, one in each line. All lines are plain (a text, or token ids with commas between
// them), or all are JSON:
//
//   {"prompt": "You may copy", "max_new_tokens": 20}
//   {"tokens": [1, 15043, 3186]}
#ifndef REPRISE_TOOLS_SCHED_PROMPTS_FILE_H_
#define REPRISE_TOOLS_SCHED_PROMPTS_FILE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

struct FilePrompt {
  std::variant<std::string, std::vector<uint32_t>> prompt;  // neither is empty
  uint32_t max_new_tokens = 0;                              // 0: as many as the others

  bool is_text() const { return std::holds_alternative<std::string>(prompt); }
};

// What lines are that are no JSON.
enum class PlainLines : uint8_t { kText, kTokens };

// The prompts of `path`, of stdin for "-", in order; empty lines, and a UTF-8 byte order mark
// at the beginning, are passed over. Lines are JSON where the first that is not empty begins with
// "{". Errors: NotFound names a file that cannot be read; InvalidArgument a directory; the line and
// what in it is wrong, got, allowed; a file without prompts.
absl::StatusOr<std::vector<FilePrompt>> ReadPromptsFile(const std::string& path, PlainLines plain);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_PROMPTS_FILE_H_
