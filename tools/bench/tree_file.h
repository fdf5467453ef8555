// SPDX-License-Identifier: Apache-2.0
// Attention trees in files, for commands that are given one.
#ifndef REPRISE_TOOLS_BENCH_TREE_FILE_H_
#define REPRISE_TOOLS_BENCH_TREE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/attention_tree_text.h"

namespace reprise::tools {

// The tree in the file at `path`. Whether it fits a device CheckTreeFits says. Errors: those of
// models::ReadFile, with at most engine::kMaxAttentionTreeBytes; those of ParseAttentionTree, with
// the path in front.
absl::StatusOr<engine::NamedAttentionTree> ReadAttentionTreeFile(const std::string& path);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_TREE_FILE_H_
