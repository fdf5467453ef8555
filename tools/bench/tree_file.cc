// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/tree_file.h"

#include "absl/strings/str_cat.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

absl::StatusOr<engine::NamedAttentionTree> ReadAttentionTreeFile(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text,
                           models::ReadFile(path, engine::kMaxAttentionTreeBytes));
  absl::StatusOr<engine::NamedAttentionTree> tree = engine::ParseAttentionTree(text);
  if (tree.ok()) return tree;
  return absl::Status(tree.status().code(),
                      absl::StrCat(path, ": ", std::string(tree.status().message())));
}

}  // namespace reprise::tools
